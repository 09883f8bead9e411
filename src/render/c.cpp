// C text for clang and gcc (GNU C11: vector extensions, statement expressions).
//
// Every node of the list becomes one constant vN, so the text reads like the list. A vector of bools is a vector of i8
// masks (0 or -1), a scalar bool is a _Bool, in memory a bool is a byte of 0 or 1. The work is done by an inlined body
// whose pointers are `restrict`, the one way to tell clang that two slots never overlap. Requirements:
//  1. Bit for bit what LLVM's text computes: integer sums wrap through unsigned types, whatever could be undefined is
//     asked first, and a fused multiply-add exists only where the program has one.
//  2. Ops without a vector form are written lane by lane (LANES), which both compilers turn back into vectors.
#include <bit>
#include <set>

#include "ir/build.h"
#include "render/writer.h"

namespace whit::render {
namespace {

// {t} the operands' type, {u} the unsigned type in which they wrap, {m} the signed int type of the same width (a mask),
// {f} the suffix of a math function, {gt} what MAX (MIN) prefers, {n} the lanes, {k1} the number 1 as {t}, {width} of an int.
constexpr TextRow kRows[] = {
    {Op::Neg, kFloat, nullptr, "-{0}", "-{0}"},
    {Op::Neg, kInt, nullptr, "({t})-({u}){0}", "({t})-({u}){0}"},
    {Op::Recip, kFloat, nullptr, "{k1} / {0}", "{k1} / {0}"},
    {Op::Sqrt, kFloat, nullptr, "__builtin_sqrt{f}({0})", "SQRT({t}, {n}, {f}, {0})"},
    {Op::Sin, kFloat, nullptr, "__builtin_sin{f}({0})"},
    {Op::Pow, kFloat, nullptr, "__builtin_pow{f}({0}, {1})"},
    {Op::Trunc, kFloat, nullptr, "__builtin_trunc{f}({0})", "TRUNC({t}, {n}, {f}, {0})"},
    {Op::Add, kFloat, nullptr, "{0} + {1}", "{0} + {1}"},
    {Op::Add, kInt, nullptr, "({t})(({u}){0} + ({u}){1})", "({t})(({u}){0} + ({u}){1})"},
    {Op::Sub, kFloat, nullptr, "{0} - {1}", "{0} - {1}"},
    {Op::Sub, kInt, nullptr, "({t})(({u}){0} - ({u}){1})", "({t})(({u}){0} - ({u}){1})"},
    {Op::Mul, kFloat, nullptr, "{0} * {1}", "{0} * {1}"},
    {Op::Mul, kInt, nullptr, "({t})(({u}){0} * ({u}){1})", "({t})(({u}){0} * ({u}){1})"},
    {Op::Fdiv, kFloat, nullptr, "{0} / {1}", "{0} / {1}"},
    // With a number y on the right, y >= x is false only for a larger or a NaN x.
    {kMaxMin, kFloat, right_is_a_number, "{1} {gt}= {0} ? {1} : {0}", "CHOOSE({t}, {m}, {1} {gt}= {0}, {1}, {0})"},
    {kMaxMin, kFloat, nullptr, "{0} {gt} {1} || {0} != {0} ? {0} : {1}", "CHOOSE({t}, {m}, ({0} {gt} {1}) | ({0} != {0}), {0}, {1})"},
    {kMaxMin, kInt, nullptr, "{0} {gt} {1} ? {0} : {1}", "CHOOSE({t}, {m}, {0} {gt} {1}, {0}, {1})"},
    {Op::Cdiv, kInt, divisor_is_safe, "({t})({0} / {1})", "{0} / {1}"},
    {Op::Cdiv, kSigned, nullptr, "{1} == 0 ? 0 : {1} == -1 ? ({t})-({u}){0} : ({t})({0} / {1})"},
    {Op::Cdiv, kUnsigned, nullptr, "{1} == 0 ? 0 : ({t})({0} / {1})"},
    {Op::Cmod, kInt, divisor_is_safe, "({t})({0} % {1})", "{0} % {1}"},
    {Op::Cmod, kSigned, nullptr, "{1} == 0 ? {0} : {1} == -1 ? 0 : ({t})({0} % {1})"},
    {Op::Cmod, kUnsigned, nullptr, "{1} == 0 ? {0} : ({t})({0} % {1})"},
    {Op::Cmod, kFloat, nullptr, "__builtin_fmod{f}({0}, {1})"},
    {kOrOfBools, kBool, nullptr, "{0} | {1}", "{0} | {1}"},
    {kAndOfBools, kBool, nullptr, "{0} & {1}", "{0} & {1}"},
    {kXorOfBools, kBool, nullptr, "{0} ^ {1}", "{0} ^ {1}"},
    {kAndNotOfBools, kBool, nullptr, "{0} & !{1}", "{0} & ~{1}"},
    {Op::And, kInt, nullptr, "{0} & {1}", "{0} & {1}"},
    {Op::Or, kInt, nullptr, "{0} | {1}", "{0} | {1}"},
    {Op::Xor, kInt, nullptr, "{0} ^ {1}", "{0} ^ {1}"},
    {Op::Shl, kInt, shift_is_in_range, "({t})(({u}){0} << {1})", "({t})(({u}){0} << ({u}){1})"},
    {Op::Shl, kInt, nullptr, "({u}){1} < {width} ? ({t})(({u}){0} << {1}) : 0",
     "CHOOSE({t}, {m}, ({u}){1} < {width}, ({u}){0} << (({u}){1} & ({width} - 1)), ({u}){})"},
    {Op::Shr, kInt, shift_is_in_range, "({t})({0} >> {1})", "{0} >> {1}"},
    {Op::Shr, kSigned, nullptr, "({t})({0} >> (({u}){1} < {width} ? {1} : {width} - 1))",
     "{0} >> CHOOSE({t}, {m}, ({u}){1} < {width}, {1}, ({t}){} + ({width} - 1))"},
    {Op::Shr, kUnsigned, nullptr, "({u}){1} < {width} ? ({t})({0} >> {1}) : 0",
     "CHOOSE({t}, {m}, {1} < {width}, {0} >> ({1} & ({width} - 1)), ({t}){})"},
    {Op::CmpLt, kFloat | kInt, nullptr, "{0} < {1}", "MASK({n}, {0} < {1})"},
    {Op::CmpLt, kBool, nullptr, "!{0} & {1}", "~{0} & {1}"},
    {Op::CmpNe, kFloat | kInt, nullptr, "{0} != {1}", "MASK({n}, {0} != {1})"},
    {Op::CmpEq, kFloat | kInt, nullptr, "{0} == {1}", "MASK({n}, {0} == {1})"},
    {Op::CmpEq, kBool, nullptr, "{0} == {1}", "~({0} ^ {1})"},
    {Op::Where, 0xFF, nullptr, "{0} ? {1} : {2}", "CHOOSE({t}, {m}, __builtin_convertvector({0}, {m}), {1}, {2})"},
    {Op::MulAcc, kFloat, nullptr, "__builtin_fma{f}({0}, {1}, {2})", "FMA({t}, {n}, {f}, {0}, {1}, {2})"},
    {Op::MulAcc, kInt, nullptr, "({t})(({u}){0} * ({u}){1} + ({u}){2})", "({t})(({u}){0} * ({u}){1} + ({u}){2})"},
    {Op::MulAcc, kBool, nullptr, "({0} & {1}) | {2}", "({0} & {1}) | {2}"},
};

constexpr const char* kPrologue = R"(#pragma GCC diagnostic ignored "-Wpsabi"
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Float16 f16;
typedef float f32;
typedef double f64;
#define LANES(T, n, e) ({ T r_; for (int l = 0; l < n; ++l) r_[l] = (e); r_; })
#define CHOOSE(T, M, c, x, y) ({ M m_ = (M)(c); (T)((m_ & (M)(x)) | (~m_ & (M)(y))); })
#define MASK(n, c) __builtin_convertvector(c, i8x##n)
#define BITS(T, x) ({ __typeof__(x) x_ = (x); T r_; __builtin_memcpy(&r_, &x_, sizeof r_); r_; })
#define TO_I64(x) ((x) >= 0x1p63 ? 0x7FFFFFFFFFFFFFFF : (x) >= -0x1p63 ? (i64)(x) : (x) != (x) ? 0 : -0x7FFFFFFFFFFFFFFF - 1)
#define TO_I64S(T, M, n, x) ({ \
  const T most_ = (T){} + 0x1p63f; \
  const M in_ = (x >= -most_) & (x < most_); \
  const i64x##n v_ = __builtin_convertvector((T)(in_ & (M)(x)), i64x##n); \
  v_ | (__builtin_convertvector(x >= most_, i64x##n) & 0x7FFFFFFFFFFFFFFF) | \
      (__builtin_convertvector(x < -most_, i64x##n) & (-0x7FFFFFFFFFFFFFFF - 1)); })
#ifdef __clang__
#define SQRT(T, n, f, x) __builtin_elementwise_sqrt(x)
#define TRUNC(T, n, f, x) __builtin_elementwise_trunc(x)
#define FMA(T, n, f, x, y, z) __builtin_elementwise_fma(x, y, z)
#else
#define SQRT(T, n, f, x) LANES(T, n, __builtin_sqrt##f((x)[l]))
#define TRUNC(T, n, f, x) LANES(T, n, __builtin_trunc##f((x)[l]))
#define FMA(T, n, f, x, y, z) LANES(T, n, __builtin_fma##f((x)[l], (y)[l], (z)[l]))
#endif
)";

std::string scalar_type(DType dt) {
  switch (dt) {
    case DType::Bool: return "_Bool";
    case DType::Float16: return "f16";
    case DType::Float32: return "f32";
    case DType::Float64: return "f64";
    default:  // float8 and bfloat16 are their bits
      return fmt::format("{}{}", is_unsigned(dt) || is_float(dt) ? 'u' : 'i', bit_width(dt));
  }
}
std::string memory_type(DType dt) { return dt == DType::Bool ? "i8" : scalar_type(dt); }
std::string type_of(DType dt, int64_t lanes) { return lanes ? fmt::format("{}x{}", memory_type(dt), lanes) : scalar_type(dt); }
std::string int_type(char kind, int bytes, int64_t lanes) {
  return lanes ? fmt::format("{}{}x{}", kind, 8 * bytes, lanes) : fmt::format("{}{}", kind, 8 * bytes);
}

std::string float_literal(DType dt, uint64_t bits) {
  const bool is_f32 = dt == DType::Float32;
  const double v = is_f32 ? static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))) : std::bit_cast<double>(bits);
  const char* f = is_f32 ? "f" : "";
  const char* sign = bits >> (is_f32 ? 31 : 63) ? "-" : "";
  // A NaN's payload, which the sign and the quiet bit are not part of.
  if (v != v) return fmt::format("({}__builtin_nan{}(\"0x{:x}\"))", sign, f, bits & (is_f32 ? 0x3FFFFF : 0x7FFFFFFFFFFFF));
  if (v - v != 0) return fmt::format("({}__builtin_inf{}())", sign, f);
  return *sign ? fmt::format("({:a}{})", v, f) : fmt::format("{:a}{}", v, f);
}
std::string literal_of_bits(DType dt, uint64_t bits) {
  switch (dt) {
    case DType::Bool: return bits ? "1" : "0";
    case DType::Float16: return fmt::format("BITS(f16, (u16)0x{:04x})", bits);
    case DType::Float32:
    case DType::Float64: return float_literal(dt, bits);
    case DType::UInt64: return fmt::format("{}ull", bits);
    case DType::Int64:
    case DType::WeakInt: {
      const int64_t v = static_cast<int64_t>(bits);
      if (v == INT64_MIN) return "(-9223372036854775807ll - 1)";
      return v < 0 ? fmt::format("({}ll)", v) : fmt::format("{}ll", v);
    }
    default: {
      const int unused = 64 - bit_width(dt);
      if (is_unsigned(dt) || is_float(dt)) return fmt::format("({}){}u", scalar_type(dt), bits << unused >> unused);
      const int64_t v = static_cast<int64_t>(bits << unused) >> unused;
      return v == INT32_MIN ? "(-2147483647 - 1)" : fmt::format("({}){}", scalar_type(dt), v);
    }
  }
}
// A scalar's text as all lanes of a vector; a bool becomes a mask.
std::string spread_text(DType dt, int64_t lanes, const std::string& scalar) {
  const std::string one = dt == DType::Bool ? fmt::format("-{}", scalar) : scalar;
  // In parentheses, because a macro would take the commas apart.
  return fmt::format("(({}){{{}}})", type_of(dt, lanes), listed(lanes, [&](int64_t) { return one; }));
}

struct RowText final : Filler {
  using Filler::Filler;
  void append(std::string& out, std::string_view key) const override { out += value(key); }
  std::string value(std::string_view key) const {
    const int bytes = element_bytes(dtype);
    if (key == "t") return type_of(dtype, lanes);
    // Scalars narrower than int would be promoted to it, and an int must not overflow.
    if (key == "u") return int_type('u', lanes ? bytes : std::max(bytes, 4), lanes);
    if (key == "m") return int_type('i', bytes, lanes);
    if (key == "f") return dtype == DType::Float32 ? "f" : "";
    if (key == "gt") return op == Op::Max ? ">" : "<";
    if (key == "n") return fmt::format("{}", lanes);
    if (key == "width") return fmt::format("{}", bit_width(dtype));
    if (key == "k1") {
      const std::string one = dtype == DType::Float32 ? "1.0f" : dtype == DType::Float64 ? "1.0" : "1";
      return lanes ? spread_text(dtype, lanes, one) : one;
    }
    return operand[static_cast<size_t>(key[0] - '0')];
  }
};

class CWriter final : public Writer {
 public:
  explicit CWriter(const UOp& program) : Writer(program, "C", kRows, "") {}

