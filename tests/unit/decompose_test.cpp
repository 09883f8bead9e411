// What decompose makes computes what the op means, by both renderers, bit for bit where the op is exact.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

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

UOp make_program(const Case& c, int64_t lanes) {
  const int64_t n[] = {kElems}, step = std::max<int64_t>(lanes, 1);
  Program p;
  const UOp r = p.range(kElems / step, AxisType::Global);
  const UOp at = lanes ? p.add(r * step) : r;
  std::vector<UOp> src;
  for (int64_t i = 0; i < c.arity; ++i) src.push_back(p.load(index(param(1 + i, c.in, n), at), lanes));
  p.store(index(param(0, c.out, n), at), p.add(UOp::make(c.op, c.out, src)));
  p.end(r);
  return p.linear();
}

void check(const Case& c) {
  std::mt19937_64 random(static_cast<uint64_t>(c.op) * 64 + static_cast<uint64_t>(c.in));
  std::vector<std::vector<char>> in(static_cast<size_t>(c.arity), std::vector<char>(kElems * 8));
  for (auto& data : in)
    for (int64_t i = 0; i < kElems; ++i) write_element(c.in, data.data(), i, random_scalar(c.in, random));
  if (is_float(c.in) && n_bytes(c.in) == 1 && c.arity == 1)
    for (int64_t i = 0; i < 256; ++i) in[0][static_cast<size_t>(i)] = static_cast<char>(i);
  std::vector<char> first;
  for (const int64_t lanes : {0, 8}) {
    for (const char* renderer : {"llvm", "c"}) {
      const UOp program = decompose(make_program(c, lanes), renderer_by_name(renderer).caps);
      ASSERT_EQ(decompose(program, renderer_by_name(renderer).caps), program) << name(c.op) << " is not final";
      const CompiledKernel k = testing::compile_kernel(program, renderer);
      std::vector<char> out(kElems * 8, char(0x55));
      std::vector<void*> buffers = {out.data()};
      for (auto& data : in) buffers.push_back(data.data());
      k.call(buffers.data(), nullptr, nullptr, 0, kElems / std::max<int64_t>(lanes, 1));
      int n_wrong = 0;
      for (int64_t i = 0; i < kElems && n_wrong < 3; ++i) {
        SmallVec<Scalar, 3> args;
        for (auto& data : in) args.push_back(read_element(c.in, data.data(), i));
        const Scalar want = eval_scalar(c.op, c.out, args), got = read_element(c.out, out.data(), i);
        char bytes[8];
        write_element(c.out, bytes, 0, want);
        const size_t size = static_cast<size_t>(n_bytes(c.out));
        const char* have = out.data() + static_cast<size_t>(i) * size;
        if (std::memcmp(bytes, have, size) == 0) continue;
        if (is_float(c.out) && std::isnan(want.f) && std::isnan(got.f)) continue;
        // libm tells signalling NaNs apart, whit does not.
        if (c.op == Op::Pow && is_float(c.in) && std::isnan(args[0].f + args[1].f)) continue;
        if (c.max_ulp && is_float(c.out) && !std::isnan(want.f) && !std::isnan(got.f) &&
            std::abs(order(c.out, bytes) - order(c.out, have)) <= c.max_ulp)
          continue;
        ++n_wrong;
        ADD_FAILURE() << name(c.op) << " " << name(c.in) << " to " << name(c.out) << " lanes " << lanes << " by "
                      << renderer << ": x " << args[0].as_double() << " y " << (c.arity > 1 ? args[1].as_double() : 0)
                      << " z " << (c.arity > 2 ? args[2].as_double() : 0) << ": " << got.as_double() << ", not "
                      << want.as_double();
      }
      if (first.empty())
        first = out;
      else
        for (int64_t i = 0; i < kElems && n_wrong == 0; ++i) {
          const size_t size = static_cast<size_t>(n_bytes(c.out)), at = static_cast<size_t>(i) * size;
          if (std::memcmp(first.data() + at, out.data() + at, size) != 0 &&
              !(is_float(c.out) && std::isnan(read_element(c.out, out.data(), i).f))) {
            ++n_wrong;
            ADD_FAILURE() << name(c.op) << " " << name(c.in) << " differs between renderers or lanes, by " << renderer;
          }
        }
    }
  }
}

const DType kInts[] = {DType::Int8,  DType::UInt8,  DType::Int16, DType::UInt16,
                       DType::Int32, DType::UInt32, DType::Int64, DType::UInt64};
const DType kNarrow[] = {DType::Fp8E4M3,     DType::Fp8E4M3FNUZ, DType::Fp8E5M2,
                         DType::Fp8E5M2FNUZ, DType::Float16,     DType::BFloat16};

