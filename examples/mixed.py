"""Mixed precision: float16 (or bfloat16) weights and activations, float32 masters and sums, and a loss scale that follows the overflows.

python examples/mixed.py [--dtype half|bfloat16|float] [--steps 120]     prints a line `step loss` a step
"""
import argparse

from whit import Context, Tensor, dtypes, nn


class Scaler:
  """Multiplies the loss so that small gradients are no zeros in float16; halves when one is infinite, doubles after `every` good steps."""

  def __init__(self, scale=2.0**16, every=50): self.scale, self.every, self.good = scale, every, 0

  def unscale(self, grads: list[Tensor]) -> tuple[list[Tensor], bool]:
    grads = [g.cast(dtypes.float32) / self.scale for g in grads]
    finite = bool(Tensor.stack(*[g.isfinite().all() for g in grads]).all().item())
    self.good = self.good + 1 if finite else 0
    if not finite: self.scale /= 2
    elif self.good % self.every == 0: self.scale *= 2
    return grads, finite


def train(dtype, steps: int) -> list[float]:
  Tensor.manual_seed(1)
  x = Tensor.rand(256, 8).realize()
  y = ((x * 6).sin().sum(1, keepdim=True) * 0.25).realize()
  model = [nn.Linear(8, 64), nn.Linear(64, 1)]
  masters = nn.state.get_parameters(model)  # float32: an update of 1e-4 is lost in float16
  for p in masters: p.realize()
  opt, scaler, losses = nn.optim.Adam(masters, lr=3e-3), Scaler(), []
  with Context(TRAINING=1):
    for step in range(steps):
      w0, b0, w1, b1 = (p.cast(dtype) for p in masters)
      out = (x.cast(dtype).linear(w0.T, b0).relu()).linear(w1.T, b1)
      loss = (out.cast(dtypes.float32) - y).square().mean()  # the loss is summed in float32
      grads, finite = scaler.unscale((loss * scaler.scale).gradient(*masters))
      if finite:
        for p, g in zip(masters, grads): p.grad = g
        opt.step()
      losses.append(loss.item())
      print(step, f"{losses[-1]:.6e}", flush=True)
  return losses


if __name__ == "__main__":
  p = argparse.ArgumentParser()
  p.add_argument("--dtype", default="half")
  p.add_argument("--steps", type=int, default=120)
  args = p.parse_args()
  train(getattr(dtypes, args.dtype), args.steps)