  std::string run(std::string_view kernel_name) {
    entry();
    walk();
    std::string out = kPrologue;
    for (const std::string& t : vector_types_) out += t;
    if (p_.n_zero_bytes) out += fmt::format("static const char zeros[{}] __attribute__((aligned(64))) = {{0}};\n", p_.n_zero_bytes);
    std::string formal, actual;
    for (const KernelSignature::Buffer& b : p_.signature.buffers) {
      formal += fmt::format("{}{}* restrict data{}, ", b.is_written ? "" : "const ", memory_type(b.dtype), b.slot);
      actual += fmt::format("buffers[{}], ", b.slot);
    }
    out += fmt::format(
        "\nstatic inline __attribute__((always_inline)) void {}_body({}const i64* restrict variables, char* restrict "
        "scratch, i64 first, i64 last) {{\n{}}}\n\n",
        kernel_name, formal, body_);
    // Two types of 64 bits are not one type in C: the ABI says int64_t, which is long on some systems.
    out += fmt::format(
        "void {0}(void* const* buffers, const __INT64_TYPE__* variables, void* scratch, __INT64_TYPE__ first, "
        "__INT64_TYPE__ last) {{\n  {0}_body({1}(const i64*)variables, (char*)scratch, first, last);\n}}\n",
        kernel_name, actual);
    return out;
  }

