// An op of one's own, with its gradient: a clipped linear unit with a leaky gradient, as a composition of ops and as a loop.
#include <cstdio>

#include "ir/build.h"
#include "whit/whit.h"
using namespace whit;

// g where x was not clipped, a quarter of it elsewhere.
Tensor gradient(const Tensor& g, const Tensor& x) { return ((x > 0) & (x < 1)).where(1.0, 0.25) * g; }

// One node of the graph: the body over placeholders, called with x.
Tensor clipped(const Tensor& x) {
  static const int64_t id =
      register_gradient([](std::span<const Tensor> g, std::span<const Tensor> in) { return std::vector{gradient(g[0], in[0])}; });
  const Tensor p = x.as_param(0);
  return Tensor::call(std::vector{x}, std::vector{p.maximum(0).minimum(1)}, id)[0];
}

// The same as a loop: SINK(END(STORE(INDEX(out, i), value), i)). docs/ir.md, section 2, says what may stand here.
UOp clipped_loop(std::span<const UOp> params) {
  const UOp &out = params[0], &x = params[1], i = range(x.shape()[0], 0, AxisType::Loop);
  const UOp value = alu(Op::Min, {alu(Op::Max, {load(index(x, i)), const_like(x, 0)}), const_like(x, 1)});
  return UOp::make(Op::Sink, DType::Void, {end(store(index(out, i), value), std::vector{i})});
}

Tensor clipped_by_loop(const Tensor& x) {
  static const int64_t id =
      register_gradient([](std::span<const Tensor> g, std::span<const Tensor> in) { return std::vector{Tensor(), gradient(g[0], in[1])}; });
  return Tensor::custom_kernel(std::vector{Tensor::empty({x.shape()[0]}), x}, clipped_loop, id)[0];
}

int main() {
  const Tensor x = Tensor::from<float>({-2, 0.25, 0.5, 3}).realize();
  for (const auto op : {clipped, clipped_by_loop}) {
    for (const Tensor& t : {op(x), (op(x) * 4).sum().gradient({x})[0]}) {
      for (const float v : t.to_vector<float>()) std::printf("%.2f ", v);
      std::printf("\n");
    }
  }
}
