// LLVM IR text, opaque pointers, LLVM 19.
//
// Every node of the list becomes one value %vN; bools are i1, in memory i8; float8 and bfloat16 are carried as their
// bits. Loops are bottom-tested with a phi. Registers are allocas at the entry, which mem2reg turns into phis.
// Requirements:
//  1. No instruction may be undefined or poison for any operand: rows with a condition use the plain instruction, the
//     others choose a harmless operand first. No fast-math, nsw or nuw flag but on loop counters.
//  2. A load whose gate is one scalar reads from a block of zeros when it is off, so it needs no branch.
//  3. Each buffer has an alias scope: two slots never overlap, so loads may move over stores to other slots.
#include <algorithm>
#include <array>
#include <bit>

#include "ir/build.h"
#include "render/writer.h"

namespace whit::render {
namespace {

// {d} the result, {t} the operands' type, {b} the type of a comparison, {s} the suffix of an intrinsic, {max} and {g}
// "max" and "g" of MAX, "min" and "l" of MIN, {k1} the number
// 1 as {t}, {width} and {width-1} of an int.
// The freeze keeps LLVM from dividing by one arm of the select for all lanes: an arm with a 0 in any lane counts as undefined
// there, and the other one would be taken.
constexpr const char* kQuotient =
    "{d}.zero = icmp eq {t} {1}, {k0}\n"
    "{d}.minus = icmp eq {t} {1}, {k-1}\n"
    "{d}.odd = or {b} {d}.zero, {d}.minus\n"
    "{d}.safe = select {b} {d}.odd, {t} {k1}, {t} {1}\n{d}.den = freeze {t} {d}.safe\n"
    "{d}.quot = sdiv {t} {0}, {d}.den\n"
    "{d}.neg = sub {t} {k0}, {0}\n"
    "{d}.some = select {b} {d}.minus, {t} {d}.neg, {t} {d}.quot\n"
    "{d} = select {b} {d}.zero, {t} {k0}, {t} {d}.some";
constexpr const char* kRemainder =
    "{d}.zero = icmp eq {t} {1}, {k0}\n"
    "{d}.minus = icmp eq {t} {1}, {k-1}\n"
    "{d}.odd = or {b} {d}.zero, {d}.minus\n"
    "{d}.safe = select {b} {d}.odd, {t} {k1}, {t} {1}\n{d}.den = freeze {t} {d}.safe\n"
    "{d}.rem = srem {t} {0}, {d}.den\n"
    "{d} = select {b} {d}.zero, {t} {0}, {t} {d}.rem";

// {1} is 2^63, {2} its negative. Written out, because llvm.fptosi.sat is slow for vectors.
constexpr const char* kToInt64 =
    "{d}.low = fcmp oge {t} {0}, {2}\n"
    "{d}.high = fcmp oge {t} {0}, {1}\n"
    "{d}.in = fcmp olt {t} {0}, {1}\n"
    "{d}.both = and {b} {d}.low, {d}.in\n"
    "{d}.safe = select {b} {d}.both, {t} {0}, {t} {k0}\n"
    "{d}.int = fptosi {t} {d}.safe to {i64}\n"
    "{d}.some = select {b} {d}.high, {i64} {most}, {i64} {d}.int\n"
    "{d}.under = fcmp olt {t} {0}, {2}\n"
    "{d} = select {b} {d}.under, {i64} {least}, {i64} {d}.some";

constexpr TextRow kRows[] = {
    {Op::Neg, kFloat, nullptr, "{d} = fneg {t} {0}"},
    {Op::Neg, kInt, nullptr, "{d} = sub {t} {k0}, {0}"},
    {Op::Recip, kFloat, nullptr, "{d} = fdiv {t} {k1}, {0}"},
    {Op::Sqrt, kFloat, nullptr, "{d} = call {t} @llvm.sqrt.{s}({t} {0})"},
    {Op::Sin, kFloat, nullptr, "{d} = call {t} @llvm.sin.{s}({t} {0})"},
    {Op::Pow, kFloat, nullptr, "{d} = call {t} @llvm.pow.{s}({t} {0}, {t} {1})"},
    {Op::Trunc, kFloat, nullptr, "{d} = call {t} @llvm.trunc.{s}({t} {0})"},
    {Op::Add, kFloat, nullptr, "{d} = fadd {t} {0}, {1}"},
    {Op::Add, kInt, nullptr, "{d} = add {t} {0}, {1}"},
    {Op::Sub, kFloat, nullptr, "{d} = fsub {t} {0}, {1}"},
    {Op::Sub, kInt, nullptr, "{d} = sub {t} {0}, {1}"},
    {Op::Mul, kFloat, nullptr, "{d} = fmul {t} {0}, {1}"},
    {Op::Mul, kInt, nullptr, "{d} = mul {t} {0}, {1}"},
    // Behind a fence: LLVM 19 takes lanes that are 0 / 0 for 0, and then a choice of 0 for them for needless.
    {Op::Fdiv, kFloat, nullptr, "{d}.q = fdiv {t} {0}, {1}\n{d} = call {t} @llvm.arithmetic.fence.{s}({t} {d}.q)"},
    // With a number y on the right, y >= x is false only for a larger or a NaN x.
    {kMaxMin, kFloat, right_is_a_number, "{d}.c = fcmp o{g}e {t} {1}, {0}\n{d} = select {b} {d}.c, {t} {1}, {t} {0}"},
    {kMaxMin, kFloat, nullptr,
     "{d}.c = fcmp o{g}t {t} {0}, {1}\n{d}.m = select {b} {d}.c, {t} {0}, {t} {1}\n{d}.n = fcmp uno {t} {0}, {0}\n"
     "{d} = select {b} {d}.n, {t} {0}, {t} {d}.m"},
    {kMaxMin, kSigned, nullptr, "{d} = call {t} @llvm.s{max}.{s}({t} {0}, {t} {1})"},
    {kMaxMin, kUnsigned, nullptr, "{d} = call {t} @llvm.u{max}.{s}({t} {0}, {t} {1})"},
    {Op::Cdiv, kSigned, divisor_is_safe, "{d} = sdiv {t} {0}, {1}"},
    {Op::Cdiv, kSigned, nullptr, kQuotient},
    {Op::Cdiv, kUnsigned, divisor_is_safe, "{d} = udiv {t} {0}, {1}"},
    {Op::Cdiv, kUnsigned, nullptr,
     "{d}.zero = icmp eq {t} {1}, {k0}\n{d}.safe = select {b} {d}.zero, {t} {k1}, {t} {1}\n"
     "{d}.den = freeze {t} {d}.safe\n"
     "{d}.quot = udiv {t} {0}, {d}.den\n{d} = select {b} {d}.zero, {t} {k0}, {t} {d}.quot"},
    {Op::Cmod, kSigned, divisor_is_safe, "{d} = srem {t} {0}, {1}"},
    {Op::Cmod, kSigned, nullptr, kRemainder},
    {Op::Cmod, kUnsigned, divisor_is_safe, "{d} = urem {t} {0}, {1}"},
    {Op::Cmod, kUnsigned, nullptr,
     "{d}.zero = icmp eq {t} {1}, {k0}\n{d}.safe = select {b} {d}.zero, {t} {k1}, {t} {1}\n"
     "{d}.den = freeze {t} {d}.safe\n"
     "{d}.rem = urem {t} {0}, {d}.den\n{d} = select {b} {d}.zero, {t} {0}, {t} {d}.rem"},
    {Op::Cmod, kFloat, nullptr, "{d}.r = frem {t} {0}, {1}\n{d} = call {t} @llvm.arithmetic.fence.{s}({t} {d}.r)"},
    {kOrOfBools, kBool, nullptr, "{d} = or {t} {0}, {1}"},
    {kAndOfBools, kBool, nullptr, "{d} = and {t} {0}, {1}"},
    {kXorOfBools, kBool, nullptr, "{d} = xor {t} {0}, {1}"},
    {kAndNotOfBools, kBool, nullptr, "{d}.not = xor {t} {1}, {k1}\n{d} = and {t} {0}, {d}.not"},
    {Op::And, kInt, nullptr, "{d} = and {t} {0}, {1}"},
    {Op::Or, kInt, nullptr, "{d} = or {t} {0}, {1}"},
    {Op::Xor, kInt, nullptr, "{d} = xor {t} {0}, {1}"},
    {Op::Shl, kInt, shift_is_in_range, "{d} = shl {t} {0}, {1}"},
    {Op::Shl, kInt, nullptr,
     "{d}.in = icmp ult {t} {1}, {width}\n{d}.by = select {b} {d}.in, {t} {1}, {t} {k0}\n{d}.up = shl {t} {0}, {d}.by\n"
     "{d} = select {b} {d}.in, {t} {d}.up, {t} {k0}"},
    {Op::Shr, kSigned, shift_is_in_range, "{d} = ashr {t} {0}, {1}"},
    {Op::Shr, kSigned, nullptr,
     "{d}.in = icmp ult {t} {1}, {width}\n{d}.by = select {b} {d}.in, {t} {1}, {t} {width-1}\n{d} = ashr {t} {0}, "
     "{d}.by"},
    {Op::Shr, kUnsigned, shift_is_in_range, "{d} = lshr {t} {0}, {1}"},
    {Op::Shr, kUnsigned, nullptr,
     "{d}.in = icmp ult {t} {1}, {width}\n{d}.by = select {b} {d}.in, {t} {1}, {t} {k0}\n{d}.down = lshr {t} {0}, "
     "{d}.by\n"
     "{d} = select {b} {d}.in, {t} {d}.down, {t} {k0}"},
    {Op::CmpLt, kFloat, nullptr, "{d} = fcmp olt {t} {0}, {1}"},
    {Op::CmpLt, kSigned, nullptr, "{d} = icmp slt {t} {0}, {1}"},
    {Op::CmpLt, kUnsigned | kBool, nullptr, "{d} = icmp ult {t} {0}, {1}"},
    {Op::CmpNe, kFloat, nullptr, "{d} = fcmp une {t} {0}, {1}"},
    {Op::CmpNe, kInt, nullptr, "{d} = icmp ne {t} {0}, {1}"},
    {Op::CmpEq, kFloat, nullptr, "{d} = fcmp oeq {t} {0}, {1}"},
    {Op::CmpEq, kInt | kBool, nullptr, "{d} = icmp eq {t} {0}, {1}"},
    {Op::Where, 0xFF, nullptr, "{d} = select {c} {0}, {t} {1}, {t} {2}"},
    {Op::MulAcc, kFloat, nullptr, "{d} = call {t} @llvm.fma.{s}({t} {0}, {t} {1}, {t} {2})"},
    {Op::MulAcc, kUnsigned, [](const Node* n) { return n->dtype == DType::Float32; },
     "{d}.x = bitcast {t} {0} to {bf16}\n{d}.y = bitcast {t} {1} to {bf16}\n"
     "{d} = call {f32} @llvm.x86.avx512bf16.dpbf16ps.{bits}({f32} {2}, {bf16} {d}.x, {bf16} {d}.y)"},
    {Op::MulAcc, kUnsigned, [](const Node* n) { return n->dtype == DType::Int32; },
     "{d} = call {t} @llvm.x86.avx512.vpdpbusd.{bits}({t} {2}, {t} {0}, {t} {1})"},
    {Op::MulAcc, kInt, nullptr, "{d}.prod = mul {t} {0}, {1}\n{d} = add {t} {d}.prod, {2}"},
    {Op::MulAcc, kBool, nullptr, "{d}.prod = and {t} {0}, {1}\n{d} = or {t} {d}.prod, {2}"},
};

std::string_view scalar_type(DType dt) {
  switch (dt) {
    case DType::Float16: return "half";
    case DType::Float32: return "float";
    case DType::Float64: return "double";
    case DType::Bool: return "i1";
    default: break;
  }
  const int width = bit_width(dt);
  return width == 8 ? "i8" : width == 16 ? "i16" : width == 32 ? "i32" : "i64";
}
void append_vector(std::string& out, std::string_view type, int64_t lanes) {
  if (lanes) fmt::format_to(std::back_inserter(out), "<{} x {}>", lanes, type);
  else out += type;
}
std::string vector_of(std::string_view type, int64_t lanes) {
  std::string out;
  append_vector(out, type, lanes);
  return out;
}
std::string type_of(DType dt, int64_t lanes) { return vector_of(scalar_type(dt), lanes); }
std::string memory_type(DType dt, int64_t lanes) { return vector_of(dt == DType::Bool ? "i8" : scalar_type(dt), lanes); }
std::string suffix_of(DType dt, int64_t lanes) {
  const char kind = dt == DType::Float16 || dt == DType::Float32 || dt == DType::Float64 ? 'f' : 'i';
  const std::string scalar = fmt::format("{}{}", kind, bit_width(dt));
  return lanes ? fmt::format("v{}{}", lanes, scalar) : scalar;
}

// Floats are printed as the bits of a double (of a half for float16), so every NaN comes through.
std::string literal_of_bits(DType dt, uint64_t bits) {
  switch (dt) {
    case DType::Bool: return bits ? "true" : "false";
    case DType::Float16: return fmt::format("0xH{:04X}", bits);
    case DType::Float64: return fmt::format("0x{:016X}", bits);
    case DType::Float32: {
      const float v = std::bit_cast<float>(static_cast<uint32_t>(bits));
      uint64_t wide = std::bit_cast<uint64_t>(static_cast<double>(v));
      if (v != v) wide = (bits >> 31) << 63 | uint64_t{0x7FF} << 52 | (bits & 0x7FFFFF) << 29;
      return fmt::format("0x{:016X}", wide);
    }
    default: {
      const int unused = 64 - bit_width(dt);
      return fmt::format("{}", static_cast<int64_t>(bits << unused) >> unused);
    }
  }
}
std::string splat(DType dt, int64_t lanes, const std::string& literal) {
  return lanes ? fmt::format("splat ({} {})", scalar_type(dt), literal) : literal;
}
std::string number(DType dt, int64_t lanes, int64_t v) {
  uint64_t bits = static_cast<uint64_t>(v);
  if (dt == DType::Float32) bits = std::bit_cast<uint32_t>(static_cast<float>(v));
  if (dt == DType::Float64) bits = std::bit_cast<uint64_t>(static_cast<double>(v));
  return splat(dt, lanes, literal_of_bits(dt, bits));
}

struct RowText final : Filler {
  std::string dest;
  int64_t condition_lanes;
  RowText(std::string d, Op o, DType dt, int64_t n, std::span<const std::string> operands, bool scalar_condition = false)
      : Filler(o, dt, n, operands), dest(std::move(d)), condition_lanes(scalar_condition ? 0 : n) {}
  void append(std::string& out, std::string_view key) const override {
    if (key.size() == 1 && key[0] <= '2') {
      out += operand[static_cast<size_t>(key[0] - '0')];
    } else if (key == "d") {
      out += dest;
    } else if (key == "t") {
      append_vector(out, scalar_type(dtype), lanes);
    } else if (key == "b") {
      append_vector(out, "i1", lanes);
    } else {
      out += rare(key);
    }
  }
  std::string rare(std::string_view key) const {
    if (key == "c") return type_of(DType::Bool, condition_lanes);
    if (key == "g") return op == Op::Max ? "g" : "l";
    if (key == "max") return op == Op::Max ? "max" : "min";
    if (key == "s") return suffix_of(dtype, lanes);
    if (key == "f32") return type_of(DType::Float32, lanes);
    if (key == "bf16") return vector_of("bfloat", 2 * lanes);
    if (key == "bits") return std::to_string(lanes * bit_width(dtype));
    if (key == "width") return number(dtype, lanes, bit_width(dtype));
    if (key == "width-1") return number(dtype, lanes, bit_width(dtype) - 1);
    if (key == "i64") return type_of(DType::Int64, lanes);
    if (key == "most") return number(DType::Int64, lanes, INT64_MAX);
    if (key == "least") return number(DType::Int64, lanes, INT64_MIN);
    if (key == "k0") return number(dtype, lanes, 0);
    if (key == "k1") return number(dtype, lanes, 1);
    WHIT_CHECK(key == "k-1", "a row with the placeholder {}", key);
    return number(dtype, lanes, -1);
  }
};

class LlvmWriter final : public Writer {
 public:
  explicit LlvmWriter(const UOp& program) : Writer(program, "LLVM", kRows, "%") {}

