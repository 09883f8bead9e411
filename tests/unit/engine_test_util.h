// Shorthands for tests of schedule and engine: tensor graphs by hand, values against the reference evaluator.
#pragma once
#include <gtest/gtest.h>

#include <random>

#include "base/flags.h"
#include "engine/buffers.h"
#include "engine/realize.h"
#include "interpret_tensor.h"
#include "ir/build.h"

namespace whit::test {

using D = std::initializer_list<int64_t>;
inline std::span<const int64_t> dims(const D& d) { return {d.begin(), d.size()}; }
inline UOp rs(const UOp& x, D d) { return reshape(x, dims(d)); }
inline UOp ex(const UOp& x, D d) { return expand(x, dims(d)); }
inline UOp pm(const UOp& x, D d) { return permute(x, dims(d)); }
inline UOp pd(const UOp& x, D d) { return pad(x, dims(d)); }
inline UOp sh(const UOp& x, D d) { return shrink(x, dims(d)); }
inline UOp fl(const UOp& x, D d) { return flip(x, dims(d)); }
inline UOp sum(const UOp& x, D axes) { return reduce_axes(x, "add", dims(axes)); }
inline UOp max(const UOp& x, D axes) { return reduce_axes(x, "max", dims(axes)); }
inline UOp cst(double v, const UOp& like) { return constant(like.dtype(), v); }
inline UOp contiguous(const UOp& x) { return UOp::make(Op::Contiguous, x.dtype(), {x}); }
inline UOp exp2(const UOp& x) { return alu(Op::Exp2, {x}); }
inline UOp after(const UOp& x, const UOp& view, const UOp& value) { return UOp::make(Op::After, x.dtype(), {x, store(view, value)}); }
inline UOp lanes(int64_t n, DType dt = DType::Int32) { return UOp::make(Op::Lanes, dt, {}, n); }

/// A BUFFER view with small pseudo-random multiples of 1/4: float sums of them are exact.
inline UOp input(D d, const char* device = "REF", DType dt = DType::Float32, uint32_t seed = 1) {
  std::mt19937 gen(seed);
  int64_t n = 1;
  for (const int64_t v : d) n *= v;
  std::vector<float> f(static_cast<size_t>(n));
  for (float& v : f) v = static_cast<float>(static_cast<int>(gen() % 65) - 32) / 4;
  if (dt == DType::Float32) return rs(engine::buffer_from_host(dt, f, device), d);
  std::vector<std::byte> bytes(static_cast<size_t>(n * n_bytes(dt)));
  for (int64_t i = 0; i < n; ++i) write_element(dt, bytes.data(), i, Scalar::of(dt, static_cast<double>(f[static_cast<size_t>(i)])));
  return rs(engine::buffer_from_host(dt, bytes.data(), n, device), d);
}
inline UOp ints(D d, const std::vector<int32_t>& v, const char* device = "REF") { return rs(engine::buffer_from_host(DType::Int32, v, device), d); }

inline std::vector<double> values(const UOp& view) {
  const auto bytes = engine::read_bytes(view);
  std::vector<double> out;
  for (int64_t i = 0; i < view.shape().numel(); ++i) out.push_back(read_element(view.dtype(), bytes.data(), i).as_double());
  return out;
}

/// What the reference evaluator says, now.
inline std::vector<std::vector<double>> expected(std::span<const UOp> roots) {
  HostInputs in;
  std::vector<std::vector<std::byte>> memory;
  for (const Node* n : toposort(roots))
    if (n->op == Op::Buffer) {
      memory.push_back(engine::read_bytes(UOp(n)));
      in.memory[n] = memory.back().data();
    }
  std::vector<std::vector<double>> out;
  for (const HostTensor& t : evaluate_tensor(roots, in)) {
    out.emplace_back();
    for (int64_t i = 0; i < t.shape.numel(); ++i) out.back().push_back(t.at(i).as_double());
  }
  return out;
}

inline void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << "element " << i;
  }
}

/// Schedules, runs, compares; gives the number of kernels.
inline int64_t check(const std::vector<UOp>& roots, double tolerance = 1e-6) {
  const auto want = expected(roots);
  const auto stats = engine::schedule(roots).schedule->stats;
  const auto got = engine::realize(roots);
  for (size_t i = 0; i < roots.size(); ++i) {
    EXPECT_EQ(got[i].shape(), roots[i].shape());
    expect_near(values(got[i]), want[i], tolerance);
  }
  return stats.n_kernels;
}
inline int64_t check(const UOp& root, double tolerance = 1e-6) { return check(std::vector<UOp>{root}, tolerance); }

}  // namespace whit::test
