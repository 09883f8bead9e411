#include "rewrite/rewrite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/flags.h"
#include "ir/build.h"

namespace whit {
namespace {

using namespace whit::pat;
using testing::HasSubstr;

UOp value(int64_t slot, DType dtype = DType::Float32) { return param(slot, dtype, {}); }
UOp number(double v) { return constant(DType::Float32, v); }

std::string error_of(auto&& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Rewrite, TheFirstRuleThatAppliesWins) {
  static constexpr Rule kRules[] = {
      rule_fn("declines", f + g, [](const Match&, RuleCtx&) { return UOp(); }),
      rule("conditional", f + d0, f * d0, [](const Match& at) { return at[d0].arg().to_double() == 2.0; }),
      rule("any", f + g, f),
  };
  const RuleSet set("test", kRules);
  EXPECT_EQ(set.rewrite(value(0) + number(2)), value(0) * number(2));
  EXPECT_EQ(set.rewrite(value(0) + number(3)), value(0));
  EXPECT_EQ(set.rewrite(value(0) * number(3)), UOp());
}

TEST(Rewrite, ARepeatedNameIsTheSameNode) {
  static constexpr Rule kRules[] = {rule("twice", comm(f * comm(g + f)), g)};
  const RuleSet set("test", kRules);
  const UOp a = value(0), b = value(1);
  EXPECT_EQ(set.rewrite(a * (b + a)), b);
  EXPECT_EQ(set.rewrite((a + b) * a), b);
  EXPECT_EQ(set.rewrite((a + b) * value(2)), UOp());
}

TEST(Rewrite, PatternsOfSeveralShapes) {
  static constexpr Rule kRules[] = {
      rule_fn("rest", rest(op(Op::Sink, x)), [](const Match& at, RuleCtx&) { return at[x]; }),
      rule_fn("all", all(Op::Tuple, op({Op::Param, Op::Const})), [](const Match&, RuleCtx&) { return idx(1); }),
      rule("bind", bind(z, f - g) - g, z),
  };
  const RuleSet set("test", kRules);
  const UOp a = value(0), b = value(1);
  EXPECT_EQ(set.rewrite(UOp::make(Op::Sink, DType::Void, {a, b, b})), a);
  EXPECT_EQ(set.rewrite(UOp::make(Op::Sink, DType::Void)), UOp());
  EXPECT_EQ(set.rewrite(UOp::make(Op::Tuple, DType::Void, {a, b, number(1)})), idx(1));
  EXPECT_EQ(set.rewrite(UOp::make(Op::Tuple, DType::Void, {a, a + b})), UOp());
  EXPECT_EQ(set.rewrite(UOp::make(Op::Tuple, DType::Void)), idx(1));
  EXPECT_EQ(set.rewrite((a - b) - b), a - b);
}

TEST(Rewrite, ResultsFoldAndTakeTheDtypeOfTheirSiblings) {
  static constexpr Rule kRules[] = {
      rule("mul", (n * c0) * c1, n * fold(c0 * c1)),
      rule("where", where(p, x, x), where(p, x, 0)),
  };
  const RuleSet set("test", kRules);
  const UOp a = value(0, DType::Int8);
  EXPECT_EQ(set.rewrite((a * 100) * 3), a * 44);  // wraps
  const UOp b = value(0, DType::Bool), c = value(1);
  EXPECT_EQ(set.rewrite(where(b, c, c)), where(b, c, number(0)));
  const UOp i_big = UOp::make(Op::Mul, DType::WeakInt, {range(4, 0, AxisType::Loop), idx(INT64_MAX / 2)});
  EXPECT_EQ(set.rewrite(UOp::make(Op::Mul, DType::WeakInt, {i_big, idx(3)})), UOp());  // does not fit: declined
}

// What cannot be right is refused where the set is made.
TEST(Rewrite, SetsAreChecked) {
  static const Rule hidden[] = {rule("general", f + g, f), rule("special", f + 1.0, f)};
  EXPECT_THAT(error_of([] { RuleSet("test", hidden); }),
              HasSubstr("rule test/special never runs: it is hidden by general (tests/unit/rewrite_test.cpp:"));
  static const Rule twice[] = {rule("same", f + 1.0, f), rule("same", f + 2.0, f)};
  EXPECT_THAT(error_of([] { RuleSet("test", twice); }), HasSubstr("rule test/same has the name of same"));
  static const Rule left[] = {rule("left", 1.0 + f, f)};
  EXPECT_THAT(error_of([] { RuleSet("test", left); }), HasSubstr("a constant stands left of a commutative op"));
  static const Rule many[] = {rule("many", comm(comm(f + g) * comm(g + h)), f)};
  EXPECT_THAT(error_of([] { RuleSet("test", many); }), HasSubstr("more than 4 variants (rule test/many at "));
  EXPECT_THAT(error_of([] { rule("unbound", f + g, h); }), HasSubstr("a capture that the pattern does not bind"));
  EXPECT_THAT(error_of([] { rule("any", x, 0); }), HasSubstr("must start with an op"));
  EXPECT_THAT(error_of([] { rule("any", op(OpSet::any()), 0); }), HasSubstr("must not start with any op"));
  const Pat deep = (f + g) * (f + g);
  EXPECT_THAT(error_of([&] { return deep + deep; }), HasSubstr("more than 12 nodes"));
  // A condition or a function may decline: what follows is not hidden.
  static const Rule fine[] = {rule("general", f + g, f, [](const Match&) { return false; }), rule("special", f + 1.0, f)};
  EXPECT_EQ(RuleSet("test", fine).rewrite(value(0) + number(1)), value(0));
}

TEST(Rewrite, CirclesAreNamed) {
  static constexpr Rule kCircle[] = {rule("to-mul", f + g, f * g), rule("to-add", f * g, f + g)};
  const RuleSet set("test", kCircle);
  EXPECT_EQ(error_of([&] { graph_rewrite(value(0) + value(1), set, {.name = "demo"}); }),
            "[rewrite] pass 'demo' goes in circles at ADD; rules: test/to-mul, test/to-add");
  static constexpr Rule kGrowth[] = {rule("grow", f + g, (f + g) * g), rule("again", (f + g) * g, (f - g) + g)};
  const FlagScope flags("REWRITE_STACK_LIMIT", int64_t{500});
  EXPECT_THAT(error_of([&] { graph_rewrite(value(0) + value(1), RuleSet("test", kGrowth), {.name = "demo"}); }), HasSubstr("[rewrite] pass 'demo' "));
}

TEST(Rewrite, EndlessGrowthEndsAtTheBudget) {
  static constexpr Rule kGrowth[] = {rule("grow", f * d0, (f + d0) * fold(d0 + d0))};
  const FlagScope flags("REWRITE_STACK_LIMIT", int64_t{100});
  EXPECT_EQ(error_of([&] { graph_rewrite(value(0) * number(0.5), RuleSet("test", kGrowth), {.name = "demo"}); }),
            "[rewrite] pass 'demo' does not end after 101 rewrites at MUL; rules: test/grow");
}

TEST(Rewrite, SharedNodesAreDoneOnceAndDepthIsNoProblem) {
  static constexpr Rule kRules[] = {rule("neg", -f, f * -1.0)};
  const RuleSet set("test", kRules);
  UOp a = value(0);
  for (int depth = 0; depth < 60; ++depth) a = (-a) + (-a);  // 2^60 paths
  rewrite_stats() = {};
  const UOp out = graph_rewrite(a, set);
  EXPECT_EQ(rewrite_stats().fired, 60);
  EXPECT_LT(rewrite_stats().visited, 500);
  UOp deep = value(0);
  for (int depth = 0; depth < 100000; ++depth) deep = alu(Op::Sqrt, {-deep});
  rewrite_stats() = {};
  const UOp flat = graph_rewrite(deep, set);
  EXPECT_EQ(rewrite_stats().fired, 100000);
  EXPECT_EQ(flat.src(0).op(), Op::Mul);
}

TEST(Rewrite, Orders) {
  // Sources first: the inner node is a constant before the outer one is seen.
  static constexpr Rule kRules[] = {rule("sum", f + g, f), rule_fn("keep", sqrt(x), [](const Match&, RuleCtx& cx) {
                                      cx.stop = true;
                                      return UOp();
                                    })};
  const RuleSet set("test", kRules);
  const UOp a = value(0), b = value(1), kept = alu(Op::Sqrt, {a + b});
  EXPECT_EQ(graph_rewrite(kept, set), alu(Op::Sqrt, {a}));
  EXPECT_EQ(graph_rewrite(kept, set, {.bottom_up = true}), kept);  // not entered
  EXPECT_EQ(graph_rewrite(-(a + b), set, {.bottom_up = true}), -a);
  // One pass: results are final, also when they contain what they replaced.
  static constexpr Rule kWrap[] = {rule_fn("wrap", op(Op::Param), [](const Match& at, RuleCtx& cx) {
    ++cx.as<int>();
    return UOp::make(Op::Detach, at.root->dtype, {at.root_uop()});
  })};
  int count = 0;
  const UOp wrapped = graph_rewrite(a + b, RuleSet("test", kWrap), {.ctx = &count, .walk = true});
  EXPECT_EQ(count, 2);
  EXPECT_EQ(wrapped.src(0).op(), Op::Detach);
  EXPECT_EQ(wrapped.src(0).src(0), a);
}

TEST(Rewrite, BodiesOfCallsAreLeftAlone) {
  static constexpr Rule kRules[] = {rule("sum", f + g, f)};
  const RuleSet set("test", kRules);
  const UOp body = value(0) + value(1);
  const UOp call = UOp::make(Op::Call, DType::Float32, {body, body});
  const UOp out = graph_rewrite(call, set);
  EXPECT_EQ(out.src(0), body);
  EXPECT_EQ(out.src(1), value(0));
  EXPECT_EQ(graph_rewrite(call, set, {.enter_calls = true}).src(0), value(0));
}

TEST(Rewrite, AScalarResultKeepsTheShape) {
  static constexpr Rule kRules[] = {rule("zero", f * 0.0, 0.0)};
  const RuleSet set("test", kRules);
  const int64_t dims[] = {4};
  const UOp x4 = param(0, DType::Float32, dims) * number(0);
  EXPECT_EQ(graph_rewrite(x4, set), broadcast_scalar(number(0), dims));
  EXPECT_EQ(graph_rewrite(x4, set, {.vectors = true}).op(), Op::Vec);
}

TEST(Rewrite, RulesCanBeSwitchedOff) {
  static constexpr Rule kA[] = {rule("one", f * 1.0, f)};
  static constexpr Rule kB[] = {rule("two", f * 2.0, f + f)};
  const RuleSet set = RuleSet("a", kA) + RuleSet("b", kB);
  const UOp one = value(0) * number(1), two = value(0) * number(2);
  {
    const FlagScope flags("RULES", std::string("-a/one"));
    EXPECT_EQ(graph_rewrite(one, set), one);
    EXPECT_NE(graph_rewrite(two, set), two);
  }
  const FlagScope flags("RULES", std::string("-a,-b"));
  EXPECT_EQ(graph_rewrite(two, set), two);
}

TEST(Rewrite, TraceRecordsWhatFired) {
  static constexpr Rule kRules[] = {rule("one", f * 1.0, f)};
  const RuleSet set("a", kRules);
  RewriteTrace trace;
  graph_rewrite(-(value(0) * number(1)), set, {.name = "demo"});
  ASSERT_EQ(trace.events.size(), 1u);
  EXPECT_STREQ(trace.events[0].pass, "demo");
  EXPECT_EQ(trace.events[0].rule, "a/one");
  EXPECT_EQ(trace.events[0].before, value(0) * number(1));
  EXPECT_EQ(trace.events[0].after, value(0));
}

TEST(Rewrite, RulesMadeAtRunTime) {
  int calls = 0;
  std::optional<RuleSet> made;
  {
    const std::string label = "made";
    Rule row = rule_fn(label.c_str(), f + g, [](const Match& at, RuleCtx&) {
      ++*static_cast<int*>(static_cast<const Rule*>(at.row)->user);
      return at[g];
    });
    row.user = &calls;
    made.emplace(std::string("python"), std::vector<Rule>{row});  // keeps the name
  }
  const RuleSet& set = *made;
  EXPECT_EQ(graph_rewrite(value(0) + value(1), set + set), value(1));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(set.full_name(set.rules()[0]), "python/made");
}

TEST(PatTable, ServesRowsWithOtherResults) {
  struct TextRow : Row {
    const char* text;
  };
  static constexpr TextRow kRows[] = {{{"double", f + f, __FILE__, __LINE__}, "2*f"}, {{"add", x + y, __FILE__, __LINE__}, "x+y"}};
  PatTable table;
  for (const TextRow& row : kRows) table.add("text", row);
  const auto texts = [&](const UOp& u) {
    std::string all;
    Match m;
    uint32_t index;
    for (auto c = table.candidates(u.node()); table.next(c, u.node(), m, &index);)
      all += std::string(static_cast<const TextRow*>(table.rows()[index])->text) + " ";
    return all;
  };
  EXPECT_EQ(texts(value(0) + value(1)), "x+y ");
  EXPECT_EQ(texts(value(0) + value(0)), "2*f x+y ");
  EXPECT_EQ(texts(value(0)), "");
}

}  // namespace
}  // namespace whit