  std::string run(std::string_view kernel_name) {
    entry();
    walk();
    line("ret void");
    std::string out;
    if (p_.n_zero_bytes) out += fmt::format("@zeros = internal constant [{} x i8] zeroinitializer, align 64\n\n", p_.n_zero_bytes);
    out += fmt::format(
        "define void @{}(ptr noalias readonly %buffers, ptr noalias readonly %variables, ptr noalias %scratch, "
        "i64 %first, i64 %last) nounwind {{\nentry:\n{}}}\n",
        kernel_name, body_);
    return out + metadata();
  }

 private:
  // ---- text
  void lines(std::string_view text, const RowText& filler) {
    body_ += "  ";
    expand(body_, text, filler, "  ");
    body_ += '\n';
  }
  void label(const std::string& name) {
    body_ += fmt::format("{}:\n", name);
    block_ = name;
  }

  template <class... T> std::string line_into(fmt::format_string<T...> f, T&&... args) {
    std::string d = fresh("v");
    line("{} = {}", d, fmt::format(f, std::forward<T>(args)...));
    return d;
  }

  // ---- values
  std::string named(DType, int64_t, const std::string& text) override { return text; }
  std::string spread(DType dt, int64_t lanes, const std::string& scalar) override {
    const std::string d = fresh("s"), type = type_of(dt, lanes);
    line("{}.one = insertelement {} poison, {} {}, i64 0", d, type, scalar_type(dt), scalar);
    line("{} = shufflevector {} {}.one, {} poison, <{} x i32> zeroinitializer", d, type, d, type, lanes);
    return d;
  }
  std::string constant_text(DType dt, int64_t lanes, uint64_t bits) override { return splat(dt, lanes, literal_of_bits(dt, bits)); }
  std::string lanes_text(DType dt, int64_t lanes) override {
    return fmt::format("<{}>", listed(lanes, [&](int64_t i) { return fmt::format("{} {}", scalar_type(dt), i); }));
  }
  std::string lane_text(DType dt, int64_t lanes, const std::string& v, int64_t i) override {
    return line_into("extractelement {} {}, i64 {}", type_of(dt, lanes), v, i);
  }
  // Lanes of one or two vectors are a shuffle: through a chain of insertions LLVM sees where lanes come from at last, and loses
  // the steps of a transpose.
  std::string vec_text(const Node* n) override {
    std::vector<const Node*> from;
    for (const Node* s : n->src())
      if (const Node* v = s->op == Op::Lane ? s->src()[0] : s; std::ranges::find(from, v) == from.end()) from.push_back(v);
    const int64_t lanes = lanes_of(from[0]);
    if (lanes > 1 && from.size() <= 2 && lanes_of(from.back()) == lanes &&
        std::ranges::all_of(n->src(), [](const Node* s) { return s->op == Op::Lane; }))
      return line_into("shufflevector {0} {1}, {0} {2}, <{3} x i32> <{4}>", type_of(n->dtype, lanes), operand(from[0], lanes),
                       operand(from.back(), lanes), n->n_src, listed(n->n_src, [&](int64_t i) {
                         const Node* s = n->src()[static_cast<size_t>(i)];
                         return fmt::format("i32 {}", s->arg.as_int() + (s->src()[0] == from[0] ? 0 : lanes));
                       }));
    const std::string type = type_of(n->dtype, lanes_of(n));
    std::string v = "poison";
    for (size_t i = 0; i < n->n_src; ++i)
      v = line_into("insertelement {} {}, {} {}, i64 {}", type, v, scalar_type(n->dtype), operand(n->src()[i], 0), i);
    return v;
  }
  std::string half_text(DType dt, int64_t lanes, const std::string& v, int64_t first) override {
    const std::string pick = listed(lanes / 2, [&](int64_t i) { return fmt::format("i32 {}", first + i); });
    const std::string type = type_of(dt, lanes);
    return line_into("shufflevector {} {}, {} poison, <{} x i32> <{}>", type, v, type, lanes / 2, pick);
  }

