// What decompose makes computes what the op means, by both renderers, bit for bit where the op is exact.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <random>

#include "base/flags.h"
#include "ir/eval.h"
#include "kernel_run.h"

namespace whit {
namespace {

using testing::CompiledKernel;
using testing::Program;

constexpr int64_t kElems = 4096;

struct Case {
  Op op;
  DType in, out;
  int arity;
  int max_ulp = 0;
};

Scalar random_scalar(DType dt, std::mt19937_64& random) {
  uint64_t bits = random();
  if (!is_float(dt)) {
    if (bits % 3 == 0) return Scalar::of(dt, static_cast<int64_t>(bits >> 8 & 15) - 8);
    if (bits % 3 == 1) return Scalar::of(dt, static_cast<int64_t>(bits >> 8) >> (bits >> 2 & 31));
    return Scalar::of(dt, bits & 4 ? int_min(dt) : int_max(dt));
  }
  static const double kSpecial[] = {0.0,     -0.0,    1.0,     -1.0,    0.5,  2.0,   -3.0,     448.0,     465.0,
                                    57344.0, 61440.0, 65504.0, 65520.0, 1e-7, 1e-30, HUGE_VAL, -HUGE_VAL, NAN};
  if (bits % 4 == 0) return Scalar::of(dt, kSpecial[(bits >> 8) % std::size(kSpecial)]);
  if (bits % 4 == 1) return Scalar::of(dt, (static_cast<double>(bits >> 11) * 0x1p-52 - 1) * 8);
  bits = random();
  return read_element(dt, &bits, 0);
}

// Ordered ints of a float's bits: neighbours differ by one.
int64_t order(DType dt, const void* element) {
  const int n = n_bytes(dt);
  uint64_t bits = 0;
  std::memcpy(&bits, element, static_cast<size_t>(n));
  const uint64_t sign = uint64_t{1} << (8 * n - 1);
  return bits & sign ? -static_cast<int64_t>(bits & ~sign) : static_cast<int64_t>(bits);
}

// Inputs are slots 0, 1, 2; each case has an output after them. One kernel for all: compiling is what costs time.
UOp make_program(std::span<const Case> cases, int64_t lanes) {
  const int64_t n[] = {kElems}, step = std::max<int64_t>(lanes, 1);
  Program p;
  const UOp r = p.range(kElems / step, AxisType::Global);
  const UOp at = lanes ? p.add(r * step) : r;
  std::vector<UOp> src;
  for (int64_t i = 0; i < 3; ++i) src.push_back(p.load(index(param(i, cases[0].in, n), at), lanes));
  for (size_t i = 0; i < cases.size(); ++i) {
    const UOp v = p.add(UOp::make(cases[i].op, cases[i].out, std::span(src.data(), static_cast<size_t>(cases[i].arity))));
    p.store(index(param(static_cast<int64_t>(3 + i), cases[i].out, n), at), v);
  }
  p.end(r);
  return p.linear();
}

bool is_nan_element(DType dt, const void* element) { return is_float(dt) && std::isnan(read_element(dt, element, 0).f); }

void check_values(const Case& c, const std::vector<std::vector<char>>& in, const std::vector<char>& out, const std::string& where) {
  const size_t size = static_cast<size_t>(n_bytes(c.out));
  for (int64_t i = 0, n_wrong = 0; i < kElems && n_wrong < 3; ++i) {
    SmallVec<Scalar, 3> args;
    for (size_t j = 0; j < static_cast<size_t>(c.arity); ++j) args.push_back(read_element(c.in, in[j].data(), i));
    const Scalar want = eval_scalar(c.op, c.out, args);
    char bytes[8];
    write_element(c.out, bytes, 0, want);
    const char* have = out.data() + static_cast<size_t>(i) * size;
    if (std::memcmp(bytes, have, size) == 0) continue;
    const bool nan = is_nan_element(c.out, bytes), have_nan = is_nan_element(c.out, have);
    if (nan && have_nan) continue;
    // libm tells signalling NaNs apart, whit does not.
    if (c.op == Op::Pow && is_float(c.in) && std::isnan(args[0].f + args[1].f)) continue;
    if (c.max_ulp && !nan && !have_nan && std::abs(order(c.out, bytes) - order(c.out, have)) <= c.max_ulp) continue;
    ++n_wrong;
    ADD_FAILURE() << name(c.op) << " " << name(c.in) << " to " << name(c.out) << where << ": x " << args[0].as_double() << " y "
                  << (c.arity > 1 ? args[1].as_double() : 0) << " z " << (c.arity > 2 ? args[2].as_double() : 0) << ": "
                  << read_element(c.out, have, 0).as_double() << ", not " << want.as_double();
  }
}

void check_equal(const Case& c, const std::vector<char>& a, const std::vector<char>& b, const std::string& where) {
  const size_t size = static_cast<size_t>(n_bytes(c.out));
  for (size_t at = 0; at < kElems * size; at += size)
    if (std::memcmp(a.data() + at, b.data() + at, size) != 0 && !is_nan_element(c.out, a.data() + at)) {
      ADD_FAILURE() << name(c.op) << " " << name(c.in) << " to " << name(c.out) << " has other bits" << where;
      return;
    }
}

// All cases have the same input dtype.
void check(const std::vector<Case>& cases) {
  const DType dt = cases[0].in;
  std::mt19937_64 random(static_cast<uint64_t>(dt) + 1);
  std::vector<std::vector<char>> in(3, std::vector<char>(kElems * 8));
  for (auto& data : in)
    for (int64_t i = 0; i < kElems; ++i) write_element(dt, data.data(), i, random_scalar(dt, random));
  if (n_bytes(dt) == 1 && dt != DType::Bool)
    for (size_t i = 0; i < 256; ++i) in[0][i] = static_cast<char>(i);
  std::vector<std::vector<char>> first;
  for (const int64_t lanes : {0, 8}) {
    for (const std::string& renderer : testing::renderers()) {
      const Caps& caps = renderer_by_name(renderer).caps;
      const UOp program = decompose(make_program(cases, lanes), caps);
      ASSERT_EQ(decompose(program, caps), program) << "it is not final";
      const CompiledKernel k = testing::compile_kernel(program, renderer);
      std::vector<std::vector<char>> out(cases.size(), std::vector<char>(kElems * 8, char(0x55)));
      std::vector<void*> buffers;
      for (auto& data : in) buffers.push_back(data.data());
      for (auto& data : out) buffers.push_back(data.data());
      k.call(buffers.data(), nullptr, nullptr, 0, kElems / std::max<int64_t>(lanes, 1));
      const std::string where = fmt::format(", lanes {} by {}", lanes, renderer);
      for (size_t i = 0; i < cases.size(); ++i) {
        check_values(cases[i], in, out[i], where);
        if (!first.empty()) check_equal(cases[i], first[i], out[i], where);
      }
      if (first.empty()) first = out;
    }
  }
}

const DType kInts[] = {DType::Int8, DType::UInt8, DType::Int16, DType::UInt16, DType::Int32, DType::UInt32, DType::Int64, DType::UInt64};
const DType kNarrow[] = {DType::Fp8E4M3, DType::Fp8E4M3FNUZ, DType::Fp8E5M2, DType::Fp8E5M2FNUZ, DType::Float16, DType::BFloat16};

TEST(Decompose, IntegerOps) {
  for (const DType dt : kInts) {
    std::vector<Case> cases;
    for (const Op op : {Op::FloorDiv, Op::FloorMod, Op::Pow}) cases.push_back({op, dt, dt, 2});
    if (dt == DType::UInt64) cases.push_back({Op::Threefry, dt, dt, 2});
    for (const DType narrow : kNarrow) cases.push_back({Op::Cast, dt, narrow, 1});
    check(cases);
  }
  std::vector<Case> cases;
  for (const DType narrow : kNarrow) cases.push_back({Op::Cast, DType::Bool, narrow, 1});
  check(cases);
}

class DecomposeNarrow : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Floats, DecomposeNarrow, ::testing::ValuesIn(kNarrow), [](const auto& i) { return std::string(name(i.param)); });

TEST_P(DecomposeNarrow, EveryOpIsRoundedOnce) {
  const DType dt = GetParam();
  std::vector<Case> cases;
  for (const Op op : {Op::Neg, Op::Recip, Op::Sqrt, Op::Trunc}) cases.push_back({op, dt, dt, 1});
  for (const Op op : {Op::Add, Op::Sub, Op::Mul, Op::Fdiv, Op::Max, Op::Min, Op::Cmod, Op::FloorMod}) cases.push_back({op, dt, dt, 2});
  for (const Op op : {Op::CmpLt, Op::CmpEq, Op::CmpNe}) cases.push_back({op, dt, DType::Bool, 2});
  for (const Op op : {Op::Exp2, Op::Log2, Op::Sin}) cases.push_back({op, dt, dt, 1, 1});
  cases.push_back({Op::Pow, dt, dt, 2, 1});
  for (const DType other : kInts) cases.push_back({Op::Cast, dt, other, 1});
  for (const DType other : kNarrow)
    if (other != dt) cases.push_back({Op::Cast, dt, other, 1});
  for (const DType other : {DType::Bool, DType::Float32, DType::Float64}) cases.push_back({Op::Cast, dt, other, 1});
  check(cases);
}

TEST(Decompose, Float16ByBits) {
  const FlagScope emulated("EMULATED_DTYPES", "float16");
  std::vector<Case> cases;
  for (const Op op : {Op::Add, Op::Mul, Op::Fdiv}) cases.push_back({op, DType::Float16, DType::Float16, 2});
  for (const DType dt : {DType::Float32, DType::Float64}) {
    cases.push_back({Op::Cast, DType::Float16, dt, 1});
    check({{Op::Cast, dt, DType::Float16, 1}});
  }
  check(cases);
  const FlagScope wrong("EMULATED_DTYPES", "int64");
  EXPECT_THROW(decompose(idx(0), renderer_by_name("llvm").caps), Error);
}

TEST(Decompose, WideFloats) {
  for (const DType dt : {DType::Float32, DType::Float64}) {
    std::vector<Case> cases = {{Op::FloorMod, dt, dt, 2}, {Op::Pow, dt, dt, 2, 1}};
    for (const Op op : {Op::Exp2, Op::Log2, Op::Sin}) cases.push_back({op, dt, dt, 1, 1});
    for (const DType narrow : kNarrow) cases.push_back({Op::Cast, dt, narrow, 1});
    check(cases);
  }
}

// What the front end writes for e^x, the logistic function and the cosine is known by its form.
TEST(Decompose, FormsOfTheFrontEnd) {
  struct Form {
    const char* name;
    UOp (*build)(const UOp& x);
    double (*exact)(double x);
    double max_ulp;
  };
  static const Form kForms[] = {
      {"exp", [](const UOp& x) { return alu(Op::Exp2, {x * const_like(x, std::numbers::log2e)}); }, [](double x) { return std::exp(x); }, 1.1},
      {"exp of -x", [](const UOp& x) { return alu(Op::Exp2, {x * const_like(x, -std::numbers::log2e)}); }, [](double x) { return std::exp(-x); },
       1.1},
      {"logistic",
       [](const UOp& x) {
         const UOp e = alu(Op::Exp2, {x * const_like(x, -std::numbers::log2e)});
         return alu(Op::Recip, {e + const_like(x, 1.0)});
       },
       [](double x) { return 1 / (1 + std::exp(-x)); }, 2},
      {"cos",
       [](const UOp& x) {
         const UOp s = alu(Op::Sin, {x * const_like(x, 0.5)});
         return const_like(x, 1.0) - (s * s) * const_like(x, 2.0);
       },
       [](double x) { return std::cos(x); }, 0.51},
  };
  const int64_t n[] = {kElems};
  for (const Form& f : kForms) {
    Program p;
    const UOp r = p.range(kElems / 16, AxisType::Global);
    const UOp at = p.add(r * 16);
    const UOp x = p.load(index(param(0, DType::Float32, n), at), 16);
    p.store(index(param(1, DType::Float32, n), at), p.add_tree(f.build(x)));
    p.end(r);
    std::vector<float> in(kElems), out(kElems);
    for (size_t i = 0; i < in.size(); ++i) in[i] = 87.0f * (static_cast<float>(i) / (kElems / 2) - 1);
    const std::string renderer = testing::renderers()[0];
    const CompiledKernel k = testing::compile_kernel(decompose(p.linear(), renderer_by_name(renderer).caps), renderer);
    void* buffers[] = {in.data(), out.data()};
    k.call(buffers, nullptr, nullptr, 0, kElems / 16);
    double worst = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const double want = f.exact(in[i]);
      const double unit = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
      worst = std::max(worst, std::fabs(out[i] - want) / unit);
    }
    EXPECT_LE(worst, f.max_ulp) << f.name;
  }
}

