"""PyTorch on BENCH_THREADS threads (2), eager or (argument `compiled`) through torch.compile: the workloads that bench/run.py compares whit with."""
import os
import sys

import peer_protocol

threads = int(os.environ.get("BENCH_THREADS", "2"))
os.environ["OMP_NUM_THREADS"] = str(threads)
import torch
import torch_networks
from torch import nn

torch.set_num_threads(threads)
torch.manual_seed(0)
is_compiled = "compiled" in sys.argv[1:]


def prepared(fn): return torch.compile(fn) if is_compiled else fn


def train_step(batch=512, images=8192):
  """A step as whit's: a random batch is drawn inside of it."""
  model = torch_networks.network()
  forward = prepared(model)
  optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
  x, y = torch.rand(images, 1, 28, 28), torch.randint(0, 10, (images,))

  def step():
    pick = torch.randint(0, images, (batch,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(forward(x[pick]), y[pick])
    loss.backward()
    optimizer.step()
    return loss.item()
  return step


def expression(shapes, fn, of=lambda x: x):
  inputs, fn = [of(torch.randn(*s)) for s in shapes], prepared(fn)

  def run():
    with torch.inference_mode(): return fn(*inputs)
  return run


def attention(**options):
  def fn(q, k, v, mask=None): return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
  return fn


def attention_gradients():
  x = [torch.randn(*HEADS, requires_grad=True) for _ in range(3)]
  fn = prepared(lambda q, k, v: attention(is_causal=True)(q, k, v).square().sum())
  return lambda: torch.autograd.grad(fn(*x), x)


HEADS = (1, 12, 1024, 64)
KERNELS = {
  "attention": lambda: expression([HEADS] * 3, attention(is_causal=True)),
  "attention-mask": lambda: expression([HEADS] * 3 + [(1024, 1024)], attention()),
  "attention-full": lambda: expression([HEADS] * 3, attention()),
  "attention-gradients": attention_gradients,
  **{f"matmul{n}": lambda n=n: expression([(n, n), (n, n)], lambda a, b: a @ b) for n in (512, 1024, 2048)},
  **{f"bfloat16-{n}": lambda n=n: expression([(n, n)] * 2, lambda a, b: a @ b, lambda x: x.bfloat16()) for n in (512, 1024, 2048)},
  **{f"int8-{n}": lambda n=n: expression([(n, n)] * 2, torch._int_mm, lambda x: (x * 40).to(torch.int8)) for n in (512, 1024, 2048)},
  "conv": lambda: expression([(8, 64, 56, 56), (64, 64, 3, 3)], lambda x, w: nn.functional.conv2d(x, w, padding=1)),
  "softmax": lambda: expression([(4096, 4096)], lambda a: torch.softmax(a, 1)),
  "layernorm": lambda: expression([(8192, 1024)], lambda a: nn.functional.layer_norm(a, (1024,))),
  "elementwise": lambda: expression([(4096, 2048)] * 2, lambda a, b: torch.tanh(a * b + a) * torch.exp(-(b * b)) + torch.sqrt(abs(a))),
  # Three small operations, each of which is one kernel.
  "tiny": lambda: expression([(16,)], lambda x: ((x + 1).sum() * x).sum()),
}


def inference(name, batch):
  """The call ends with the result in NumPy's memory."""
  network, x = torch_networks.make(name, batch)
  network = prepared(network)

  def run():
    with torch.inference_mode(): return network(x).numpy()
  return run


NETWORKS = {f"{name}-{batch}": lambda name=name, batch=batch: inference(name, batch) for name in torch_networks.SHAPES for batch in (1, 8)}

if __name__ == "__main__":
  peer_protocol.serve("torch.compile" if is_compiled else "PyTorch eager", torch.__version__.split("+")[0],
                      {"train": train_step, "gpt-token": lambda: torch_networks.gpt_token(prepared), "gpt-step": lambda: torch_networks.gpt_step(prepared),
                       "adam": lambda: torch_networks.adam_step(prepared), **KERNELS, **NETWORKS})