  // ---- structure
  void entry() {
    block_ = "entry";
    for (size_t i = 0; i < p_.params.size(); ++i) {
      const int64_t slot = p_.signature.buffers[i].slot;
      line("%data{0}.at = getelementptr ptr, ptr %buffers, i64 {0}", slot);
      line("%data{0} = load ptr, ptr %data{0}.at", slot);
    }
    for (size_t i = 0; i < p_.variables.size(); ++i) {
      const Node* n = p_.variables[i];
      const std::string d = fmt::format("%var{}", i);
      line("{}.at = getelementptr i64, ptr %variables, i64 {}", d, i);
      line("{}.wide = load i64, ptr {}.at", d, d);
      if (bit_width(n->dtype) < 64) line("{} = trunc i64 {}.wide to {}", d, d, scalar_type(n->dtype));
      bind(n, bit_width(n->dtype) < 64 ? d : d + ".wide");
    }
    for (const Node* n : p_.scratch) {
      const int64_t id = n->arg.int_at(0);
      line("%scratch{} = getelementptr i8, ptr %scratch, i64 {}", id, p_.scratch_offset.at(id));
    }
    for (const Node* n : p_.regs) line("%acc{} = alloca {}", n->arg.int_at(0), type_of(n->dtype, lanes_of(n)));
  }

