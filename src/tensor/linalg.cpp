// Matrix factorisations and iterations, batched over leading axes.
#include <algorithm>

#include "tensor/impl.h"

namespace whit {
using namespace detail;

namespace {

Tensor eye_batch(const Shape& lead_of, int64_t n, DType dt) {
  Dims dims(lead_of.begin(), lead_of.end() - 2);
  dims.push_back(n);
  dims.push_back(n);
  return Tensor::eye(n, {}, dt).expand(dims);
}

// Columns of x by a constant order.
Tensor columns(const Tensor& x, const std::vector<int32_t>& order) {
  const Tensor index = Tensor::from(order, static_cast<int64_t>(order.size()), {.device = home_of(x)});
  return x.get({Ellipsis, index});
}

}  // namespace

std::pair<Tensor, Tensor> Tensor::qr() const {
  WHIT_USER(ndim() >= 2, Assertion, "[qr] shape {}; expected at least two axes", shape());
  // Householder reflections, one column after the other.
  const int64_t m = size(-2), n = size(-1);
  const Tensor x = to_float_dtype(*this);
  Tensor r = x, q = eye_batch(shape(), m, x.dtype());
  const Tensor rows = arange(0, m, 1).unsqueeze(1);
  for (int64_t k = 0; k < std::min(m, n); ++k) {
    const std::vector<Tensor> parts = r.split({k, 1, n - k - 1}, -1);
    const Tensor c = rows.lt(k).where(0.0, parts[1]);  // [.., m, 1]
    const Tensor norm = c.square().sum(-2, true).sqrt();
    const Tensor head = rows.eq(k).where(c, 0.0).sum(-2, true);
    const Tensor alpha = head.lt(0).where(norm, norm.neg());
    const Tensor v = c - rows.eq(k).where(alpha, 0.0);
    const Tensor vv = v.square().sum(-2, true), none = vv.eq(0);
    const Tensor w = v * none.where(0.0, Tensor(2.0) / none.where(1.0, vv));
    r = (r - w.matmul(v.transpose(-2, -1).matmul(r))).contiguous();
    q = (q - q.matmul(v).matmul(w.transpose(-2, -1))).contiguous();
  }
  return {q, r};
}

std::vector<Tensor> Tensor::svd(bool full_matrices) const {
  WHIT_USER(ndim() >= 2, Assertion, "[svd] shape {}; expected at least two axes", shape());
  const int64_t m = size(-2), n = size(-1);
  if (m < n) {
    const std::vector<Tensor> t = transpose(-2, -1).svd(full_matrices);
    return {t[2].transpose(-2, -1), t[1], t[0].transpose(-2, -1)};
  }
  // One-sided Jacobi on the square factor of a QR: pairs of columns are turned until all are orthogonal. A round turns
  // n/2 disjoint pairs at once, in the order of a round-robin tournament.
  const auto [q, r_all] = qr();
  const Tensor x = r_all.dtype() == DType::Float64 ? r_all : r_all.cast(DType::Float32);
  Tensor a = x.split({n, m - n}, -2)[0];  // [.., n, n]
  Tensor v = eye_batch(shape(), n, a.dtype());
  const int64_t players = n + n % 2;
  std::vector<int32_t> seats(static_cast<size_t>(players));
  for (size_t i = 0; i < seats.size(); ++i) seats[i] = static_cast<int32_t>(i);
  const double tiny = a.dtype() == DType::Float64 ? 1e-300 : 1e-37;
  const int64_t rounds = n > 1 ? (players - 1) * (6 + (a.dtype() == DType::Float64 ? 4 : 0)) : 0;
  for (int64_t round = 0; round < rounds; ++round) {
    std::vector<int32_t> left, right, order(static_cast<size_t>(n));
    for (int64_t i = 0; i < players / 2; ++i) {
      const int32_t p = seats[static_cast<size_t>(i)], s = seats[static_cast<size_t>(players - 1 - i)];
      if (p >= n || s >= n) continue;
      left.push_back(std::min(p, s));
      right.push_back(std::max(p, s));
    }
    std::vector<int32_t> all = left;
    all.insert(all.end(), right.begin(), right.end());
    if (n % 2)
      for (int32_t i = 0; i < n; ++i)
        if (std::ranges::find(all, i) == all.end()) all.push_back(i);
    for (size_t i = 0; i < all.size(); ++i) order[static_cast<size_t>(all[i])] = static_cast<int32_t>(i);
    const Tensor ap = columns(a, left), aq = columns(a, right);
    const Tensor alpha = ap.square().sum(-2, true), beta = aq.square().sum(-2, true), gamma = (ap * aq).sum(-2, true);
    const Tensor flat = gamma.abs().le(tiny);
    const Tensor tau = (beta - alpha) / flat.where(1.0, gamma * 2.0);
    const Tensor t = flat.where(0.0, tau.lt(0).where(-1.0, 1.0) / (tau.abs() + (tau * tau + 1.0).sqrt()));
    const Tensor c = (t * t + 1.0).rsqrt(), s = c * t;
    auto turn = [&](const Tensor& y) {
      const Tensor yp = columns(y, left), yq = columns(y, right);
      std::vector<Tensor> parts{yp * c - yq * s, yp * s + yq * c};
      if (n % 2) parts.push_back(columns(y, {all.back()}));
      return columns(cat(parts, -1).contiguous(), order).contiguous();
    };
    v = turn(v);
    a = turn(a);
    std::rotate(seats.begin() + 1, seats.end() - 1, seats.end());
  }
  const Tensor norms = a.square().sum(-2).sqrt();  // [.., n]
  const auto [sigma, by_size] = norms.sort(-1, true);
  const Tensor index = by_size.unsqueeze(-2).expand(a.shape());
  v = v.gather(-1, index);
  const Tensor scaled = a.gather(-1, index), s_row = sigma.unsqueeze(-2), none = s_row.le(tiny);
  // Columns of zero length get any direction that keeps the others' orthogonality: those of a QR.
  const Tensor u_small = none.where(0.0, scaled / none.where(1.0, s_row));
  const auto [uq, ur] = (u_small + none.where(Tensor::eye(n, {}, a.dtype()), 0.0)).qr();
  const Tensor diag = ur.diagonal(0, -2, -1).unsqueeze(-2);
  const Tensor u_square = uq * diag.lt(0).where(-1.0, 1.0);
  // U = Q diag(U_square, 1)
  const std::vector<Tensor> q_parts = q.cast(a.dtype()).split({n, m - n}, -1);
  Tensor u = q_parts[0].matmul(u_square);
  if (full_matrices && m > n) u = cat({u, q_parts[1]}, -1);
  const DType out = r_all.dtype();
  return {u.cast(out), sigma.cast(out), v.transpose(-2, -1).cast(out)};
}

Tensor Tensor::newton_schulz(int64_t steps, std::span<const double> params, double eps) const {
  WHIT_USER(ndim() >= 2, Assertion, "[newton_schulz] shape {}; expected at least two axes", shape());
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
    g = next.contiguous();
  }
  return tall ? g.transpose(-2, -1) : g;
}

}  // namespace whit
