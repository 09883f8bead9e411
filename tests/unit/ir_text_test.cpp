#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "ir/build.h"
#include "ir/text.h"

using namespace whit;

namespace {

std::string error_of(std::string_view text) {
  try {
    parse_text(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Value);
    return e.what();
  }
  return "no error";
}

TEST(IrText, OneNodeALine) {
  const UOp p = param(0, DType::Float32, Dims{16});
  const UOp r = range(16, 0, AxisType::Weak);
  const UOp value = load(index(p, r, lt(r, 3))) * constant(DType::Float32, 2.0);
  const UOp loops[] = {r};
  const UOp sink = UOp::make(Op::Sink, DType::Void, {end(store(index(p, r), value), loops)}, Arg::list({"k"}));
  EXPECT_EQ(to_text(sink),
            "%0 = PARAM float32 [0, 16]\n"
            "%1 = RANGE weakint [0, 0, 16]\n"
            "%2 = INDEX float32 (%0, %1)\n"
            "%3 = CONST weakint 3\n"
            "%4 = CMPLT bool (%1, %3)\n"
            "%5 = INDEX float32 (%0, %1, %4)\n"
            "%6 = LOAD float32 (%5)\n"
            "%7 = CONST float32 2.0\n"
            "%8 = MUL float32 (%6, %7)\n"
            "%9 = STORE void (%2, %8)\n"
            "%10 = END void (%9, %1)\n"
            "%11 = SINK void (%10) {\"k\"}\n");
  EXPECT_EQ(parse_text(to_text(sink)), sink);
}

TEST(IrText, ArgumentsOfEveryKind) {
  const int64_t ints[] = {1, -2, INT64_MIN};
  const std::pair<Arg, const char*> kCases[] = {
      {true, "true"},
      {false, "false"},
      {5, "5"},
      {int64_t{INT64_MIN}, "-9223372036854775808"},
      {1.5, "1.5"},
      {2.0, "2.0"},
      {-0.0, "-0.0"},
      {1e30, "1e+30"},
      {0.1, "0.1"},
      {5e-324, "5e-324"},
      {INFINITY, "inf"},
      {-INFINITY, "-inf"},
      {std::bit_cast<double>(0x7FF8000000000000ull), "nan"},
      {std::bit_cast<double>(0xFFF8000000000001ull), "nan:fff8000000000001"},
      {Arg::invalid(), "Invalid"},
      {"", "\"\""},
      {"a \"b\" \\ \n\t\x01\xff", R"("a \"b\" \\ \n\t\x01\xff")"},
      {Arg(std::span<const int64_t>(ints)), "[1, -2, -9223372036854775808]"},
      {Arg(std::span<const int64_t>()), "[]"},
      {Arg::list({}), "{}"},
      {Arg::list({1, "a", Arg(), Arg::list({2.0}), Arg(std::span<const int64_t>(ints, 1))}), "{1, \"a\", None, {2.0}, [1]}"}};
  for (const auto& [arg, text] : kCases) {
    EXPECT_EQ(to_text(arg), text);
    const UOp u = UOp::make(Op::Sink, DType::Void, {}, arg);
    EXPECT_EQ(parse_text(to_text(u)), u) << text;
  }
}

TEST(IrText, EveryDoubleReadsBack) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20'000; ++i) {
    const UOp u = UOp::make(Op::Sink, DType::Void, {}, std::bit_cast<double>(static_cast<uint64_t>(random())));
    ASSERT_EQ(parse_text(to_text(u)), u) << to_text(u);
  }
}

TEST(IrText, BuffersAreRenumberedAndParsedFresh) {
  const UOp a = buffer(DType::Float32, 4, "CPU"), b = buffer(DType::Float32, 4, "CPU");
  const UOp u = (b + a) * b;
  EXPECT_EQ(to_text(u),
            "%0 = BUFFER float32 {0, \"CPU\", 4}\n"
            "%1 = BUFFER float32 {1, \"CPU\", 4}\n"
            "%2 = ADD float32 (%0, %1)\n"
            "%3 = MUL float32 (%2, %0)\n");
  const UOp again = parse_text(to_text(u));
  EXPECT_FALSE(again == u);
  EXPECT_EQ(again.key(), u.key());
  EXPECT_EQ(to_text(again), to_text(u));
  EXPECT_EQ(again.src(1), again.src(0).src(0));
}

TEST(IrText, WordsCommentsAndBlankLines) {
  const UOp u = parse_text("; a graph\n\n  %x = VARIABLE int32 {\"x\", 0, 5} ; its comment\r\n%sum=ADD int32(%x,%x)\n\n");
  EXPECT_EQ(u.op(), Op::Add);
  EXPECT_EQ(u.vmax(), 10);
}

