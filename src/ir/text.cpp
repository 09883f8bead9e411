#include "ir/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "ir/build.h"

namespace whit {
namespace {

constexpr uint64_t kUsualNaN = 0x7FF8000000000000ull;
constexpr int kMaxListDepth = 64;  // lists are parsed by recursion; no argument of ours nests deeper than 3

void append_float(std::string& out, double v) {
  if (std::isnan(v)) {
    const uint64_t bits = std::bit_cast<uint64_t>(v);
    out += bits == kUsualNaN ? "nan" : fmt::format("nan:{:016x}", bits);
    return;
  }
  const size_t start = out.size();
  out += fmt::format("{}", v);
  if (std::isfinite(v) && out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

void append_string(std::string& out, std::string_view text) {
  out.push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += {'\\', c};
    else if (c == '\n' || c == '\t') out += c == '\n' ? "\\n" : "\\t";
    else if (byte < 0x20 || byte >= 0x7F) out += fmt::format("\\x{:02x}", byte);
    else out.push_back(c);
  }
  out.push_back('"');
}

void append_arg(std::string& out, const Arg& arg) {
  switch (arg.kind()) {
    case Arg::Kind::Float: return append_float(out, arg.as_float());
    case Arg::Kind::Str: return append_string(out, arg.as_str());
    case Arg::Kind::Ints: out += fmt::format("[{}]", fmt::join(arg.as_ints(), ", ")); return;
    case Arg::Kind::List: {
      const char* separator = "{";
      for (const Arg& a : arg.as_list()) {
        append_arg(out += separator, a);
        separator = ", ";
      }
      out += arg.as_list().empty() ? "{}" : "}";
      return;
    }
    default:
      out += arg.is_int() ? std::to_string(arg.as_int()) : arg.is_invalid() ? "Invalid" : arg.is_bool() ? (arg.as_bool() ? "true" : "false") : "None";
  }
}

// ---- parsing

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  UOp parse() {
    UOp last;
    for (;;) {
      skip_blank_lines();
      if (at_ == text_.size()) break;
      last = parse_node();
      skip_spaces();
      if (!at_line_end()) fail(at_, "expected the end of the line after the node");
    }
    if (!last) fail(at_, "expected a node such as '%0 = CONST int32 1', the text has none");
    return last;
  }

 private:
  [[noreturn]] void fail(size_t where, const std::string& what) const {
    size_t line = 1, line_start = 0;
    for (size_t i = 0; i < where; ++i) {
      if (text_[i] == '\n') ++line, line_start = i + 1;
    }
    raise(ErrorKind::Value, "[ir text] line {}, column {}: {}", line, where - line_start + 1, what);
  }
  [[noreturn]] void fail_expected(std::string_view what) const { fail_expected(at_, what); }
  [[noreturn]] void fail_expected(size_t where, std::string_view what) const {
    std::string got = "the end of the text";
    if (where < text_.size()) {
      size_t end = where;
      while (end < text_.size() && is_word(text_[end])) ++end;
      if (end == where) ++end;
      got = text_[where] == '\n' ? "the end of the line" : fmt::format("'{}'", text_.substr(where, end - where));
    }
    fail(where, fmt::format("expected {}, got {}", what, got));
  }

  bool at_line_end() const { return at_ == text_.size() || text_[at_] == '\n'; }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
    if (at_ < text_.size() && text_[at_] == ';')
      while (!at_line_end()) ++at_;
  }
  void skip_blank_lines() {
    for (skip_spaces(); at_ < text_.size() && text_[at_] == '\n'; skip_spaces()) ++at_;
  }
  bool accept(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, std::string_view what) {
    if (!accept(c)) fail_expected(what);
  }
  std::string_view word(std::string_view what) {
    skip_spaces();
    const size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    if (at_ == start) fail_expected(what);
    return text_.substr(start, at_ - start);
  }

  UOp parse_node() {
    const size_t start = at_;
    expect('%', "a node name such as %0");
    const std::string_view node_name = word("a node name such as %0");
    if (nodes_.contains(node_name)) fail(start, fmt::format("%{} is defined twice", node_name));
    expect('=', "'=' after the node's name");
    const Op op = parse_name<Op>(kNumOps, "an op such as ADD");
    const DType dtype = parse_name<DType>(kNumDTypes, "a dtype such as float32");
    std::vector<UOp> src;
    if (accept('(')) parse_sources(src);
    skip_spaces();
    Arg arg;
    if (!at_line_end()) arg = parse_arg(0);
    UOp node;
    try {
      node = op == Op::Buffer ? parse_buffer(dtype, arg, start) : UOp::make(op, dtype, src, std::move(arg));
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Value) throw;
      // A wrong shape or argument is found by the node's own checks; here it is the text's fault, so the words that say
      // where in whit the check stands are left out.
      std::string_view what = e.what();
      constexpr std::string_view kPrefix = "internal error: ";
      if (what.starts_with(kPrefix)) what = what.substr(kPrefix.size(), what.rfind(" [") - kPrefix.size());
      fail(start, std::string(what));
    }
    nodes_.emplace(node_name, node);
    return node;
  }

