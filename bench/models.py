"""What compiling and memory cost from Python: `models.py NAME`, one process a measurement; prints a JSON object a line, as bench/report.h.

resnet50, gpt2      on the device NULL, whose compiler passes the source through: batch 64 forward; forward, backward, AdamW of the small GPT-2
resnet18            on the CPU, from after the imports and weights to the first result, and later calls (CACHEDB names the cache of kernels)
gpt                 on the CPU: to the end of the first training step of bench/'s GPT, and steps as they are replayed
plans               bytes that the planner takes and the largest sum of live bytes, for the models of bench/
budget              a training step of the GPT with and without a budget of bytes for its temporaries: bytes, and seconds in turn
"""
import json
import os
import re
import statistics
import sys
import time

import numpy  # noqa: F401  what the first .numpy() would import is no part of a first result

if __name__ == "__main__" and sys.argv[1:] and sys.argv[1] in ("resnet50", "gpt2", "plans"): os.environ["DEV"] = "NULL"

import peer_whit
from peer_whit import nn, whit
from whit import Context, GlobalCounters, Tensor, TinyJit
from whit.schedule import create_schedule


class Bottleneck:
  def __init__(self, n_in, planes, stride):
    n_out = 4 * planes
    self.body = [nn.Conv2d(n_in, planes, 1, bias=False), nn.BatchNorm(planes), Tensor.relu,
                 nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm(planes), Tensor.relu,
                 nn.Conv2d(planes, n_out, 1, bias=False), nn.BatchNorm(n_out)]
    self.shortcut = [] if stride == 1 and n_in == n_out else [nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm(n_out)]

  def __call__(self, x): return (x.sequential(self.body) + x.sequential(self.shortcut)).relu()


def resnet50():
  blocks, n_in = [], 64
  for i, depth in enumerate([3, 4, 6, 3]):
    for k in range(depth):
      blocks.append(Bottleneck(n_in, 64 << i, 2 if i and not k else 1))
      n_in = 256 << i
  return [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm(64), Tensor.relu, lambda x: x.max_pool2d((3, 3), 2, padding=1), *blocks,
          lambda x: x.mean((2, 3)), nn.Linear(n_in, 1000)]