TEST(IrText, ErrorsNameThePlaceAndWhatWasExpected) {
  EXPECT_EQ(error_of(""), "[ir text] line 1, column 1: expected a node such as '%0 = CONST int32 1', the text has none");
  EXPECT_EQ(error_of("%0 = FLOORDVI int32"), "[ir text] line 1, column 6: expected an op such as ADD, got 'FLOORDVI'; did you mean FLOORDIV?");
  EXPECT_EQ(error_of("%0 = CONST int33 1"), "[ir text] line 1, column 12: expected a dtype such as float32, got 'int33'; did you mean int32?");
  EXPECT_EQ(error_of("%0 = CONST int32 1\n%1 = NEG int32 (%7)"), "[ir text] line 2, column 17: %7 is not defined above");
  EXPECT_EQ(error_of("%0 = CONST int32 1\n  %0 = CONST int32 2"), "[ir text] line 2, column 3: %0 is defined twice");
  EXPECT_EQ(error_of("%0 CONST"), "[ir text] line 1, column 4: expected '=' after the node's name, got 'CONST'");
  EXPECT_EQ(error_of("%0 = CONST int32 \"a"), "[ir text] line 1, column 18: expected a closing '\"' for this text");
  EXPECT_EQ(error_of("%0 = CONST int32 {1 2}"), "[ir text] line 1, column 21: expected ',' or '}' in a list, got '2'");
  EXPECT_EQ(error_of("%0 = SINK void [1, 2.5]"), "[ir text] line 1, column 20: expected an integer in [..], got '2'");
  EXPECT_EQ(error_of("%0 = CONST int32 99999999999999999999"), "[ir text] line 1, column 18: expected an integer of 64 bits, got a larger one");
  EXPECT_EQ(error_of("%0 = CONST int32 1 1"), "[ir text] line 1, column 20: expected the end of the line after the node");
  EXPECT_EQ(error_of("%0 = CONST int32 maybe"),
            "[ir text] line 1, column 18: expected an argument such as 1, 1.5, \"text\", [1, 2] or {1, \"a\"}, got 'maybe'");
  EXPECT_EQ(error_of("%0 = CONST float32 1"), "[ir text] line 1, column 1: CONST float32 with an argument of another kind");
  EXPECT_EQ(error_of("%0 = PARAM float32 [0, 2]\n%1 = RESHAPE float32 (%0) [3]"), "[ir text] line 2, column 1: RESHAPE of (2,) to (3,)");
  EXPECT_EQ(error_of("%0 = REDUCE float32 {\"add\"}"), "[ir text] line 1, column 1: REDUCE takes 1 or more sources, got 0");
  EXPECT_EQ(error_of("%0 = SINK void \"\\q\""), "[ir text] line 1, column 17: expected one of the escapes \\\" \\\\ \\n \\t \\xNN");
}

// ---- fuzz

struct Generator {
  std::mt19937 random;
  size_t below(size_t n) { return random() % n; }

  Arg arg(int depth) {
    switch (below(depth > 2 ? 6 : 8)) {
      case 0: return {};
      case 1: return below(2) == 0;
      case 2: return static_cast<int64_t>(random()) - (int64_t{1} << 31);
      case 3: return std::bit_cast<double>(static_cast<uint64_t>(random()) << 32 | random());
      case 4: return Arg::invalid();
      case 5: {
        std::string s(below(6), '\0');
        for (char& c : s) c = static_cast<char>(random());
        return Arg(std::string_view(s));
      }
      case 6: {
        Dims d;
        for (size_t n = below(4); n > 0; --n) d.push_back(static_cast<int64_t>(random()));
        return Arg(d);
      }
      default: {
        std::vector<Arg> l;
        for (size_t n = below(4); n > 0; --n) l.push_back(arg(depth + 1));
        return Arg(std::span<const Arg>(l));
      }
    }
  }

  UOp graph() {
    std::vector<UOp> nodes{param(0, DType::Float32, Dims{2, 3})};
    const auto pick = [&] { return nodes[below(nodes.size())]; };
    for (size_t n = 5 + below(30); n > 0; --n) {
      switch (below(5)) {
        case 0: nodes.push_back(constant(DType::Float32, static_cast<double>(random()) - 1e9)); break;
        case 1: {
          std::vector<UOp> src;
          for (size_t k = below(5); k > 0; --k) src.push_back(pick());
          nodes.push_back(UOp::make(Op::Sink, DType::Void, src, arg(0)));
          break;
        }
        case 2: {
          const UOp x = pick();
          if (x.shape().size() == 2) nodes.push_back(UOp::make(Op::Flip, x.dtype(), {x}, Dims{static_cast<int64_t>(below(2))}));
          break;
        }
        case 3:
          nodes.push_back(range(static_cast<int64_t>(below(100)), static_cast<int64_t>(below(9)), static_cast<AxisType>(below(kNumAxisTypes))));
          break;
        default: {
          const UOp x = pick(), y = pick();
          if (x.shape().empty() || y.shape().empty() || x.shape() == y.shape()) nodes.push_back(UOp::make(Op::Mul, x.dtype(), {x, y}));
        }
      }
    }
    return UOp::make(Op::Tuple, DType::Void, nodes);
  }
};

TEST(IrTextFuzz, PrintAndParseAreInverse) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    const UOp u = Generator{std::mt19937(seed)}.graph();
    const std::string text = to_text(u);
    ASSERT_EQ(parse_text(text), u) << "seed " << seed << "\n" << text;
  }
}

TEST(IrTextFuzz, DamagedTextGivesAGraphOrAnError) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Generator g{std::mt19937(seed)};
    std::string text = to_text(g.graph());
    for (size_t n = 1 + g.below(3); n > 0; --n) {
      const size_t at = g.below(text.size());
      static constexpr std::string_view kBytes = "%=()[]{},\"\\ \n0123456789-.einfNa;";
      switch (g.below(4)) {
        case 0: text[at] = kBytes[g.below(kBytes.size())]; break;
        case 1: text.erase(at, 1 + g.below(10)); break;
        case 2: text.insert(at, text.substr(g.below(text.size()), g.below(20))); break;
        default: text.resize(at);
      }
      if (text.empty()) text = " ";
    }
    try {
      const UOp u = parse_text(text);
      ASSERT_EQ(parse_text(to_text(u)).key(), u.key());
    } catch (const Error& e) {
      ASSERT_EQ(e.kind(), ErrorKind::Value) << e.what() << "\n" << text;
    }
  }
}

}  // namespace