  // Ids in a text only say which BUFFERs are the same one.
  UOp parse_buffer(DType dtype, const Arg& arg, size_t start) {
    if (arg.kind() != Arg::Kind::List || arg.as_list().size() != 3 || is_weak(dtype) || arg.int_at(2) < 0)
      fail(start, "expected a BUFFER with a sized dtype and argument {id, \"device\", number of elements}");
    UOp& known = buffers_[arg.int_at(0)];
    if (!known) known = buffer(dtype, arg.int_at(2), arg.at(1).as_str());
    if (known.dtype() != dtype || known.arg().int_at(2) != arg.int_at(2) || !(known.arg().at(1) == arg.at(1)))
      fail(start, fmt::format("BUFFER {} has another dtype, device or size than before", arg.int_at(0)));
    return known;
  }

  // A value of an enum by its name.
  template <class E> E parse_name(int n_values, std::string_view what) {
    skip_spaces();
    const size_t start = at_;
    const std::string_view text = word(what);
    std::vector<std::string> all;
    for (int i = 0; i < n_values; ++i) {
      if (name(static_cast<E>(i)) == text) return static_cast<E>(i);
      all.emplace_back(name(static_cast<E>(i)));
    }
    fail(start, fmt::format("expected {}, got '{}'{}", what, text, did_you_mean(text, all)));
  }

  void parse_sources(std::vector<UOp>& src) {
    do {
      skip_spaces();
      const size_t start = at_;
      expect('%', "a source such as %0");
      const std::string_view source = word("a source such as %0");
      const auto it = nodes_.find(source);
      if (it == nodes_.end()) fail(start, fmt::format("%{} is not defined above", source));
      src.push_back(it->second);
    } while (accept(','));
    expect(')', "',' or ')' after a source");
  }

  Arg parse_arg(int depth) {
    skip_spaces();
    if (at_ == text_.size()) fail_expected("an argument");
    const char c = text_[at_];
    if (c == '"') return Arg(std::string_view(parse_string()));
    if (c == '[') return parse_ints();
    if (c == '{') return parse_list(depth);
    if (c == '-' || (c >= '0' && c <= '9')) return parse_number();
    const size_t start = at_;
    const std::string_view text = word("an argument such as 1, 1.5, \"text\", [1, 2] or {1, \"a\"}");
    if (text == "None") return {};
    if (text == "true" || text == "false") return text == "true";
    if (text == "Invalid") return Arg::invalid();
    if (text == "inf" || text == "nan") {
      at_ = start;
      return parse_number();
    }
    fail_expected(start, "an argument such as 1, 1.5, \"text\", [1, 2] or {1, \"a\"}");
  }

  Arg parse_number() {
    const size_t start = at_;
    if (text_.substr(at_).starts_with("nan")) {
      at_ += 3;
      if (at_ == text_.size() || text_[at_] != ':') return std::bit_cast<double>(kUsualNaN);
      ++at_;
      uint64_t bits = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), bits, 16);
      if (error != std::errc() || !std::isnan(std::bit_cast<double>(bits))) fail_expected("the bits of a NaN in hexadecimal");
      at_ = static_cast<size_t>(end - text_.data());
      return std::bit_cast<double>(bits);
    }
    size_t end_of_number = at_;
    while (end_of_number < text_.size() &&
           (is_word(text_[end_of_number]) || std::string_view("+-.").find(text_[end_of_number]) != std::string_view::npos))
      ++end_of_number;
    const char* const first = text_.data() + start;
    const char* const last = text_.data() + end_of_number;
    at_ = end_of_number;
    if (text_.substr(start, end_of_number - start).find_first_of(".einf") == std::string_view::npos) {
      int64_t v = 0;
      const auto [end, error] = std::from_chars(first, last, v);
      if (error == std::errc::result_out_of_range) fail(start, "expected an integer of 64 bits, got a larger one");
      if (error != std::errc() || end != last) fail_expected(start, "a number");
      return v;
    }
    double v = 0;
    const auto [end, error] = std::from_chars(first, last, v);
    if (error != std::errc() || end != last) fail_expected(start, "a number");
    return v;
  }

  std::string parse_string() {
    const size_t start = at_++;
    std::string out;
    for (;;) {
      if (at_line_end()) fail(start, "expected a closing '\"' for this text");
      const char c = text_[at_++];
      if (c == '"') return out;
      if (c != '\\') {
        out.push_back(c);
        continue;
      }
      const char e = at_ < text_.size() ? text_[at_++] : '\0';
      constexpr std::string_view kEscapes = "\"\\nt", kMeanings = "\"\\\n\t";
      if (const size_t i = kEscapes.find(e); i != std::string_view::npos) {
        out.push_back(kMeanings[i]);
        continue;
      }
      unsigned byte = 0;
      const size_t digits = at_;
      const char* const last = text_.data() + digits + 2;
      if (e != 'x' || digits + 2 > text_.size() || std::from_chars(text_.data() + digits, last, byte, 16).ptr != last)
        fail(digits - 2 + (e == '\0'), "expected one of the escapes \\\" \\\\ \\n \\t \\xNN");
      at_ = digits + 2;
      out.push_back(static_cast<char>(byte));
    }
  }

  Arg parse_ints() {
    ++at_;
    Dims ints;
    if (accept(']')) return Arg(ints);
    do {
      skip_spaces();
      const size_t start = at_;
      const Arg v = at_ < text_.size() && (text_[at_] == '-' || is_word(text_[at_])) ? parse_number() : Arg();
      if (!v.is_int()) fail_expected(start, "an integer in [..]");
      ints.push_back(v.as_int());
    } while (accept(','));
    expect(']', "',' or ']' in a list of integers");
    return Arg(ints);
  }

  Arg parse_list(int depth) {
    if (depth == kMaxListDepth) fail(at_, fmt::format("expected at most {} lists inside each other", kMaxListDepth));
    ++at_;
    SmallVec<Arg, 4> list;
    if (!accept('}')) {
      do list.push_back(parse_arg(depth + 1));
      while (accept(','));
      expect('}', "',' or '}' in a list");
    }
    return Arg(std::span<const Arg>(list));
  }

  std::string_view text_;
  size_t at_ = 0;
  std::unordered_map<std::string_view, UOp> nodes_;
  std::unordered_map<int64_t, UOp> buffers_;
};

}  // namespace

