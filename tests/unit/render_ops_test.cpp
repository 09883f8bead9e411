// Every elementwise op of every dtype, scalar and in vectors: LLVM == C bit for bit == the scalar semantics.
#include <gtest/gtest.h>

#include <algorithm>
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
const DType kStored[] = {DType::Bool,   DType::Int8,  DType::UInt8,  DType::Int16,   DType::UInt16,  DType::Int32,
                         DType::UInt32, DType::Int64, DType::UInt64, DType::Float16, DType::Float32, DType::Float64};

// Elements that are special for the dtype, in all pairs, then random bits.
std::vector<char> make_input(DType dt, uint64_t seed) {
  const int n_bytes = whit::n_bytes(dt);
  std::vector<Scalar> special;
  if (is_float(dt)) {
    for (const double v : {0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 127.5, 255.0, 1e-40, 65504.0, 1e9, 3e9, 1e10, 9.3e18, 2e19, 1e38,
                           std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
      for (const double sign : {1.0, -1.0}) special.push_back(Scalar::of(dt, sign * v));
  } else {
    for (const int64_t v : {0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100})
      for (const int64_t sign : {1, -1}) special.push_back(Scalar::of(dt, sign * v));
    for (const int64_t v : {int_min(dt), int_max(dt), int_min(dt) + 1, int_max(dt) - 1}) special.push_back(Scalar::of(dt, v));
  }
  std::vector<char> out(static_cast<size_t>(kElems * n_bytes));
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < kElems; ++i) {
    const auto n = static_cast<int64_t>(special.size());
    if (i < n * n && i < kElems / 2) {
      write_element(dt, out.data(), i, special[static_cast<size_t>(seed == 1 ? i % n : i / n)]);
    } else if (seed == 3 && i % 3) {
      write_element(dt, out.data(), i, special[static_cast<size_t>(random() % special.size())]);
    } else {
      uint64_t bits = random();
      if (!is_float(dt) && i % 4 == 0) bits = random() % 70;
      if (dt == DType::Bool) bits &= 1;
      std::memcpy(out.data() + i * n_bytes, &bits, static_cast<size_t>(n_bytes));
    }
  }
  return out;
}

struct Case {
  Op op;
  DType out;
  int arity;
};

std::vector<Case> cases_of(DType dt) {
  std::vector<Case> cases;
  const bool number = is_float(dt), boolean = dt == DType::Bool, half = dt == DType::Float16;
  if (!half) {
    if (!boolean) cases.push_back({Op::Neg, dt, 1});
    if (number)
      for (const Op op : {Op::Recip, Op::Sqrt, Op::Trunc}) cases.push_back({op, dt, 1});
    for (const Op op : {Op::Add, Op::Mul, Op::Max, Op::Min, Op::Sub, Op::Cmod}) cases.push_back({op, dt, 2});
    if (number) cases.push_back({Op::Fdiv, dt, 2});
    else
      for (const Op op : {Op::Cdiv, Op::And, Op::Or, Op::Xor, Op::Shl, Op::Shr}) cases.push_back({op, dt, 2});
    for (const Op op : {Op::CmpLt, Op::CmpNe, Op::CmpEq}) cases.push_back({op, DType::Bool, 2});
    cases.push_back({Op::MulAcc, dt, 3});
    if (boolean) cases.pop_back();
  }
  cases.push_back({Op::Where, dt, 3});
  for (const DType to : kStored) {
    // float16 converts from and to float32 only; the rest goes through it.
    if ((half && to != DType::Float32) || (to == DType::Float16 && dt != DType::Float32)) continue;
    if (to != dt) cases.push_back({Op::Cast, to, 1});
  }
  for (const DType to : kStored)
    if (to != dt && n_bytes(to) == n_bytes(dt)) cases.push_back({Op::Bitcast, to, 1});
  return cases;
}

UOp make_case(const Case& c, const UOp& x, const UOp& y, const UOp& z, const UOp& flag) {
  switch (c.arity) {
    case 1: return UOp::make(c.op, c.out, {x});
    case 2: return UOp::make(c.op, c.out, {x, y});
    default: return c.op == Op::Where ? UOp::make(c.op, c.out, {flag, x, y}) : UOp::make(c.op, c.out, {x, y, z});
  }
}

// Slots 0, 1, 2: inputs; 3: bools; 4...: an output a case.
UOp make_program(DType dt, int64_t lanes, const std::vector<Case>& cases) {
  const int64_t n[] = {kElems};
  const int64_t step = std::max<int64_t>(lanes, 1);
  Program p;
  const UOp r = p.range(kElems / step, AxisType::Global);
  const UOp at = lanes ? p.add(r * step) : r;
  const UOp x = p.load(index(param(0, dt, n), at), lanes), y = p.load(index(param(1, dt, n), at), lanes);
  const UOp z = p.load(index(param(2, dt, n), at), lanes), flag = p.load(index(param(3, DType::Bool, n), at), lanes);
  for (size_t i = 0; i < cases.size(); ++i) {
    const UOp v = p.add(make_case(cases[i], x, y, z, flag));
    p.store(index(param(static_cast<int64_t>(4 + i), cases[i].out, n), at), v);
  }
  p.end(r);
  return p.linear();
}

bool both_nan(const Scalar& a, const Scalar& b) { return is_float(a.dtype) && std::isnan(a.f) && std::isnan(b.f); }

std::vector<std::vector<char>> run(const CompiledKernel& k, std::vector<std::vector<char>> inputs, const std::vector<Case>& cases, int64_t lanes) {
  std::vector<void*> pointers;
  for (auto& in : inputs) pointers.push_back(in.data());
  std::vector<std::vector<char>> outs;
  for (const Case& c : cases) outs.emplace_back(static_cast<size_t>(kElems * n_bytes(c.out)), char(0x55));
  for (auto& out : outs) pointers.push_back(out.data());
  const int64_t n = kElems / std::max<int64_t>(lanes, 1);
  k.call(pointers.data(), nullptr, nullptr, 0, n / 3);
  k.call(pointers.data(), nullptr, nullptr, n / 3, n);
  return outs;
}

class RenderOps : public ::testing::TestWithParam<DType> {};

void check_outputs(const std::vector<Case>& cases, DType dt, const std::vector<std::vector<char>>& in, const std::vector<std::vector<char>>& outs,
                   const std::string& where) {
  for (size_t c = 0; c < cases.size(); ++c) {
    int n_wrong = 0;
    for (int64_t i = 0; i < kElems && n_wrong < 3; ++i) {
      Scalar s[4];
      for (size_t j = 0; j < 4; ++j) s[j] = read_element(j == 3 ? DType::Bool : dt, in[j].data(), i);
      const Scalar args_where[] = {s[3], s[0], s[1]};
      const std::span<const Scalar> args =
          cases[c].op == Op::Where ? std::span<const Scalar>(args_where) : std::span<const Scalar>(s, static_cast<size_t>(cases[c].arity));
      const Scalar want = eval_scalar(cases[c].op, cases[c].out, args);
      const Scalar got = read_element(cases[c].out, outs[c].data(), i);
      char bytes[8];
      write_element(cases[c].out, bytes, 0, want);
      const auto size = static_cast<size_t>(n_bytes(cases[c].out));
      if (std::memcmp(bytes, outs[c].data() + static_cast<size_t>(i) * size, size) != 0 && !both_nan(got, want)) {
        ++n_wrong;
        ADD_FAILURE() << name(cases[c].op) << " " << name(dt) << " to " << name(cases[c].out) << where << ": x " << s[0].as_double() << " y "
                      << s[1].as_double() << " z " << s[2].as_double() << " cond " << s[3].i << ": " << got.as_double() << ", not "
                      << want.as_double();
      }
    }
  }
}

TEST_P(RenderOps, EveryOpIsItsSemantics) {
  const DType dt = GetParam();
  const std::vector<Case> cases = cases_of(dt);
  const std::vector<std::vector<char>> in = {make_input(dt, 1), make_input(dt, 2), make_input(dt, 3), make_input(DType::Bool, 4)};
  for (const int64_t lanes : {0, 4, 8, 16}) {
    for (const std::string& renderer : testing::renderers()) {
      if (renderer == "c" && lanes == 4) continue;
      const CompiledKernel k = testing::compile_kernel(make_program(dt, lanes, cases), renderer);
      check_outputs(cases, dt, in, run(k, in, cases, lanes), fmt::format(", lanes {} by {}", lanes, renderer));
    }
  }
}

#if WHIT_LLVM && defined(__x86_64__)
// The bits do not depend on the machine: neither on the width of its vectors nor on what it has instructions for.
TEST_P(RenderOps, OlderMachinesHaveTheSameBits) {
  const DType dt = GetParam();
  const std::vector<Case> cases = cases_of(dt);
  const std::vector<std::vector<char>> in = {make_input(dt, 1), make_input(dt, 2), make_input(dt, 3), make_input(DType::Bool, 4)};
  for (const char* arch : {"x86_64,x86-64", "x86_64,haswell"}) {
    if (std::string_view(arch).ends_with("haswell") && !__builtin_cpu_supports("avx2")) continue;
    for (const int64_t lanes : {0, 8}) {
      const CompiledKernel k = testing::compile_kernel(make_program(dt, lanes, cases), "llvm", arch);
      check_outputs(cases, dt, in, run(k, in, cases, lanes), fmt::format(", lanes {} on {}", lanes, arch));
    }
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(AllDtypes, RenderOps, ::testing::ValuesIn(kStored), [](const auto& i) { return std::string(name(i.param)); });

}  // namespace
}  // namespace whit
