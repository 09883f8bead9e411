"""An op of one's own, with its gradient: a clipped linear unit with a leaky gradient, as a composition of ops and as loops."""
from whit import Tensor, TinyJit, function, grad, vmap
from whit.uop.ops import AxisType, UOp


def gradient(g: Tensor, x: Tensor) -> Tensor:
  """g where x was not clipped, a quarter of it elsewhere."""
  return ((x > 0) & (x < 1)).where(1.0, 0.25) * g


# One node of the graph. `grad_fxn` gets the gradients of the results and, in call.src[1:], the arguments; it gives a gradient an argument.
@function(grad_fxn=lambda g, call: gradient(g, call.src[1]))
def clipped(x: Tensor) -> Tensor: return x.maximum(0).minimum(1)


def clipped_loop(out: UOp, x: UOp) -> UOp:
  """The same as a loop: SINK(END(STORE(INDEX(out, i), value), i)). docs/ir.md, section 2, says what may stand here."""
  i = UOp.range(x.shape[0], 0, AxisType.LOOP)
  return out.index(i).store(x.index(i).maximum(0).minimum(1)).end(i).sink()


def clipped_by_loop(x: Tensor) -> Tensor:
  # The arguments are `out` and x; the value of out before the loop has no gradient.
  return Tensor.empty(x.shape[0]).custom_kernel(x, fxn=clipped_loop, grad_fxn=lambda g, _, call: (None, gradient(g, call.src[2])))[0]


def main() -> None:
  x = Tensor([-2.0, 0.25, 0.5, 3.0]).realize()
  for op in (clipped, clipped_by_loop):
    print("values  ", op(x).tolist())
    print("gradient", grad(lambda x: (op(x) * 4).sum())(x).tolist())
  # It is a node like any other: it maps, it is captured, and it is fused with what stands around it.
  print("mapped  ", vmap(clipped)(x.reshape(2, 2)).tolist())
  step = TinyJit(lambda x: clipped(x * 2).sum().realize())
  print("captured", [step((x + i).realize()).item() for i in range(3)])


if __name__ == "__main__": main()
