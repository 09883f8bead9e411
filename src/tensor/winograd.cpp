// 3x3 convolutions by Winograd's F(4, 3) along rows: six rows of the input, combined, give six convolutions of one row,
// which combined give four rows of the output. That is half of the products of the direct sum. Columns stay as they are,
// so every pass runs along memory. The points are 0, 1, -1, 2, -2 and infinity.
#include <cmath>
#include <map>
#include <mutex>

#include "base/flags.h"
#include "tensor/impl.h"

namespace whit::detail {
namespace {

constexpr int64_t kTile = 4, kPoints = 6;
constexpr double kInput[kPoints][6] = {{4, 0, -5, 0, 1, 0},  {0, -4, -4, 1, 1, 0}, {0, 4, -4, -1, 1, 0},
                                       {0, -2, -1, 2, 1, 0}, {0, 2, -1, -2, 1, 0}, {0, 4, 0, -5, 0, 1}};
constexpr double kWeight[kPoints][3] = {
    {1 / 4.0, 0, 0}, {-1 / 6.0, -1 / 6.0, -1 / 6.0}, {-1 / 6.0, 1 / 6.0, -1 / 6.0}, {1 / 24.0, 1 / 12.0, 1 / 6.0}, {1 / 24.0, -1 / 12.0, 1 / 6.0},
    {0, 0, 1}};
constexpr double kOutput[kTile][kPoints] = {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}};

// The sum of x[.., j, ..] * factors[j].
Tensor combined(std::span<const double> factors, std::span<const Tensor> x) {
  Tensor sum;
  for (size_t j = 0; j < x.size(); ++j) {
    if (factors[j] == 0) continue;
    const Tensor term = factors[j] == 1 ? x[j] : x[j] * factors[j];
    sum = sum.defined() ? sum + term : term;
  }
  return sum;
}

// In memory of its own (contiguous() leaves what has no device yet, as parameters have none).
Tensor kept(const Tensor& x) { return alu1(Op::Contiguous, x); }

// x [b, cin, h, w], weight [cout, cin, 3, 3], or [cin, cout, 3, 3] that stands for its transpose with reversed taps (which
// is combined as it lies in memory); pads of columns before and after, of rows before and after.
Tensor convolved(const Tensor& x, const Tensor& weight, const Dims& pads, bool reversed) {
  const int64_t b = x.shape()[0], cin = x.shape()[1], cout = weight.shape()[reversed ? 1 : 0];
  const int64_t height = x.shape()[2] + pads[2] + pads[3], width = x.shape()[3] + pads[0] + pads[1];
  const int64_t n_tiles = (height - 2 + kTile - 1) / kTile, below = (n_tiles + 1) * kTile - height;
  const Tensor tiles = x.pad(IntList(Dims{pads[0], pads[1], pads[2], pads[3] + below})).reshape({b, cin, n_tiles + 1, kTile, width});
  std::vector<Tensor> rows, taps, sums, out;
  for (int64_t j = 0; j < kPoints; ++j)
    rows.push_back(wrap(cut(cut(tiles.uop(), 2, j / kTile, n_tiles + j / kTile), 3, j % kTile, j % kTile + 1)).reshape({b, cin, n_tiles, width}));
  for (int64_t j = 0; j < 3; ++j) {
    const int64_t tap = reversed ? 2 - j : j;
    taps.push_back(wrap(cut(weight.uop(), 2, tap, tap + 1)));
  }
  for (int64_t i = 0; i < kPoints; ++i) {
    const Tensor w = kept(combined(kWeight[i], taps));
    sums.push_back(kept(kept(combined(kInput[i], rows)).conv2d(reversed ? w.transpose(0, 1).flip({3}) : w)));
  }
  for (int64_t i = 0; i < kTile; ++i) out.push_back(combined(kOutput[i], sums));
  return wrap(cut(Tensor::stack(out, 3).reshape({b, cout, n_tiles * kTile, width - 2}).uop(), 2, 0, height - 2));
}

Tensor direct(const Tensor& x, const Tensor& weight, const Dims& pads, bool reversed) {
  const FlagScope off("WINO", int64_t{0});
  return x.conv2d(reversed ? weight.transpose(0, 1).flip({2, 3}) : weight, {}, {.padding = IntList(pads)});
}

// Do the products that are saved repay the passes over input and sums, and over weights at `per_weight` of those? The
// numbers are measured: a product takes about 1/130 of what a pass takes for an element. Weights that are
// not trained are combined once for all replays.
bool pays(const Tensor& x, const Tensor& weight, const Dims& pads, double per_weight, double least) {
  const double height = static_cast<double>(x.shape()[2] + pads[2] + pads[3] - 2);
  const double columns = static_cast<double>(x.shape()[0] * (x.shape()[3] + pads[0] + pads[1] - 2));
  const double n_tiled = std::ceil(height / kTile) * kTile * columns, cin = static_cast<double>(x.shape()[1]);
  const double n_weights = static_cast<double>(weight.numel()) / 9;
  const double saved = n_weights * (18 * height * columns - 9 * n_tiled);
  return saved >= least * (n_tiled * (cin + n_weights / cin) + per_weight * n_weights);
}

// The value of `fn` as a CALL of parameters.
template <class Fn> Tensor called(const std::vector<Tensor>& args, int64_t gradient, const Fn& fn) {
  std::vector<Tensor> params;
  for (size_t i = 0; i < args.size(); ++i) params.push_back(args[i].as_param(static_cast<int64_t>(i)));
  const Tensor body = fn(params);
  return Tensor::call(args, std::span(&body, 1), gradient)[0];
}

// The gradient of the input is a convolution with the reversed weights; that of the weights sums over products at the
// six points, whose input side is what the convolution made.
int64_t gradient_id(const Dims& pads, bool reversed) {
  static std::mutex mutex;
  static std::map<std::vector<int64_t>, int64_t> ids;
  std::vector<int64_t> key(pads.begin(), pads.end());
  key.push_back(reversed);
  const std::scoped_lock lock(mutex);
  int64_t& id = ids[key];
  if (id == 0)
    id = register_gradient([pads, reversed](std::span<const Tensor> grads, std::span<const Tensor> in) {
      Dims back;
      for (const int64_t p : pads) back.push_back(2 - p);
      const bool at_points = flag::WINO() > 1 || pays(in[0], in[1], pads, 60, 180);
      const Tensor of_weight = called({in[0], in[1], grads[0]}, 0, [&](std::span<const Tensor> p) {
        const Tensor y = at_points ? convolved(p[0], p[1], pads, reversed) : direct(p[0], p[1], pads, reversed);
        return y.gradient(p.subspan(1, 1), p[2])[0];
      });
      if (const std::optional<Tensor> of_input = winograd(grads[0], in[1], back, !reversed)) return std::vector{*of_input, of_weight};
      return std::vector{direct(grads[0], in[1], back, !reversed), of_weight};
    });
  return id;
}

}  // namespace

std::optional<Tensor> winograd(const Tensor& x, const Tensor& weight, const Dims& pads, bool reversed) {
  const int64_t height = x.shape()[2] + pads[2] + pads[3] - 2, width = x.shape()[3] + pads[0] + pads[1] - 2;
  if (flag::WINO() <= 0 || height < 1 || width < 1 || weight.shape()[2] != 3 || weight.shape()[3] != 3) return {};
  if (flag::WINO() == 1 && !pays(x, weight, pads, flag::TRAINING() ? 28 : 2.5, 120)) return {};
  return called({x, weight}, gradient_id(pads, reversed), [&](std::span<const Tensor> p) { return convolved(p[0], p[1], pads, reversed); });
}

}  // namespace whit::detail