TEST(Decompose, IntegerOps) {
  for (const DType dt : kInts)
    for (const Op op : {Op::FloorDiv, Op::FloorMod, Op::Pow}) check({op, dt, dt, 2});
  check({Op::Threefry, DType::UInt64, DType::UInt64, 2});
  for (const DType dt : {DType::Float32, DType::Float64}) check({Op::FloorMod, dt, dt, 2});
}

class DecomposeNarrow : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Floats, DecomposeNarrow, ::testing::ValuesIn(kNarrow),
                         [](const auto& i) { return std::string(name(i.param)); });

TEST_P(DecomposeNarrow, ArithmeticIsRoundedOnce) {
  const DType dt = GetParam();
  for (const Op op : {Op::Neg, Op::Recip, Op::Sqrt, Op::Trunc}) check({op, dt, dt, 1});
  for (const Op op : {Op::Add, Op::Sub, Op::Mul, Op::Fdiv, Op::Max, Op::Min, Op::Cmod, Op::FloorMod})
    check({op, dt, dt, 2});
  for (const Op op : {Op::CmpLt, Op::CmpEq, Op::CmpNe}) check({op, dt, DType::Bool, 2});
  check({Op::MulAcc, dt, dt, 3});
  for (const Op op : {Op::Exp2, Op::Log2, Op::Sin}) check({op, dt, dt, 1, 1});
  check({Op::Pow, dt, dt, 2, 1});
}

TEST_P(DecomposeNarrow, CastsAreRoundedOnce) {
  const DType dt = GetParam();
  for (const DType other : kInts) {
    check({Op::Cast, other, dt, 1});
    check({Op::Cast, dt, other, 1});
  }
  for (const DType other : {DType::Float32, DType::Float64}) {
    check({Op::Cast, other, dt, 1});
    check({Op::Cast, dt, other, 1});
  }
  for (const DType other : kNarrow)
    if (other != dt) check({Op::Cast, dt, other, 1});
  check({Op::Cast, dt, DType::Bool, 1});
  check({Op::Cast, DType::Bool, dt, 1});
}

TEST(Decompose, TranscendentalFunctions) {
  for (const DType dt : {DType::Float32, DType::Float64}) {
    for (const Op op : {Op::Exp2, Op::Log2, Op::Sin}) check({op, dt, dt, 1, 1});
    check({Op::Pow, dt, dt, 2, 1});
  }
}

TEST(Decompose, DivisionByPowersOfTwoIsAShift) {
  const int64_t n[] = {64};
  const Caps& caps = renderer_by_name("llvm").caps;
  const UOp i = range(64, 0, AxisType::Loop);
  const auto ops_of = [&](const UOp& at) {
    std::string text;
    for (const Node* node :
         toposort(decompose(store(index(param(0, DType::Int32, n), at), constant(DType::Int32, 1)), caps)))
      if (is_elementwise(node->op)) text += std::string(name(node->op)) + " ";
    return text;
  };
  EXPECT_EQ(ops_of(floor_div(i, 8)), "SHR ");
  EXPECT_EQ(ops_of(floor_mod(i - 5, 8)), "ADD AND ");
  EXPECT_EQ(ops_of(floor_div(i, 7)), "CDIV ");
  EXPECT_EQ(ops_of(floor_mod(i, 7)), "CMOD ");
}

TEST(Decompose, FoldOfNarrowFloatsRoundsEachStep) {
  const int64_t n[] = {8}, one[] = {1};
  Program p;
  const UOp r = p.range(1, AxisType::Global);
  const UOp v = p.load(index(param(1, DType::BFloat16, n), r), 8);
  p.store(index(param(0, DType::BFloat16, one), r), p.add(UOp::make(Op::Fold, DType::BFloat16, {v}, Arg("add"))));
  p.end(r);
  std::vector<uint16_t> in(8), out(1);
  for (int64_t i = 0; i < 8; ++i)
    write_element(DType::BFloat16, in.data(), i, Scalar::of(DType::BFloat16, 1.0 + 37.0 * static_cast<double>(i)));
  std::vector<Scalar> want;
  for (int64_t i = 0; i < 8; ++i) want.push_back(read_element(DType::BFloat16, in.data(), i));
  for (size_t half = 4; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) want[i] = monoid_combine("add", DType::BFloat16, want[i], want[i + half]);
  for (const char* renderer : {"llvm", "c"}) {
    const CompiledKernel k = testing::compile_kernel(decompose(p.linear(), renderer_by_name(renderer).caps), renderer);
    void* buffers[] = {out.data(), in.data()};
    k.call(buffers, nullptr, nullptr, 0, 1);
    EXPECT_EQ(read_element(DType::BFloat16, out.data(), 0).f, want[0].f);
  }
}

}  // namespace
}  // namespace whit