  void open_loop(const Node* n) override {
    std::string first = "0", end;
    bool may_be_empty = false;
    const std::string r = fresh("r"), text = r.substr(1);
    if (const auto it = p_.global_offset.find(n); it != p_.global_offset.end()) {
      line("{0}.a = sub i64 %first, {1}\n  {0}.first = call i64 @llvm.smax.i64(i64 {0}.a, i64 0)", r, it->second);
      line("{0}.b = sub i64 %last, {1}\n  {0}.end = call i64 @llvm.smin.i64(i64 {0}.b, i64 {2})", r, it->second, range_size(n));
      first = r + ".first";
      end = r + ".end";
      may_be_empty = true;
    } else if (n->n_src > 0) {
      std::string* const bounds[] = {&end, &first};
      for (size_t i = 0; i < n->n_src; ++i) {
        *bounds[i] = operand(n->src()[i], 0);
        if (const int width = bit_width(n->src()[i]->dtype); width < 64) {
          line("{}.bound{} = sext i{} {} to i64", r, i, width, *bounds[i]);
          *bounds[i] = fmt::format("{}.bound{}", r, i);
        }
      }
      may_be_empty = n->n_src > 1 || n->src()[0]->vmin < 1;
    } else {
      end = fmt::format("{}", range_size(n));
      may_be_empty = range_size(n) < 1;
    }
    const std::string before = block_;
    if (may_be_empty) {
      line("{}.some = icmp slt i64 {}, {}", r, first, end);
      line("br i1 {}.some, label %{}.loop, label %{}.done", r, text, text);
    } else {
      line("br label %{}.loop", text);
    }
    label(text + ".loop");
    line("{} = phi i64 [ {}, %{} ], [ {}.next, %{}.latch ]", r, first, before, r, text);
    blocks_.push_back({text, end});
    std::string name = r;
    if (bit_width(n->dtype) < 64) {
      name = r + ".narrow";
      line("{} = trunc i64 {} to {}", name, r, scalar_type(n->dtype));
    }
    bind(n, name);
  }
  void open_if(const Node* n) override { blocks_.push_back({begin_if("if", n->src()[0]), ""}); }
  std::string begin_if(const char* stem, const Node* condition) {
    const std::string text = fresh(stem).substr(1);
    line("br i1 {}, label %{}.then, label %{}.done", operand(condition, 0), text, text);
    label(text + ".then");
    return text;
  }
  void end_if(const std::string& text) {
    line("br label %{}.done", text);
    label(text + ".done");
  }
  void close(const Node* opened) override {
    const Block o = blocks_.back();
    blocks_.pop_back();
    if (opened->op == Op::If) return end_if(o.text);
    line("br label %{}.latch", o.text);
    label(o.text + ".latch");
    line("%{0}.next = add nuw nsw i64 %{0}, 1", o.text);
    line("%{0}.more = icmp slt i64 %{0}.next, {1}", o.text, o.end);
    line("br i1 %{0}.more, label %{0}.loop, label %{0}.done", o.text);
    label(o.text + ".done");
  }

