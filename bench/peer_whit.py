"""whit from Python: the workloads that bench/run.py compares with other peers'. A call ends when its result is there.

peer_whit.py                           answers `WORK N` lines (peer_protocol.py)
peer_whit.py --results N [WORK...]     calls each workload N times and prints a digest of all its results' bytes; says on standard error what it does
"""
import hashlib
import json
import sys

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


def trained(optimizer, loss_of, options=None):
  """A captured step: the gradients of a loss, the optimiser, the loss read. `step.once` is the function that is captured."""
  @whit.Context(TRAINING=1)
  def once():
    optimizer.zero_grad()
    loss = loss_of().backward()
    return loss.realize(*optimizer.schedule_step())
  jitted = TinyJit(once, **(options or {}))
  def step(): return jitted().item()
  step.once = once
  return step


def train_step(batch=512, images=8192):
  model = Model()
  x = Tensor.rand(images, 1, 28, 28).realize()
  y = Tensor.randint(images, high=10).realize()

  def loss():
    pick = Tensor.randint(batch, high=images)
    return model(x[pick]).sparse_categorical_crossentropy(y[pick])
  return trained(nn.optim.Adam(nn.state.get_parameters(model), lr=1e-3), loss)


def tiny():
  x = Tensor.rand(16).realize()
  jitted = TinyJit(lambda t: ((t + 1).contiguous().sum().contiguous() * t).realize())
  return lambda: jitted(x)


class Block:
  def __init__(self, n_in, n_out, stride):
    self.body = [nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm(n_out), Tensor.relu,
                 nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm(n_out)]
    self.shortcut = [] if n_in == n_out else [nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm(n_out)]

  def __call__(self, x): return (x.sequential(self.body) + x.sequential(self.shortcut)).relu()


def resnet18():
  blocks = [Block(*b) for b in [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]]
  return [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm(64), Tensor.relu, lambda x: x.max_pool2d((3, 3), 2, padding=1), *blocks,
          lambda x: x.mean((2, 3)), nn.Linear(512, 1000)]


def inference(layers, *shape):
  """The call ends with the result in NumPy's memory. Weights are in memory before, as those of a trained network."""
  Tensor.realize(*nn.state.get_parameters(layers))
  x = Tensor.randn(*shape).realize()
  jitted = TinyJit(lambda t: t.sequential(layers).realize())
  return lambda: jitted(x).numpy()


class Gpt:
  """As torch_networks.Gpt."""
  dim, heads, vocab = 768, 12, 50257

  def __init__(self, layers):
    def made(*shape): return (Tensor.randn(*shape) * 0.02).realize()
    d = self.dim
    self.layers = [(made(d, 3 * d), made(d, d), made(d, 4 * d), made(4 * d, d)) for _ in range(layers)]
    self.embedding = made(self.vocab, d)

  def parameters(self): return [*(w for layer in self.layers for w in layer), self.embedding]

  def block(self, x, layer, attend):
    wqkv, wo, up, down = layer
    b, t, d = x.shape
    q, k, v = (s.squeeze(0) for s in (x.layernorm() @ wqkv).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).chunk(3, 0))
    x = x + attend(q, k, v).transpose(1, 2).reshape(b, t, d) @ wo
    return x + (x.layernorm() @ up).gelu() @ down

  def loss(self, tokens, targets):
    x = self.embedding[tokens]
    for layer in self.layers: x = self.block(x, layer, lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True))
    return (x.layernorm() @ self.embedding.T).sparse_categorical_crossentropy(targets)


def gpt_token(length=128):
  model = Gpt(12)
  kept = [[Tensor.zeros(1, model.heads, length, model.dim // model.heads).contiguous().realize() for _ in range(2)] for _ in model.layers]

  @TinyJit
  def token(x):
    for layer, (keys, values) in zip(model.layers, kept):
      def attend(q, k, v, keys=keys, values=values):
        keys[:, :, -1:], values[:, :, -1:] = k, v
        return q.scaled_dot_product_attention(keys, values)
      x = model.block(x, layer, attend)
    return (x[0].layernorm() @ model.embedding.T).argmax().realize()
  start = Tensor.randn(1, 1, model.dim).realize()
  return lambda: token(start).item()


def gpt_loss():
  """A model of four layers and its loss on 2 x 128 tokens."""
  model = Gpt(4)
  tokens = Tensor.randint(2, 129, high=model.vocab).realize()
  return model, lambda: model.loss(tokens[:, :-1], tokens[:, 1:])


def gpt_step(options=None):
  model, loss = gpt_loss()
  return trained(nn.optim.AdamW(model.parameters(), 1e-4), loss, options)


def adam_step():
  """8 layers of 128, batch 32."""
  layers = [nn.Linear(128, 128) for _ in range(8)]
  x, y = Tensor.rand(32, 128).realize(), Tensor.rand(32, 128).realize()

  def loss():
    h = x
    for layer in layers: h = layer(h).relu()
    return (h - y).square().mean()
  return trained(nn.optim.Adam(nn.state.get_parameters(layers), lr=1e-3), loss)


def adam_step_not_captured():
  once = adam_step().once
  return lambda: once().item()


NETWORKS = {
  "mlp": lambda batch: inference([nn.Linear(784, 128), Tensor.relu, nn.Linear(128, 10)], batch, 784),
  "cnn": lambda batch: inference(Model().layers, batch, 1, 28, 28),
  "resnet18": lambda batch: inference(resnet18(), batch, 3, 224, 224),
}

WORKLOADS = {
  "train": train_step, "tiny": tiny, "gpt-token": gpt_token, "gpt-step": gpt_step, "adam": adam_step, "adam-not-captured": adam_step_not_captured,
  **{f"{name}-{batch}": lambda make=make, batch=batch: make(batch) for name, make in NETWORKS.items() for batch in (1, 8)}}


def print_results(n_calls, names):
  for name in names or WORKLOADS:
    Tensor.manual_seed(1)
    print(f"\nmaking {name}", file=sys.stderr, flush=True)
    call, digest = WORKLOADS[name](), hashlib.sha256()
    print(f"\ncalling {name}", file=sys.stderr, flush=True)
    for _ in range(n_calls):
      result = call()
      if isinstance(result, Tensor): result = result.numpy()
      digest.update(repr(result).encode() if isinstance(result, (int, float)) else result.tobytes())
    print(json.dumps({"what": name, "digest": digest.hexdigest()}), flush=True)


if __name__ == "__main__":
  if sys.argv[1:2] == ["--results"]: print_results(int(sys.argv[2]), sys.argv[3:])
  else: peer_protocol.serve("whit from Python", "", WORKLOADS)
