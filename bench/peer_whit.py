"""whit from Python: the workloads that bench/run.py compares whit with. A call ends when its result is there."""
import peer_protocol

import whit
from whit import Device, Tensor, TinyJit, nn


class Model:
  def __init__(self):
    self.layers = [
      nn.Conv2d(1, 32, 5), Tensor.relu, nn.Conv2d(32, 32, 5), Tensor.relu, nn.BatchNorm(32), Tensor.max_pool2d,
      nn.Conv2d(32, 64, 3), Tensor.relu, nn.Conv2d(64, 64, 3), Tensor.relu, nn.BatchNorm(64), Tensor.max_pool2d,
      lambda x: x.flatten(1), nn.Linear(576, 10)]

  def __call__(self, x): return x.sequential(self.layers)


def train_step(batch=512, images=8192):
  model = Model()
  optimizer = nn.optim.Adam(nn.state.get_parameters(model), lr=1e-3)
  x = Tensor.rand(images, 1, 28, 28).realize()
  y = Tensor.randint(images, high=10).realize()

  @TinyJit
  @whit.Context(TRAINING=1)
  def step():
    pick = Tensor.randint(batch, high=images)
    optimizer.zero_grad()
    loss = model(x[pick]).sparse_categorical_crossentropy(y[pick]).backward()
    return loss.realize(*optimizer.schedule_step())
  return lambda: step().item()


def matmul(n):
  a, b = Tensor.randn(n, n).realize(), Tensor.randn(n, n).realize()
  jitted = TinyJit(lambda p, q: (p @ q).realize())

  def run():
    jitted(a, b)
    Device[Device.DEFAULT].synchronize()
  return run


def tiny():
  x = Tensor.randn(16).realize()
  jitted = TinyJit(lambda t: ((t + 1).contiguous().sum().contiguous() * t).realize())
  return lambda: jitted(x)


if __name__ == "__main__":
  peer_protocol.serve("whit from Python", "",
                      {"train": train_step, "matmul1024": lambda: matmul(1024), "tiny": tiny})