  // ---- memory
  size_t n_scopes() const { return p_.params.size() + (p_.scratch.empty() ? 0 : 1); }
  // The alias scope of an access, as the end of its line.
  std::string scope(const Node* storage) const {
    if (storage->op == Op::Reg || n_scopes() < 2) return "";
    const auto& all = p_.signature.buffers;  // then what is no PARAM
    const int64_t slot = storage->op == Op::Param ? storage->arg.int_at(0) : -1;
    const auto s = static_cast<size_t>(std::ranges::find(all, slot, &KernelSignature::Buffer::slot) - all.begin());
    return fmt::format(", !alias.scope !{}, !noalias !{}", 1 + n_scopes() + s, 1 + 2 * n_scopes() + s);
  }
  std::string metadata() const {
    if (n_scopes() < 2) return "";
    std::string out = "\n!0 = distinct !{!0}\n";
    for (size_t i = 0; i < n_scopes(); ++i) out += fmt::format("!{0} = distinct !{{!{0}, !0}}\n", 1 + i);
    for (size_t i = 0; i < n_scopes(); ++i) out += fmt::format("!{} = !{{!{}}}\n", 1 + n_scopes() + i, 1 + i);
    for (size_t i = 0; i < n_scopes(); ++i) {
      std::string others;
      for (size_t j = 0; j < n_scopes(); ++j)
        if (j != i) others += fmt::format("{}!{}", others.empty() ? "" : ", ", 1 + j);
      out += fmt::format("!{} = !{{{}}}\n", 1 + 2 * n_scopes() + i, others);
    }
    return out;
  }

