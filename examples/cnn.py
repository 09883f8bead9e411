"""A small convolutional network on Fashion-MNIST, trained with Adam in a plain loop: nothing is captured.

python examples/cnn.py [--steps 100] [--save FILE] [--weights FILE]     prints a line `step loss` a step
"""
import argparse

from whit import Context, Tensor, nn
from whit.nn.datasets import mnist

BATCH = 64


class Network:
  def __init__(self):
    self.c1, self.c2, self.head = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3), nn.Linear(16 * 5 * 5, 10)

  def __call__(self, x: Tensor) -> Tensor:  # (batch, 1, 28, 28) -> (batch, 10)
    x = self.c1(x).relu().max_pool2d()
    x = self.c2(x).relu().max_pool2d()
    return self.head(x.flatten(1))


def train(steps: int, model: Network):
  images, labels, _, _ = mnist(fashion=True)
  opt = nn.optim.Adam(nn.state.get_parameters(model), lr=1e-3)
  with Context(TRAINING=1):
    for step in range(steps):
      at = step * BATCH % images.shape[0]
      x, y = images[at:at + BATCH].float() / 255, labels[at:at + BATCH]
      opt.zero_grad()
      loss = model(x).sparse_categorical_crossentropy(y).backward()
      opt.step()
      print(step, f"{loss.item():.6e}", flush=True)


if __name__ == "__main__":
  p = argparse.ArgumentParser()
  p.add_argument("--steps", type=int, default=100)
  p.add_argument("--save")
  p.add_argument("--weights")
  args = p.parse_args()
  Tensor.manual_seed(1)
  model = Network()
  if args.save: nn.state.safe_save(nn.state.get_state_dict(model), args.save)
  if args.weights: nn.state.load_state_dict(model, nn.state.safe_load(args.weights), verbose=False)
  train(args.steps, model)