void detail::append_node_text(std::string& out, const Node* n, int64_t number, const std::unordered_map<const Node*, int64_t>& number_of) {
  out += fmt::format("%{} = {} {}", number, n->op, n->dtype);
  const char* separator = " (";
  for (const Node* s : n->src()) {
    out += fmt::format("{}%{}", separator, number_of.at(s));
    separator = ", ";
  }
  if (n->n_src) out.push_back(')');
  if (!n->arg) return;
  out.push_back(' ');
  append_arg(out, n->arg);
}

std::string to_text(std::span<const UOp> roots) {
  std::string out;
  std::unordered_map<const Node*, int64_t> number_of;
  std::unordered_map<int64_t, int64_t> buffer_ids;
  for (const Node* n : toposort(roots)) {
    const int64_t number = static_cast<int64_t>(number_of.size());
    number_of.emplace(n, number);
    if (n->op == Op::Buffer) {
      const int64_t id = buffer_ids.try_emplace(n->arg.int_at(0), static_cast<int64_t>(buffer_ids.size())).first->second;
      out += fmt::format("%{} = BUFFER {} ", number, n->dtype);
      append_arg(out, Arg::list({id, n->arg.at(1), n->arg.at(2)}));
    } else {
      detail::append_node_text(out, n, number, number_of);
    }
    out.push_back('\n');
  }
  return out;
}

std::string to_text(const UOp& root) { return to_text(std::span(&root, 1)); }

std::string to_formula(const UOp& u) {
  constexpr std::pair<Op, const char*> kInfix[] = {{Op::Add, "+"},      {Op::Sub, "-"}, {Op::Mul, "*"},   {Op::FloorDiv, "//"},
                                                   {Op::FloorMod, "%"}, {Op::And, "&"}, {Op::CmpLt, "<"}, {Op::CmpNe, "!="},
                                                   {Op::CmpEq, "=="},   {Op::Or, "|"},  {Op::Xor, "^"}};
  std::unordered_map<const Node*, std::string> texts;
  for (const Node* n : toposort(u)) {
    std::string& text = texts[n];
    const auto infix = std::ranges::find_if(kInfix, [&](const auto& i) { return i.first == n->op; });
    if (n->op == Op::Const) {
      text = to_text(n->arg);
    } else if (n->op == Op::Variable) {
      text = n->arg.at(0).as_str();
    } else if (n->op == Op::Bind) {
      text = texts[n->src()[0]];
    } else if (infix != std::end(kInfix)) {
      text = "(" + texts[n->src()[0]] + infix->second + texts[n->src()[1]] + ")";
    } else {
      for (const Node* s : n->src()) text += (text.empty() ? "" : ", ") + texts[s];
      text = fmt::format("{}({})", n->op, text);
    }
  }
  const std::string& all = texts[u.node()];
  return all[0] == '(' ? all.substr(1, all.size() - 2) : all;
}

std::string to_text(const Arg& arg) {
  std::string out;
  append_arg(out, arg);
  return out;
}

UOp parse_text(std::string_view text) { return Parser(text).parse(); }

}  // namespace whit