  std::string address(const Access& a, DType dt) {
    if (!a.index) return base_of(a.storage);
    const std::string element = memory_type(dt, 0);
    std::string base = base_of(a.storage);
    // What all lanes of a gather have in common goes into a scalar address: the rest is often constant and narrow.
    const Node* index = a.index;
    while (index->op == Op::Add && lanes_of(index) > 0 && bit_width(index->dtype) == 64) {
      const size_t common = lanes_of(index->src()[0]) == 0 ? 0 : 1;
      if (lanes_of(index->src()[common]) > 0) break;
      base = address_at(base, element, index->src()[common]);
      index = index->src()[1 - common];
    }
    return address_at(base, element, index);
  }
  std::string address_at(const std::string& base, const std::string& element, const Node* index) {
    const int64_t lanes = lanes_of(index);
    std::string at = operand(index, lanes), type = type_of(index->dtype, lanes);
    if (is_unsigned(index->dtype) && bit_width(index->dtype) < 64) {  // getelementptr sign-extends
      at = line_into("zext {} {} to {}", type, at, vector_of("i64", lanes));
      type = vector_of("i64", lanes);
    }
    const std::string d = fresh("p");
    line("{} = getelementptr {}, ptr {}, {} {}", d, element, base, type, at);
    return d;
  }
  // What is called for an access lane by lane: to the addresses that `at` holds, or to those from `at` on.
  std::string masked(const Access& a, const char* by_addresses, const char* by_row, DType dt, const std::string& at, const std::string& first,
                     const std::string& last) {
    const std::string mask = a.gate ? operand(a.gate, a.lanes) : splat(DType::Bool, a.lanes, "true");
    const std::string lanes = a.contiguous ? "" : fmt::format("v{}", a.lanes);
    return fmt::format("@llvm.masked.{}.{}.{}p0({}{} {}, i32 {}, {} {}{}){}", a.contiguous ? by_row : by_addresses,
                       suffix_of(dt == DType::Bool ? DType::Int8 : dt, a.lanes), lanes, first, vector_of("ptr", a.contiguous ? 0 : a.lanes), at,
                       element_bytes(dt), type_of(DType::Bool, a.lanes), mask, last, scope(a.storage));
  }