 private:
  // ---- values
  // Names the type of a vector and makes sure that it is declared.
  std::string type(DType dt, int64_t lanes) {
    if (lanes) declare(memory_type(dt), element_bytes(dt), lanes);
    return type_of(dt, lanes);
  }
  void declare(const std::string& element, int bytes, int64_t lanes) {
    WHIT_CHECK(std::has_single_bit(static_cast<uint64_t>(lanes)), "C has no vectors of {} lanes", lanes);
    vector_types_.insert(
        fmt::format("typedef {0} {0}x{1} __attribute__((vector_size({2})));\n"
                    "typedef {0} {0}x{1}_u __attribute__((vector_size({2}), aligned({3}), may_alias));\n",
                    element, lanes, bytes * lanes, bytes));
  }
  // The types that rows, masks and conversions of such a vector mention.
  void declare_family(DType dt, int64_t lanes) {
    if (!lanes) return;
    type(dt, lanes);
    for (const char kind : {'i', 'u'}) declare(fmt::format("{}{}", kind, 8 * element_bytes(dt)), element_bytes(dt), lanes);
    declare("i8", 1, lanes);
  }
  std::string named(DType dt, int64_t lanes, const std::string& text) override { return named("v", dt, lanes, text); }
  std::string named(const char* stem, DType dt, int64_t lanes, const std::string& text) {
    const std::string d = fresh(stem);
    line("const {} {} = {};", type(dt, lanes), d, text);
    return d;
  }
  std::string spread(DType dt, int64_t lanes, const std::string& scalar) override { return named("s", dt, lanes, spread_text(dt, lanes, scalar)); }
  std::string constant_text(DType dt, int64_t lanes, uint64_t bits) override {
    const std::string literal = literal_of_bits(dt, bits);
    if (!lanes) return literal;
    type(dt, lanes);
    return spread_text(dt, lanes, literal);
  }
  std::string lanes_text(DType dt, int64_t lanes) override {
    return fmt::format("(({}){{{}}})", type(dt, lanes), listed(lanes, [](int64_t i) { return std::to_string(i); }));
  }
  std::string lane_text(DType dt, int64_t, const std::string& v, int64_t i) override {
    return fmt::format("{}[{}]{}", v, i, dt == DType::Bool ? " != 0" : "");
  }
  std::string vec_text(const Node* n) override {
    const char* const sign = n->dtype == DType::Bool ? "-" : "";
    return fmt::format("({}){{{}}}", type(n->dtype, lanes_of(n)), listed(n->n_src, [&](int64_t i) { return sign + operand(n->src()[i], 0); }));
  }
  std::string half_text(DType, int64_t lanes, const std::string& v, int64_t first) override {
    return fmt::format("__builtin_shufflevector({0}, {0}, {1})", v, listed(lanes / 2, [&](int64_t i) { return std::to_string(first + i); }));
  }

