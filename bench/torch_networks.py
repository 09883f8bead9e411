"""The networks whose inference bench/run.py compares, in PyTorch; peer_whit.py has the same in whit."""
import torch
from torch import nn

SHAPES = {"mlp": (784,), "cnn": (1, 28, 28), "resnet18": (3, 224, 224)}


class Block(nn.Module):
  def __init__(self, n_in, n_out, stride):
    super().__init__()
    self.body = nn.Sequential(
      nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(),
      nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out))
    self.shortcut = nn.Identity() if n_in == n_out else nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

  def forward(self, x): return torch.relu(self.body(x) + self.shortcut(x))


def network():
  return nn.Sequential(
    nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(576, 10))


def resnet18():
  blocks = [Block(*b) for b in [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]]
  return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
                       nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def make(name, batch):
  """The network, ready for inference, and an input."""
  made = {"mlp": lambda: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), "cnn": network, "resnet18": resnet18}[name]()
  return made.eval(), torch.randn(batch, *SHAPES[name])
