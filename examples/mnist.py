"""Trains a convolutional network on Fashion-MNIST from Python.

STEPS=600 BATCH=512 FASHION=1 python examples/mnist.py
"""
import time
from typing import Callable, List

from whit import Context, GlobalCounters, Tensor, TinyJit, function, getenv, nn
from whit.nn.datasets import mnist


class Model:
  def __init__(self):
    self.layers: List[Callable[[Tensor], Tensor]] = [
      nn.Conv2d(1, 32, 5), Tensor.relu,
      nn.Conv2d(32, 32, 5), Tensor.relu,
      nn.BatchNorm(32), Tensor.max_pool2d,
      nn.Conv2d(32, 64, 3), Tensor.relu,
      nn.Conv2d(64, 64, 3), Tensor.relu,
      nn.BatchNorm(64), Tensor.max_pool2d,
      lambda x: x.flatten(1), nn.Linear(576, 10)]

  @function
  def __call__(self, x: Tensor) -> Tensor: return x.sequential(self.layers)


if __name__ == "__main__":
  steps, batch = getenv("STEPS", 600), getenv("BATCH", 512)
  X_train, Y_train, X_test, Y_test = mnist(fashion=bool(getenv("FASHION", 1)))
  model = Model()
  opt = nn.optim.Adam(nn.state.get_parameters(model), lr=1e-3)

  @TinyJit
  @Context(TRAINING=1)
  def train_step() -> Tensor:
    opt.zero_grad()
    samples = Tensor.randint(batch, high=X_train.shape[0])
    loss = model(X_train[samples]).sparse_categorical_crossentropy(Y_train[samples]).backward()
    return loss.realize(*opt.schedule_step())

  @TinyJit
  def get_test_acc() -> Tensor: return (model(X_test).argmax(axis=1) == Y_test).mean() * 100

  test_acc, start = float("nan"), time.perf_counter()
  for i in range(steps):
    GlobalCounters.reset()
    loss = train_step()
    if i % 10 == 9 or i == steps - 1:
      if i % 200 == 199 or i == steps - 1: test_acc = get_test_acc().item()
      rate = (i + 1) * batch / (time.perf_counter() - start)
      print(f"step {i + 1:4d}/{steps}  loss {loss.item():6.3f}  test accuracy {test_acc:5.2f} %  {rate:6.0f} images/s", flush=True)

  if target := getenv("TARGET_EVAL_ACC_PCT", 0.0):
    assert test_acc >= target, f"test accuracy {test_acc:.2f} % is below {target} %"
