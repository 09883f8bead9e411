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


class Gpt:
  """A decoder of the shape of GPT-2 small, its parts without biases; the embedding is the output matrix too."""
  dim, heads, vocab = 768, 12, 50257

  def __init__(self, layers):
    def made(*shape): return (torch.randn(*shape) * 0.02).requires_grad_()
    d = self.dim
    self.layers = [(made(d, 3 * d), made(d, d), made(d, 4 * d), made(4 * d, d)) for _ in range(layers)]
    self.embedding = made(self.vocab, d)

  def parameters(self): return [*(w for layer in self.layers for w in layer), self.embedding]

  def norm(self, x): return nn.functional.layer_norm(x, (self.dim,))

  def block(self, x, layer, attend):
    """`attend` is given q, k, v [batch, heads, tokens, 64]."""
    wqkv, wo, up, down = layer
    b, t, d = x.shape
    q, k, v = (self.norm(x) @ wqkv).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
    x = x + attend(q, k, v).transpose(1, 2).reshape(b, t, d) @ wo
    return x + nn.functional.gelu(self.norm(x) @ up, approximate="tanh") @ down

  def loss(self, tokens, targets):
    def attend(q, k, v): return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = self.embedding[tokens]
    for layer in self.layers: x = self.block(x, layer, attend)
    return nn.functional.cross_entropy((self.norm(x) @ self.embedding.T).flatten(0, 1), targets.flatten())


def gpt_token(prepared, length=128):
  """One token after length - 1 others, whose keys and values are kept; the likeliest next token."""
  model = Gpt(12)
  kept = [torch.zeros(2, 1, model.heads, length, model.dim // model.heads) for _ in model.layers]
  start = torch.randn(1, 1, model.dim)

  @prepared
  def token(x):
    for layer, cache in zip(model.layers, kept):
      def attend(q, k, v, cache=cache):
        cache[0, :, :, -1:], cache[1, :, :, -1:] = k, v
        return nn.functional.scaled_dot_product_attention(q, cache[0], cache[1])
      x = model.block(x, layer, attend)
    return (model.norm(x[0]) @ model.embedding.T).argmax()

  def run():
    with torch.inference_mode(): return int(token(start))
  return run


def trained(optimizer, loss_of):
  """A step: the gradients of a loss, the optimiser, the loss read."""
  def step():
    optimizer.zero_grad()
    loss = loss_of()
    loss.backward()
    optimizer.step()
    return loss.item()
  return step


def gpt_step(prepared):
  model = Gpt(4)
  tokens, loss_of = torch.randint(0, model.vocab, (2, 129)), prepared(model.loss)
  return trained(torch.optim.AdamW(model.parameters(), 1e-4), lambda: loss_of(tokens[:, :-1], tokens[:, 1:]))


def adam_step(prepared):
  """8 layers of 128, batch 32."""
  model = nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(128, 128), nn.ReLU())))
  forward, x, y = prepared(model), torch.rand(32, 128), torch.rand(32, 128)
  return trained(torch.optim.Adam(model.parameters(), lr=1e-3), lambda: (forward(x) - y).square().mean())


def make(name, batch):
  """The network, ready for inference, and an input."""
  made = {"mlp": lambda: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)), "cnn": network, "resnet18": resnet18}[name]()
  return made.eval(), torch.randn(batch, *SHAPES[name])
