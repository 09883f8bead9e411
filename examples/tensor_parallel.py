"""Tensor parallel training: each device has a part of every weight, and all see the whole batch.

DEVICES=2 STEPS=30 python examples/tensor_parallel.py          devices of one process
mpirun -np 2 python examples/tensor_parallel.py                a device a process
"""
from whit import Context, Device, Tensor, TinyJit, distributed, getenv, nn


class Block:
  """Attention by heads and a layer of hidden units. What goes in is cut by outputs, what comes back by inputs."""
  AXES = {"q.weight": 0, "k.weight": 0, "v.weight": 0, "o.weight": 1, "up.weight": 0, "up.bias": 0, "down.weight": 1}

  def __init__(self, tokens: int = 16, dim: int = 32, heads: int = 4):
    self.heads, self.embed = heads, nn.Embedding(tokens, dim)
    self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
    self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
    self.n1, self.n2, self.out = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Linear(dim, tokens)

  def __call__(self, t: Tensor) -> Tensor:
    x = self.embed(t)
    h = self.n1(x)
    q, k, v = (f(h).reshape(*t.shape, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
    x = x + self.o(q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).flatten(2))  # summed over devices
    return self.out(x + self.down(self.up(self.n2(x)).gelu()))  # and here


if __name__ == "__main__":
  kind = Device.DEFAULT.split(":")[0]
  devices = tuple(f"{kind}:{i}" for i in range(getenv("DEVICES", 2)))
  if distributed.size() > 1: devices = distributed.devices()
  Tensor.manual_seed(1)
  model = Block()
  for name, p in nn.state.get_state_dict(model).items(): p.shard_(devices, Block.AXES.get(name))
  opt = nn.optim.AdamW(nn.state.get_parameters(model), lr=0.01)

  @TinyJit
  @Context(TRAINING=1)
  def step(t: Tensor) -> Tensor:
    opt.zero_grad()
    loss = model(t)[:, :-1].sparse_categorical_crossentropy(t[:, 1:]).backward()
    return loss.realize(*opt.schedule_step())

  for i in range(getenv("STEPS", 30)):
    start = Tensor.randint(8, 1, high=16)
    t = (start + Tensor.arange(12) * 3) % 16  # the next token is always three more
    loss = step(t.shard(devices).realize())
    if i % 10 == 0 and distributed.rank() == 0: print(f"step {i:3d}  loss {loss.item():.4f}")
  if distributed.rank() == 0: print(f"loss {loss.item():.4f} on {len(devices)} devices")
