// Kernel graphs as the scheduler makes them, for tests and benches of codegen.
#pragma once
#include <cmath>
#include <vector>

#include "ir/build.h"

namespace whit::zoo {

inline UOp buffer(int64_t slot, int64_t n, DType dt = DType::Float32) { return param(slot, dt, std::vector<int64_t>{n}); }
inline UOp at(const UOp& b, const UOp& i, const UOp& gate = {}) { return load(index(b, i, gate)); }
inline UOp put(const UOp& b, const UOp& i, const UOp& v, const std::vector<UOp>& ranges) { return end(store(index(b, i), v), ranges); }
inline UOp sink(const std::vector<UOp>& ends) { return UOp::make(Op::Sink, DType::Void, ends, Arg::list({Arg("kernel")})); }
inline UOp f32(double v) { return constant(DType::Float32, v); }
inline UOp relu(const UOp& x) { return alu(Op::Max, {x, f32(0)}); }

class Ranges {
 public:
  UOp out(int64_t n) { return range(n, next_++, AxisType::Weak); }
  UOp sum(int64_t n) { return range(n, next_++, AxisType::Reduce); }

 private:
  int64_t next_ = 0;
};
inline UOp sum_over(const UOp& x, const std::vector<UOp>& r) { return reduce(x, "add", r); }

struct MatmulShape {
  int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  bool bias_relu = false;
  int64_t batch = 1;
};
inline UOp matmul(const MatmulShape& s) {
  Ranges r;
  const UOp b = r.out(s.batch), i = r.out(s.m), j = r.out(s.n), k = r.sum(s.k);
  const UOp x = at(buffer(1, s.batch * s.m * s.k), b * (s.m * s.k) + (s.a_transposed ? k * s.m + i : i * s.k + k));
  const UOp y = at(buffer(2, s.batch * s.k * s.n), b * (s.k * s.n) + (s.b_transposed ? j * s.k + k : k * s.n + j));
  UOp v = sum_over(x * y, {k});
  if (s.bias_relu) v = relu(v + at(buffer(3, s.n), j));
  return sink({put(buffer(0, s.batch * s.m * s.n), (b * s.m + i) * s.n + j, v, {b, i, j})});
}

/// x [b, ci, h, w], weights [co, ci, kh, kw], out [b, co, h - kh + 1 + 2 pad, ..].
struct ConvShape {
  int64_t b, ci, co, h, w, kh, kw;
  int64_t pad = 0;
  int64_t oh() const { return h + 2 * pad - kh + 1; }
  int64_t ow() const { return w + 2 * pad - kw + 1; }
  double flops() const { return 2.0 * static_cast<double>(b * ci * co * oh() * ow() * kh * kw); }
  int64_t n_x() const { return b * ci * h * w; }
  int64_t n_w() const { return co * ci * kh * kw; }
  int64_t n_out() const { return b * co * oh() * ow(); }
};
inline UOp padded(const UOp& buf, const ConvShape& s, const UOp& b, const UOp& c, int64_t n_c, const UOp& y, const UOp& x) {
  UOp gate;
  if (s.pad) gate = ge(y, s.pad) & lt(y, s.h + s.pad) & ge(x, s.pad) & lt(x, s.w + s.pad);
  return at(buf, ((b * n_c + c) * s.h + (y - s.pad)) * s.w + (x - s.pad), gate);
}
inline UOp conv_forward(const ConvShape& s, bool bias_relu = true) {
  Ranges r;
  const UOp b = r.out(s.b), co = r.out(s.co), y = r.out(s.oh()), x = r.out(s.ow());
  const UOp ci = r.sum(s.ci), ky = r.sum(s.kh), kx = r.sum(s.kw);
  const UOp in = padded(buffer(1, s.n_x()), s, b, ci, s.ci, y + ky, x + kx);
  const UOp w = at(buffer(2, s.n_w()), ((co * s.ci + ci) * s.kh + ky) * s.kw + kx);
  UOp v = sum_over(in * w, {ci, ky, kx});
  if (bias_relu) v = relu(v + at(buffer(3, s.co), co));
  return sink({put(buffer(0, s.n_out()), ((b * s.co + co) * s.oh() + y) * s.ow() + x, v, {b, co, y, x})});
}
/// Gradient of the input: sum over co, ky, kx of g[b, co, y - ky, x - kx] * w, as UNWINDOW makes it.
inline UOp conv_data_gradient(const ConvShape& s) {
  Ranges r;
  const UOp b = r.out(s.b), ci = r.out(s.ci), y = r.out(s.h), x = r.out(s.w);
  const UOp ky = r.sum(s.kh), kx = r.sum(s.kw), co = r.sum(s.co);
  const UOp gy = y - ky + s.pad, gx = x - kx + s.pad;
  const UOp inside = ge(gy, 0) & lt(gy, s.oh()) & ge(gx, 0) & lt(gx, s.ow());
  const UOp g = at(buffer(1, s.n_out()), ((b * s.co + co) * s.oh() + gy) * s.ow() + gx, inside);
  const UOp w = at(buffer(2, s.n_w()), ((co * s.ci + ci) * s.kh + ky) * s.kw + kx);
  return sink({put(buffer(0, s.n_x()), ((b * s.ci + ci) * s.h + y) * s.w + x, sum_over(where(inside, g * w, f32(0)), {ky, kx, co}), {b, ci, y, x})});
}
/// The same of a gradient that is stored with zeros around it.
inline UOp conv_data_gradient_of_halo(const ConvShape& s) {
  Ranges r;
  const UOp b = r.out(s.b), ci = r.out(s.ci), y = r.out(s.h), x = r.out(s.w);
  const UOp ky = r.sum(s.kh), kx = r.sum(s.kw), co = r.sum(s.co);
  const int64_t h = s.h + s.kh - 1, width = s.w + s.kw - 1;
  const UOp g = at(buffer(1, s.b * s.co * h * width), ((b * s.co + co) * h + (y - ky + s.kh - 1)) * width + (x - kx + s.kw - 1));
  const UOp w = at(buffer(2, s.n_w()), ((co * s.ci + ci) * s.kh + ky) * s.kw + kx);
  return sink({put(buffer(0, s.n_x()), ((b * s.ci + ci) * s.h + y) * s.w + x, sum_over(g * w, {ky, kx, co}), {b, ci, y, x})});
}
inline UOp conv_weight_gradient(const ConvShape& s) {
  Ranges r;
  const UOp co = r.out(s.co), ci = r.out(s.ci), ky = r.out(s.kh), kx = r.out(s.kw);
  const UOp b = r.sum(s.b), y = r.sum(s.oh()), x = r.sum(s.ow());
  const UOp g = at(buffer(1, s.n_out()), ((b * s.co + co) * s.oh() + y) * s.ow() + x);
  const UOp in = padded(buffer(2, s.n_x()), s, b, ci, s.ci, y + ky, x + kx);
  return sink({put(buffer(0, s.n_w()), ((co * s.ci + ci) * s.kh + ky) * s.kw + kx, sum_over(in * g, {b, y, x}), {co, ci, ky, kx})});
}

inline UOp softmax(int64_t rows, int64_t n) {
  Ranges r;
  const UOp i = r.out(rows), j = r.out(n), p = r.sum(n), q = r.sum(n);
  const UOp x = buffer(1, rows * n);
  auto e = [&](const UOp& at_) {
    return alu(Op::Exp2, {(at(x, i * n + at_) - reduce(at(x, i * n + p), "max", std::vector<UOp>{p})) * f32(1.4426950408889634)});
  };
  return sink({put(buffer(0, rows * n), i * n + j, e(j) * alu(Op::Recip, {sum_over(e(q), {q})}), {i, j})});
}
/// softmax(q k^T / 8 + mask) v over rows, with the scores of a row in STAGEs: q [heads, rows, d], k and v [heads, keys, d].
struct AttentionShape {
  int64_t heads, rows, keys, d;
  enum class Mask { None, Causal, Later } mask = Mask::None;  ///< Later: a key counts from its row on
};
inline UOp attention(const AttentionShape& s) {
  Ranges r;
  const UOp h = r.out(s.heads), i = r.out(s.rows), c = r.out(s.d), k = r.sum(s.d);
  const UOp j0 = r.sum(s.keys), j1 = r.sum(s.keys), j2 = r.sum(s.keys), j3 = r.sum(s.keys), j4 = r.sum(s.keys);
  const auto stage = [](const UOp& x, const UOp& j) { return UOp::make(Op::Stage, x.dtype(), {x, j}); };
  const int64_t n_q = s.heads * s.rows * s.d, n_k = s.heads * s.keys * s.d;
  const UOp q = at(buffer(1, n_q), (h * s.rows + i) * s.d + k), key = at(buffer(2, n_k), (h * s.keys + j0) * s.d + k);
  const UOp scores = stage(sum_over(q * key, {k}), j0);
  const auto masked = [&](const UOp& j) {
    const UOp x = at(scores, j) * f32(0.125), row = cast(i, DType::Int32), col = cast(j, DType::Int32);
    if (s.mask == AttentionShape::Mask::None) return x;
    const UOp out = s.mask == AttentionShape::Mask::Causal ? lt(row, col) : lt(col, row);
    return where(out ^ const_bool(true), x, f32(-INFINITY));
  };
  const UOp most = reduce(masked(j1), "max", std::vector<UOp>{j1});
  const UOp e = stage(alu(Op::Exp2, {(masked(j2) - most) * f32(1.4426950408889634)}), j2);
  const UOp p = at(e, j4) * alu(Op::Recip, {sum_over(at(e, j3), {j3})});
  const UOp value = at(buffer(3, n_k), (h * s.keys + j4) * s.d + c);
  return sink({put(buffer(0, n_q), (h * s.rows + i) * s.d + c, sum_over(p * value, {j4}), {h, i, c})});
}
inline UOp layer_norm(int64_t rows, int64_t n) {
  Ranges r;
  const UOp i = r.out(rows), j = r.out(n), p = r.sum(n), q = r.sum(n);
  const UOp x = buffer(1, rows * n);
  const UOp mean = sum_over(at(x, i * n + p), {p}) * f32(1.0 / static_cast<double>(n));
  const UOp d = at(x, i * n + q) - mean;
  const UOp var = sum_over(d * d, {q}) * f32(1.0 / static_cast<double>(n));
  const UOp v = (at(x, i * n + j) - mean) * alu(Op::Recip, {alu(Op::Sqrt, {var + f32(1e-5)})});
  return sink({put(buffer(0, rows * n), i * n + j, v * at(buffer(2, n), j) + at(buffer(3, n), j), {i, j})});
}
/// Mean over all axes but the channels of x [b, c, s].
inline UOp channel_sums(int64_t b, int64_t c, int64_t s) {
  Ranges r;
  const UOp i = r.out(c), p = r.sum(b), q = r.sum(s);
  return sink({put(buffer(0, c), i, sum_over(at(buffer(1, b * c * s), (p * c + i) * s + q), {p, q}), {i})});
}
inline UOp column_sums(int64_t m, int64_t n) {
  Ranges r;
  const UOp j = r.out(n), i = r.sum(m);
  return sink({put(buffer(0, n), j, sum_over(at(buffer(1, m * n), i * n + j), {i}), {j})});
}
inline UOp max_pool(int64_t planes, int64_t h, int64_t w) {
  Ranges r;
  const UOp b = r.out(planes), y = r.out(h / 2), x = r.out(w / 2), i = r.sum(2), j = r.sum(2);
  return sink({put(buffer(0, planes * (h / 2) * (w / 2)), (b * (h / 2) + y) * (w / 2) + x,
                   reduce(at(buffer(1, planes * h * w), (b * h + y * 2 + i) * w + x * 2 + j), "max", std::vector<UOp>{i, j}), {b, y, x})});
}
inline UOp elementwise(int64_t m, int64_t n) {
  Ranges r;
  const UOp i = r.out(m), j = r.out(n), e = i * n + j;
  const UOp a = at(buffer(1, m * n), e), b = at(buffer(2, m * n), e);
  return sink({put(buffer(0, m * n), e, relu(a * b + a) + b * f32(0.5), {i, j})});
}

}  // namespace whit::zoo