  // ---- structure
  void entry() {
    for (size_t i = 0; i < p_.variables.size(); ++i) {
      const Node* n = p_.variables[i];
      line("const {} var{} = ({})variables[{}];", scalar_type(n->dtype), i, scalar_type(n->dtype), i);
      bind(n, fmt::format("var{}", i));
    }
    for (const Node* n : p_.scratch) {
      const int64_t id = n->arg.int_at(0);
      const std::string t = memory_type(n->dtype);
      line("{}* const scratch{} = ({}*)(scratch + {});", t, id, t, p_.scratch_offset.at(id));
    }
    for (const Node* n : p_.regs) line("{} acc{};", type(n->dtype, lanes_of(n)), n->arg.int_at(0));
  }

  void open_loop(const Node* n) override {
    const std::string r = fresh("r");
    if (const auto it = p_.global_offset.find(n); it != p_.global_offset.end()) {
      line("const i64 {0}_first = first > {1} ? first - {1} : 0, {0}_end = last - {1} < {2} ? last - {1} : {2};", r, it->second, range_size(n));
      line("for (i64 {0} = {0}_first; {0} < {0}_end; ++{0}) {{", r);
    } else {
      const std::string from = n->n_src > 1 ? operand(n->src()[1], 0) : "0";
      line("for (i64 {0} = {2}; {0} < {1}; ++{0}) {{", r, n->n_src > 0 ? operand(n->src()[0], 0) : fmt::format("{}", range_size(n)), from);
    }
    ++depth_;
    if (bit_width(n->dtype) == 64) return bind(n, r);
    line("const {} {}_narrow = ({}){};", scalar_type(n->dtype), r, scalar_type(n->dtype), r);
    bind(n, r + "_narrow");
  }