  std::string alignment(const Access& a, DType dt) const {
    return a.storage->op == Op::Reg ? "" : fmt::format(", align {}{}", element_bytes(dt), scope(a.storage));
  }

  void load(const Node* n, const Access& a) override {
    const bool is_reg = a.storage->op == Op::Reg;
    const std::string type = is_reg ? type_of(n->dtype, a.lanes) : memory_type(n->dtype, a.lanes);
    std::string at = address(a, n->dtype), d = fresh("v");
    if (a.lane_by_lane()) {
      line("{} = call {} {}", d, type, masked(a, "gather", "load", n->dtype, at, "", fmt::format(", {} zeroinitializer", type)));
    } else {
      if (a.gate) at = line_into("select i1 {}, ptr {}, ptr @zeros", operand(a.gate, 0), at);
      line("{} = load {}, ptr {}{}", d, type, at, alignment(a, n->dtype));
    }
    if (n->dtype == DType::Bool && !is_reg) d = line_into("icmp ne {} {}, {}", type, d, splat(DType::Int8, a.lanes, "0"));
    bind(n, d);
  }

  void store(const Node* n, const Access& a) override {
    const Node* v = n->src()[1];
    const bool is_reg = a.storage->op == Op::Reg;
    std::string value = operand(v, a.lanes);
    std::string type = type_of(v->dtype, a.lanes);
    if (v->dtype == DType::Bool && !is_reg) {
      value = line_into("zext {} {} to {}", type, value, memory_type(v->dtype, a.lanes));
      type = memory_type(v->dtype, a.lanes);
    }
    const std::string at = address(a, v->dtype);
    if (a.lane_by_lane()) return line("call void {}", masked(a, "scatter", "store", v->dtype, at, fmt::format("{} {}, ", type, value), ""));
    const std::string text = a.gate ? begin_if("g", a.gate) : "";
    line("store {} {}, ptr {}{}", type, value, at, alignment(a, v->dtype));
    if (a.gate) end_if(text);
  }

