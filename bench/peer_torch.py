"""PyTorch, eager, on BENCH_THREADS threads (2): the workloads that bench/run.py compares whit with."""
import os

import peer_protocol

threads = int(os.environ.get("BENCH_THREADS", "2"))
os.environ.setdefault("OMP_NUM_THREADS", str(threads))
import torch
import torch_networks
from torch import nn

torch.set_num_threads(threads)
torch.manual_seed(0)


def train_step(batch=512, images=8192):
  """A step as whit's: a random batch is drawn inside of it."""
  model = torch_networks.network()
  optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
  x, y = torch.rand(images, 1, 28, 28), torch.randint(0, 10, (images,))

  def step():
    pick = torch.randint(0, images, (batch,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
    loss.backward()
    optimizer.step()
    return loss.item()
  return step


def expression(shapes, fn):
  inputs = [torch.randn(*s) for s in shapes]

  def run():
    with torch.inference_mode(): return fn(*inputs)
  return run


def attention(gradients=False):
  x = [torch.randn(1, 12, 1024, 64, requires_grad=gradients) for _ in range(3)]

  def run():
    with torch.set_grad_enabled(gradients):
      out = nn.functional.scaled_dot_product_attention(*x, is_causal=True)
      return torch.autograd.grad(out.square().sum(), x) if gradients else out
  return run


KERNELS = {
  "attention": attention, "attention_written_out": attention, "attention_gradients": lambda: attention(True),
  **{f"matmul{n}": lambda n=n: expression([(n, n), (n, n)], lambda a, b: a @ b) for n in (512, 1024, 2048)},
  "conv": lambda: expression([(8, 64, 56, 56), (64, 64, 3, 3)], lambda x, w: nn.functional.conv2d(x, w, padding=1)),
  "softmax": lambda: expression([(4096, 4096)], lambda a: torch.softmax(a, 1)),
  "layernorm": lambda: expression([(8192, 1024)], lambda a: nn.functional.layer_norm(a, (1024,))),
  "elementwise": lambda: expression([(4096, 2048)] * 2, lambda a, b: torch.tanh(a * b + a) * torch.exp(-(b * b)) + torch.sqrt(abs(a))),
}


def tiny():
  """Three small operations, each of which is one kernel."""
  x = torch.randn(16)

  def run():
    with torch.inference_mode(): return ((x + 1).sum() * x).sum()
  return run


def inference(name, batch):
  network, x = torch_networks.make(name, batch)

  def run():
    with torch.inference_mode(): return network(x)
  return run


NETWORKS = {f"{name}-{batch}": lambda name=name, batch=batch: inference(name, batch) for name in torch_networks.SHAPES for batch in (1, 8)}

if __name__ == "__main__":
  peer_protocol.serve("PyTorch eager", torch.__version__,
                      {"train": train_step, "tiny": tiny, "gpt-token": torch_networks.gpt_token, "gpt-step": torch_networks.gpt_step,
                       "gpt-step-compiled": lambda: torch_networks.gpt_step(compiled=True), **KERNELS, **NETWORKS})