  void open_if(const Node* n) override {
    line("if ({}) {{", operand(n->src()[0], 0));
    ++depth_;
  }
  void close(const Node*) override {
    --depth_;
    line("}}");
  }

  // ---- memory
  // The element that lane l accesses.
  std::string lane_element(const Access& a) {
    return a.contiguous ? fmt::format("{}[{} + l]", base_of(a.storage), operand(a.index, 0))
                        : fmt::format("{}[{}[l]]", base_of(a.storage), operand(a.index, a.lanes));
  }
  void load(const Node* n, const Access& a) override {
    const std::string t = type(n->dtype, a.lanes);
    declare_family(n->dtype, a.lanes);
    const bool is_bool = n->dtype == DType::Bool;
    if (a.storage->op == Op::Reg) return define(n, base_of(a.storage));
    if (a.lane_by_lane()) {
      std::string e = lane_element(a);
      if (is_bool) e = fmt::format("-({} != 0)", e);
      if (a.gate) e = fmt::format("{}[l] ? {} : 0", operand(a.gate, a.lanes), e);
      return define(n, fmt::format("LANES({}, {}, {})", t, a.lanes, e));
    }
    const std::string m = a.lanes ? t + "_u" : memory_type(n->dtype);
    std::string at = fmt::format("{} + {}", base_of(a.storage), operand(a.index, 0));
    if (a.gate) at = fmt::format("*({} ? (const {}*)({}) : (const {}*)zeros)", operand(a.gate, 0), m, at, m);
    else at = a.lanes ? fmt::format("*(const {}*)({})", m, at) : fmt::format("{}[{}]", base_of(a.storage), operand(a.index, 0));
    define(n, is_bool ? fmt::format("({}) != 0", at) : at);
  }
  void store(const Node* n, const Access& a) override {
    const Node* v = n->src()[1];
    declare_family(v->dtype, a.lanes);
    const std::string value = operand(v, a.lanes);
    const bool is_bool = v->dtype == DType::Bool;
    if (a.storage->op == Op::Reg) return line("{} = {};", base_of(a.storage), value);
    if (a.lane_by_lane())
      return line("for (int l = 0; l < {}; ++l) {}{} = {}[l]{};", a.lanes, a.gate ? fmt::format("if ({}[l]) ", operand(a.gate, a.lanes)) : "",
                  lane_element(a), value, is_bool ? " != 0" : "");
    const std::string gate = a.gate ? fmt::format("if ({}) ", operand(a.gate, 0)) : "";
    if (!a.lanes) return line("{}{}[{}] = {};", gate, base_of(a.storage), operand(a.index, 0), value);
    line("{}*({}_u*)({} + {}) = {}{};", gate, type(v->dtype, a.lanes), base_of(a.storage), operand(a.index, 0), value,
         is_bool ? fmt::format(" & {}", spread_text(DType::Int8, a.lanes, "1")) : "");
  }