TEST(Decompose, DivisionByPowersOfTwoIsAShift) {
  const int64_t n[] = {64};
  const Caps& caps = renderer_by_name("llvm").caps;
  const UOp i = range(64, 0, AxisType::Loop);
  const auto ops_of = [&](const UOp& at) {
    std::string text;
    const UOp done = decompose(store(index(param(0, DType::Int32, n), at), constant(DType::Int32, 1)), caps);
    for (const Node* node : toposort(done))
      if (is_elementwise(node->op)) text += std::string(name(node->op)) + " ";
    return text;
  };
  EXPECT_EQ(ops_of(floor_div(i, 8)), "SHR ");
  EXPECT_EQ(ops_of(floor_mod(i - 5, 8)), "ADD AND ");
  EXPECT_EQ(ops_of(floor_div(i, 7)), "CDIV ");
  EXPECT_EQ(ops_of(floor_mod(i, 7)), "CMOD ");
}

// A cast that is not needed any more must not read its register again.
TEST(Decompose, ACastThatGoesKeepsTheValue) {
  const int64_t one[] = {1}, r[] = {0, 1};
  const UOp acc = UOp::make(Op::Reg, DType::Int64, {}, std::span<const int64_t>(r));
  Program p;
  const UOp loop = p.range(1, AxisType::Global);
  p.store(acc, constant(DType::Int64, 1));
  const UOp weak = p.add(cast(p.load(acc), DType::WeakInt));
  p.store(acc, constant(DType::Int64, 5));
  p.store(index(param(0, DType::Int64, one), loop), p.add(cast(p.add(weak * 3), DType::Int64)));
  p.end(loop);
  for (const std::string& renderer : testing::renderers()) {
    const CompiledKernel k = testing::compile_kernel(decompose(p.linear(), renderer_by_name(renderer).caps), renderer);
    int64_t out = 0;
    void* buffers[] = {&out};
    k.call(buffers, nullptr, nullptr, 0, 1);
    EXPECT_EQ(out, 3);
  }
}

// A register that is read again is another value, and so is what is computed from it by the same nodes.
TEST(Decompose, AnItemThatStandsTwiceIsComputedTwice) {
  const int64_t two[] = {2}, r[] = {0, 1};
  const UOp acc = UOp::make(Op::Reg, DType::Float32, {}, std::span<const int64_t>(r));
  const UOp value = load(acc), power = alu(Op::Exp2, {value});
  Program p;
  const UOp loop = p.range(1, AxisType::Global);
  for (int64_t i = 0; i < 2; ++i) {
    p.store(acc, constant(DType::Float32, static_cast<double>(i)));
    p.add(value);
    p.store(index(param(0, DType::Float32, two), idx(i)), p.add(power));
  }
  p.end(loop);
  for (const std::string& renderer : testing::renderers()) {
    const CompiledKernel k = testing::compile_kernel(decompose(p.linear(), renderer_by_name(renderer).caps), renderer);
    float out[2] = {0, 0};
    void* buffers[] = {out};
    k.call(buffers, nullptr, nullptr, 0, 1);
    EXPECT_EQ(out[0], 1.0f);
    EXPECT_EQ(out[1], 2.0f);
  }
}

}  // namespace
}  // namespace whit
