"""Linear regression: finds the weights of a known linear function by gradient descent with momentum.

python examples/linear.py [--steps 60] [--save FILE] [--weights FILE]     prints a line `step loss` a step
--save writes the weights it begins with, --weights begins with those of a file.
"""
import argparse

from whit import Context, Tensor, nn


def data():
  """256 points of 4 features in [-0.5, 0.5), and 3 x0 - 2 x1 + 0.5 x2 + x3 + 0.25."""
  x = Tensor([[(i * 7919 + k * 104729) % 1000 / 1000 - 0.5 for k in range(4)] for i in range(256)])
  return x, (x @ Tensor([[3.0], [-2.0], [0.5], [1.0]]) + 0.25).realize()


def train(steps: int, model: nn.Linear):
  x, y = data()
  opt = nn.optim.SGD(nn.state.get_parameters(model), lr=0.3, momentum=0.9)
  with Context(TRAINING=1):
    for step in range(steps):
      opt.zero_grad()
      loss = (model(x) - y).square().mean().backward()
      opt.step()
      print(step, f"{loss.item():.6e}", flush=True)


if __name__ == "__main__":
  p = argparse.ArgumentParser()
  p.add_argument("--steps", type=int, default=60)
  p.add_argument("--save")
  p.add_argument("--weights")
  args = p.parse_args()
  Tensor.manual_seed(1)
  model = nn.Linear(4, 1)
  if args.save: nn.state.safe_save(nn.state.get_state_dict(model), args.save)
  if args.weights: nn.state.load_state_dict(model, nn.state.safe_load(args.weights), verbose=False)
  train(args.steps, model)
  print("weights", [round(w, 3) for w in model.weight.flatten().tolist()], "bias", round(model.bias.item(), 3))