class Layer:
  def __init__(self, width, heads):
    self.heads, self.norms = heads, (nn.LayerNorm(width), nn.LayerNorm(width))
    self.qkv, self.out, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

  def __call__(self, x):
    b, t, c = x.shape
    q, k, v = [u.reshape(b, t, self.heads, c // self.heads).transpose(1, 2) for u in self.qkv(self.norms[0](x)).chunk(3, dim=-1)]
    x = x + self.out(q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
    return x + self.down(self.up(self.norms[1](x)).gelu())


class GPT2:
  """With all its parts: places, biases, norms with weights, a head of its own."""

  def __init__(self, n_layers=12, width=768, heads=12, vocab=50257, length=1024):
    self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(length, width)
    self.layers, self.norm, self.head = [Layer(width, heads) for _ in range(n_layers)], nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

  def __call__(self, ids):
    x = self.wte(ids) + self.wpe(Tensor.arange(ids.shape[1]).reshape(1, -1))
    for layer in self.layers: x = layer(x)
    return self.head(self.norm(x))


def report(what, unit, *values):
  print(json.dumps({"what": what, "unit": unit, "min": min(values), "median": statistics.median(values), "max": max(values), "n": len(values)}), flush=True)


class Watch:
  """Wall and CPU time since it was made."""

  def __init__(self): self.wall, self.cpu = time.perf_counter(), time.process_time()
  def ms(self): return (time.perf_counter() - self.wall) * 1e3
  def cpu_ms(self): return (time.process_time() - self.cpu) * 1e3


def realized(tensors, empty=False):
  for t in tensors: t.replace(Tensor.empty(*t.shape).realize()) if empty else t.realize()
  return tensors


def null(name):
  """Building, gradient, schedule, lowering of all kernels."""
  if name == "resnet50":
    layers = resnet50()
    realized(nn.state.get_parameters(layers))
    x = Tensor.rand(64, 3, 224, 224).realize()
    def results(): return [x.sequential(layers)]
  else:
    model = GPT2()
    optimizer = nn.optim.AdamW(realized(nn.state.get_parameters(model), empty=True), lr=3e-4)
    realized(nn.state.get_parameters(optimizer))
    ids, targets = (Tensor.randint(8, 1024, high=50257).realize() for _ in range(2))

    @Context(TRAINING=1)
    def results():
      optimizer.zero_grad()
      loss = model(ids).sparse_categorical_crossentropy(targets).backward()
      return [loss, *optimizer.schedule_step()]
  GlobalCounters.reset()
  watch = Watch()
  all_ = results()
  report("built", "ms", watch.ms())
  Tensor.realize(*all_)
  report("all without compiler", "ms", watch.ms())
  report("all without compiler, CPU time", "ms", watch.cpu_ms())
  report("kernels", "kernels", GlobalCounters.kernel_count)


def first_result():
  layers = peer_whit.resnet18()
  realized(nn.state.get_parameters(layers))
  x = Tensor.rand(1, 3, 224, 224).realize()
  watch = Watch()
  x.sequential(layers).numpy()
  report("first", "ms", watch.ms())
  report("first, CPU time", "ms", watch.cpu_ms())
  later = []
  for _ in range(4):
    watch = Watch()
    x.sequential(layers).numpy()
    later.append(watch.ms())
  report("later", "ms", *later)


def first_step():
  step = peer_whit.gpt_step()
  watch = Watch()
  step()
  report("first", "ms", watch.ms())
  report("first, CPU time", "ms", watch.cpu_ms())
  step()
  later = []
  for _ in range(4):
    watch = Watch()
    step()
    later.append(watch.ms())
  report("later", "ms", *later)


def stats_of_step(optimizer, loss):
  with Context(TRAINING=1):
    optimizer.zero_grad()
    return create_schedule(loss().backward(), *optimizer.schedule_step()).stats


def plans():
  """Weights and optimiser state are in memory before. An inference is captured too: there what weights alone decide lasts from call to call."""
  def training(make):
    model, loss = make()
    optimizer = nn.optim.AdamW(realized(model if isinstance(model, list) else nn.state.get_parameters(model)), lr=1e-3)
    realized(nn.state.get_parameters(optimizer))
    return stats_of_step(optimizer, loss)

  def network():
    model, x, y = peer_whit.Model(), Tensor.rand(512, 1, 28, 28).realize(), Tensor.randint(512, high=10).realize()
    return model, lambda: model(x).sparse_categorical_crossentropy(y)

  def gpt2():
    model, ids = GPT2(), Tensor.randint(2, 8, 1024, high=50257).realize()
    return realized(nn.state.get_parameters(model), empty=True), lambda: model(ids[0]).sparse_categorical_crossentropy(ids[1])

  def gpt():
    model, loss = peer_whit.gpt_loss()
    return model.parameters(), loss

  def forward(layers, *shape):
    realized(nn.state.get_parameters(layers))
    x, jitted = Tensor.rand(*shape).realize(), TinyJit(lambda t: t.sequential(layers).realize())
    stats = create_schedule(x.sequential(layers)).stats
    if hasattr(TinyJit, "lasting_bytes"):
      for _ in range(2): jitted(x)
      stats |= {"captured": jitted.arena_bytes, "lasting": jitted.lasting_bytes}
    return stats
  for name, stats in {"ResNet-18, batch 1": lambda: forward(peer_whit.resnet18(), 1, 3, 224, 224), "ResNet-50, batch 64": lambda: forward(resnet50(), 64, 3, 224, 224),
                      "small CNN, batch 8": lambda: forward(peer_whit.Model().layers, 8, 1, 28, 28), "training step of the small CNN": lambda: training(network),
                      "training step of the GPT": lambda: training(gpt), "training step of GPT-2 small": lambda: training(gpt2)}.items():
    s = stats()
    report(name, "MB", s["arena_bytes"] / 1e6)
    report(f"{name}, live", "MB", s["live_bytes"] / 1e6)
    for kind in ("captured", "lasting"):
      if kind in s: report(f"{name}, {kind}", "MB", s[kind] / 1e6)


def budget(pairs=8):
  """The budget is half way from what a step takes to the least that computing values again can reach."""
  def fresh(options=None):
    model, loss = peer_whit.gpt_loss()
    return nn.optim.AdamW(realized(model.parameters()), 1e-4), loss, options
  plain = stats_of_step(*fresh()[:2])["arena_bytes"]
  try:
    peer_whit.trained(*fresh({"memory_budget": 1}))()
    raise RuntimeError("a step in one byte")
  except MemoryError as error:
    least = int(re.search(r"temporaries need at least (\d+) bytes", str(error)).group(1))
  half = (plain + least) // 2
  for what, n in (("temporaries", plain), ("temporaries, least possible", least), ("temporaries, budget", half)): report(what, "MB", n / 1e6)
  steps, seconds = [peer_whit.trained(*fresh()), peer_whit.trained(*fresh({"memory_budget": half}))], ([], [])
  for i in range(3 + pairs):
    for step, times in zip(steps, seconds):
      watch = Watch()
      step()
      if i >= 3: times.append(watch.ms())
  report("time without a budget", "ms", *seconds[0])
  report("time with half of what can be computed again", "ms", *seconds[1])
  report("time under that budget to that without", "x", min(seconds[1]) / min(seconds[0]))


if __name__ == "__main__":
  name = sys.argv[1] if len(sys.argv) == 2 else ""
  run = {"resnet50": lambda: null(name), "gpt2": lambda: null(name), "resnet18": first_result, "gpt": first_step, "plans": plans, "budget": budget}.get(name)
  if run is None: sys.exit(__doc__)
  run()
