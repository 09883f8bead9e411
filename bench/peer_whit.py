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
  """The call ends with the result in NumPy's memory."""
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


def gpt_step():
  model = Gpt(4)
  optimizer = nn.optim.AdamW(model.parameters(), 1e-4)
  tokens = Tensor.randint(2, 129, high=model.vocab).realize()

  @TinyJit
  @whit.Context(TRAINING=1)
  def step():
    optimizer.zero_grad()
    loss = model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    return loss.realize(*optimizer.schedule_step())
  return lambda: step().item()


NETWORKS = {
  "mlp": lambda batch: inference([nn.Linear(784, 128), Tensor.relu, nn.Linear(128, 10)], batch, 784),
  "cnn": lambda batch: inference(Model().layers, batch, 1, 28, 28),
  "resnet18": lambda batch: inference(resnet18(), batch, 3, 224, 224),
}

if __name__ == "__main__":
  peer_protocol.serve("whit from Python", "",
                      {"train": train_step, "matmul1024": lambda: matmul(1024), "tiny": tiny, "gpt-token": gpt_token, "gpt-step": gpt_step,
                       **{f"{name}-{batch}": lambda make=make, batch=batch: make(batch) for name, make in NETWORKS.items() for batch in (1, 8)}})
