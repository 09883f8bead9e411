// Matrix factorisations and iterations.
#include "tensor/impl.h"

namespace whit {
using namespace detail;

std::pair<Tensor, Tensor> Tensor::qr() const {
  WHIT_USER(ndim() >= 2, Value, "[qr] shape {}; expected at least two axes", shape().str());
  // Householder reflections, one column after the other, batched over the leading axes.
  const int64_t m = size(-2), n = size(-1);
  Dims lead(shape().begin(), shape().end() - 2), square = lead;
  square.push_back(m);
  square.push_back(m);
  const Tensor x = to_float_dtype(*this);
  Tensor r = x, q = eye(m, {}, x.dtype()).expand(square);
  const Tensor rows = arange(0, m, 1).unsqueeze(1);
  for (int64_t k = 0; k < std::min(m, n); ++k) {
    std::vector<Tensor> columns = r.split({k, 1, n - k - 1}, -1);
    const Tensor c = rows.lt(k).where(0.0, columns[1]);  // [.., m, 1]
    const Tensor norm = c.square().sum(-2, true).sqrt();
    const Tensor head = rows.eq(k).where(c, 0.0).sum(-2, true);
    const Tensor alpha = head.lt(0).where(norm, norm.neg());
    const Tensor v = c - rows.eq(k).where(alpha, 0.0);
    const Tensor vv = v.square().sum(-2, true);
    const Tensor w = v * vv.eq(0).where(0.0, Tensor(2.0) / vv.eq(0).where(1.0, vv));
    r = (r - w.matmul(v.transpose(-2, -1).matmul(r))).contiguous();
    q = (q - q.matmul(v).matmul(w.transpose(-2, -1))).contiguous();
  }
  return {q, r};
}

std::vector<Tensor> Tensor::svd(bool) const { raise(ErrorKind::NotImplemented, "[svd] not there yet"); }

Tensor Tensor::newton_schulz(int64_t steps, std::span<const double> params, double eps) const {
  WHIT_USER(ndim() >= 2, Value, "[newton_schulz] shape {}; expected at least two axes", shape().str());
  const bool tall = size(-2) > size(-1);
  Tensor g = tall ? transpose(-2, -1) : *this;
  g = g / (g.square().sum({-2, -1}, true).sqrt() + eps);
  for (int64_t i = 0; i < steps; ++i) {
    const Tensor gram = g.matmul(g.transpose(-2, -1));
    Tensor next = g * params[0], power = g;
    for (size_t k = 1; k < params.size(); ++k) {
      power = gram.matmul(power);
      next = next + power * params[k];
    }
    g = next;
  }
  return tall ? g.transpose(-2, -1) : g;
}

}  // namespace whit