  // ---- arithmetic
  std::string apply(const TextRow& row, Op op, DType dt, int64_t lanes, std::span<const std::string> operands, bool scalar_condition) override {
    const RowText text(fresh("v"), op, dt, lanes, operands, scalar_condition);
    lines(row.text, text);
    return text.dest;
  }
  // Float to int saturates to int64 first, whatever the width.
  std::string cast_text(DType from, DType to, int64_t lanes, const std::string& v) override {
    const std::string type = type_of(from, lanes);
    const bool from_float = is_float(from), to_float = is_float(to), same_width = bit_width(from) == bit_width(to);
    const bool grows = bit_width(from) < bit_width(to), is_natural = is_unsigned(from) || from == DType::Bool;
    if (to == DType::Bool)
      return line_into("{} {} {}, {}", from_float ? "fcmp une" : "icmp ne", type, v, splat(from, lanes, literal_of_bits(from, 0)));
    if (from == to || (same_width && !from_float && !to_float)) return v;
    if (from_float && !to_float) {
      const auto limit = [&](double number) {  // floats are written as doubles
        return splat(from, lanes, fmt::format("0x{:016X}", std::bit_cast<uint64_t>(number)));
      };
      const RowText text(fresh("v"), Op::Cast, from, lanes, std::array{v, limit(0x1p63), limit(-0x1p63)});
      lines(kToInt64, text);
      return cast_text(DType::Int64, to, lanes, text.dest);
    }
    const char* how = from_float   ? (grows ? "fpext" : "fptrunc")
                      : to_float   ? (is_natural ? "uitofp" : "sitofp")
                      : !grows     ? "trunc"
                      : is_natural ? "zext"
                                   : "sext";
    return line_into("{} {} {} to {}", how, type, v, type_of(to, lanes));
  }

  // Bools are one bit here but a byte that is 0 or 1 in memory.
  void bitcast(const Node* n) override {
    const Node* s = n->src()[0];
    const int64_t lanes = lanes_of(s);
    std::string v = operand(s, lanes), type = type_of(s->dtype, lanes);
    if (s->dtype == n->dtype) return bind(n, v);
    if (s->dtype == DType::Bool) {
      v = line_into("zext {} {} to {}", type, v, type_of(DType::Int8, lanes));
      type = type_of(DType::Int8, lanes);
    }
    const DType to = n->dtype == DType::Bool ? DType::Int8 : n->dtype;
    const std::string result = type_of(to, lanes_of(n));
    if (type != result) v = line_into("bitcast {} {} to {}", type, v, result);
    if (n->dtype == DType::Bool) v = line_into("icmp ne {} {}, {}", result, v, splat(to, lanes_of(n), "0"));
    bind(n, v);
  }

  struct Block {
    std::string text, end;
  };
  std::string block_;
  std::vector<Block> blocks_;  // of the RANGEs and IFs that are open
};

}  // namespace

std::string render_llvm(const UOp& program, std::string_view kernel_name, const Target&) { return LlvmWriter(program).run(kernel_name); }

}  // namespace whit::render