  // ---- arithmetic
  std::string apply(const TextRow& row, Op op, DType dt, int64_t lanes, std::span<const std::string> operands, bool scalar_condition) override {
    RowText text(op, dt, lanes, operands);
    declare_family(dt, lanes);
    std::string out;
    if (!lanes || scalar_condition || row.vector_text) {
      expand(out, !lanes || scalar_condition ? row.text : row.vector_text, text);
      return out;
    }
    text.lanes = 0;
    for (std::string& one : text.operand) one += "[l]";
    expand(out, row.text, text);
    return fmt::format("LANES({}, {}, {})", type_of(dt, lanes), lanes, out);
  }
  std::string cast_text(DType from, DType to, int64_t lanes, const std::string& v) override {
    for (const DType dt : {from, to, DType::Int64}) declare_family(dt, lanes);
    if (lanes) return vector_cast(from, to, lanes, v);
    if (to == DType::Bool) return fmt::format("{} != 0", v);
    if (is_float(from) && !is_float(to)) return fmt::format("({})TO_I64({})", scalar_type(to), v);
    return fmt::format("({}){}", scalar_type(to), v);
  }
  std::string vector_cast(DType from, DType to, int64_t lanes, const std::string& v) {
    const std::string t = type_of(to, lanes);
    if (from == to) return v;
    if (to == DType::Bool && is_float(from)) return fmt::format("MASK({}, {} != {})", lanes, v, spread_text(from, lanes, literal_of_bits(from, 0)));
    if (to == DType::Bool) return fmt::format("MASK({}, {} != 0)", lanes, v);
    if (from == DType::Bool) return fmt::format("__builtin_convertvector(-{}, {})", v, t);
    if (is_float(from) && !is_float(to))
      return fmt::format("__builtin_convertvector(TO_I64S({}, {}, {}, {}), {})", type_of(from, lanes), int_type('i', element_bytes(from), lanes),
                         lanes, v, t);
    return fmt::format("__builtin_convertvector({}, {})", v, t);
  }

  void bitcast(const Node* n) override {
    const Node* s = n->src()[0];
    const int64_t lanes = lanes_of(s);
    declare_family(s->dtype, lanes);
    declare_family(n->dtype, lanes_of(n));
    std::string v = operand(s, lanes);
    if (s->dtype == n->dtype) return define(n, v);
    if (!lanes) {
      if (s->dtype == DType::Bool) v = fmt::format("(u8){}", v);
      return define(n, n->dtype == DType::Bool ? fmt::format("BITS(u8, {}) != 0", v) : fmt::format("BITS({}, {})", scalar_type(n->dtype), v));
    }
    if (s->dtype == DType::Bool) v = fmt::format("-{}", v);
    v = fmt::format("({}){}", type_of(n->dtype, lanes_of(n)), v);
    define(n, n->dtype == DType::Bool ? fmt::format("{} != 0", v) : v);
  }

  std::set<std::string> vector_types_;
};

}  // namespace

std::string render_c(const UOp& program, std::string_view kernel_name, const Target&) { return CWriter(program).run(kernel_name); }

}  // namespace whit::render
