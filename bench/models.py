"""Time until a model is compiled: graph building, gradient, schedule, codegen. `python bench/models.py NAME`, one process a measurement.

resnet50, gpt2      on the device NULL, whose compiler passes the source through: batch 64 forward; forward, backward, AdamW of the small GPT-2
resnet18            on the CPU, from after the imports and weights to the first result (CACHEDB names the cache of kernels)
gpt                 on the CPU: to the end of the first training step of a GPT of 6 layers, 384 wide
mlp [jit]           on the CPU: a step of Adam of 8 layers, 128 wide, batch 32, loss read each step; median
"""
import os, sys, time

import numpy  # noqa: F401  what the first .numpy() would import is no part of a first result

name = sys.argv[1]
if name in ("resnet50", "gpt2"): os.environ["DEV"] = "NULL"

from whit import Context, GlobalCounters, Tensor, TinyJit, nn  # noqa: E402

TORCHLIKE = dict(basic=([2, 2, 2, 2], 1), bottleneck=([3, 4, 6, 3], 4))


class Block:
  def __init__(self, cin, planes, stride, expansion):
    cout = planes * expansion
    sizes = [(cin, planes, 3, stride), (planes, planes, 3, 1)] if expansion == 1 else \
            [(cin, planes, 1, 1), (planes, planes, 3, stride), (planes, cout, 1, 1)]
    self.convs = [nn.Conv2d(i, o, k, stride=s, padding=k // 2, bias=False) for i, o, k, s in sizes]
    self.norms = [nn.BatchNorm2d(o) for _, o, _, _ in sizes]
    self.down = (nn.Conv2d(cin, cout, 1, stride=stride, bias=False), nn.BatchNorm2d(cout)) if stride != 1 or cin != cout else None

  def __call__(self, x):
    y = x
    for i, (conv, norm) in enumerate(zip(self.convs, self.norms)):
      y = norm(conv(y))
      if i + 1 < len(self.convs): y = y.relu()
    if self.down: x = self.down[1](self.down[0](x))
    return (y + x).relu()


class ResNet:
  def __init__(self, kind):
    depths, expansion = TORCHLIKE[kind]
    self.stem, self.norm, self.blocks, cin = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), [], 64
    for i, depth in enumerate(depths):
      for k in range(depth):
        self.blocks.append(Block(cin, 64 << i, 2 if i and not k else 1, expansion))
        cin = (64 << i) * expansion
    self.head = nn.Linear(cin, 1000)

  def __call__(self, x):
    x = self.norm(self.stem(x)).relu().max_pool2d((3, 3), stride=2, padding=1)
    for block in self.blocks: x = block(x)
    return self.head(x.mean((2, 3)))


class Layer:
  def __init__(self, width, heads):
    self.heads, self.norms = heads, (nn.LayerNorm(width), nn.LayerNorm(width))
    self.qkv, self.out, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

  def __call__(self, x):
    b, t, c = x.shape
    q, k, v = [u.reshape(b, t, self.heads, c // self.heads).transpose(1, 2) for u in self.qkv(self.norms[0](x)).chunk(3, dim=-1)]
    x = x + self.out(q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
    return x + self.down(self.up(self.norms[1](x)).gelu())


class GPT:
  def __init__(self, n_layers, width, heads, vocab, length):
    self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(length, width)
    self.layers, self.norm, self.head = [Layer(width, heads) for _ in range(n_layers)], nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

  def __call__(self, ids):
    x = self.wte(ids) + self.wpe(Tensor.arange(ids.shape[1]).reshape(1, -1))
    for layer in self.layers: x = layer(x)
    return self.head(self.norm(x))


def report(what, start, cpu, thread):
  print(f"{what}: {(time.perf_counter() - start) * 1e3:.1f} ms, cpu {(time.process_time() - cpu) * 1e3:.1f} ms, of this thread "
        f"{(time.thread_time() - thread) * 1e3:.1f} ms, {GlobalCounters.kernel_count} kernels")


def clocks(): return time.perf_counter(), time.process_time(), time.thread_time()


def train(model, ids, targets, opt):
  with Context(TRAINING=1):
    opt.zero_grad()
    loss = model(ids).sparse_categorical_crossentropy(targets)
    loss.backward()
    c = clocks()
    Tensor.realize(loss, *opt.schedule_step())
    return loss, c


def parameters(model):
  ps = nn.state.get_parameters(model)
  for p in ps: p.replace(Tensor.empty(*p.shape).realize()) if name == "gpt2" else p.realize()
  return ps


if name in ("resnet50", "resnet18"):
  batch, kind = (64, "bottleneck") if name == "resnet50" else (1, "basic")
  model = ResNet(kind)
  for p in nn.state.get_parameters(model): p.realize()
  x = Tensor.rand(batch, 3, 224, 224).realize()
  GlobalCounters.reset()
  start = clocks()
  y = model(x)
  report("forward built", *start)
  y.realize() if name == "resnet50" else y.numpy()
  report("first result", *start)
  for _ in range(0 if name == "resnet50" else 3):
    start = clocks()
    model(x).numpy()
    report("another", *start)
elif name in ("gpt2", "gpt"):
  layers, width, heads, vocab, batch, length = (12, 768, 12, 50257, 8, 1024) if name == "gpt2" else (6, 384, 6, 65, 16, 128)
  model = GPT(layers, width, heads, vocab, length)
  opt = nn.optim.AdamW(parameters(model), lr=3e-4)
  for t in nn.state.get_parameters(opt): t.realize()
  ids, targets = (Tensor.randint(batch, length, high=vocab).realize() for _ in range(2))
  for _ in range(1 if name == "gpt2" else 3):
    GlobalCounters.reset()
    start = clocks()
    loss, c = train(model, ids, targets, opt)
    if name == "gpt": loss.item()
    print(f"built {1e3 * (c[0] - start[0]):.1f} ms, of this thread {1e3 * (c[2] - start[2]):.1f} ms")
    report("step", *start)
elif name == "mlp":
  ls = [nn.Linear(128, 128) for _ in range(8)]
  ps = [p.realize() for l in ls for p in (l.weight, l.bias)]
  opt = nn.optim.Adam(ps, lr=1e-3)
  x, y = Tensor.rand(32, 128).realize(), Tensor.rand(32, 128).realize()

  def step():
    with Context(TRAINING=1):
      opt.zero_grad()
      h = x
      for l in ls: h = l(h).relu()
      loss = ((h - y) ** 2).mean().backward()
      opt.step()
      return loss.realize()
  fn = TinyJit(step) if "jit" in sys.argv else step
  times = []
  for _ in range(30 if "jit" not in sys.argv else 300):
    start = clocks()
    fn().item()
    times.append((time.thread_time() - start[2], time.perf_counter() - start[0]))
  times = sorted(times[4:])
  print(f"step: median {times[len(times) // 2][0] * 1e3:.3f} ms of this thread, {sorted(t[1] for t in times)[len(times) // 2] * 1e3:.3f} ms")
