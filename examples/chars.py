"""A character transformer: learns to continue a text (by default docs/ir.md), with AdamW, clipping and a captured step.

python examples/chars.py [--steps 200] [--text FILE] [--save FILE] [--weights FILE]     prints a line `step loss` a step
"""
import argparse
import pathlib

from whit import Context, Tensor, TinyJit, dtypes, nn

N_CHARS, CONTEXT, DIM, HEADS, BATCH = 128, 32, 64, 4, 8


class Block:
  def __init__(self):
    self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
    self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
    self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

  def __call__(self, x: Tensor) -> Tensor:  # (batch, time, DIM)
    b, t, _ = x.shape
    q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4).chunk(3)
    y = q.squeeze(0).scaled_dot_product_attention(k.squeeze(0), v.squeeze(0), is_causal=True)
    x = x + self.out(y.transpose(1, 2).reshape(b, t, DIM))
    return x + self.down(self.up(self.norm2(x)).gelu())


class Transformer:
  def __init__(self):
    self.chars, self.places = nn.Embedding(N_CHARS, DIM), nn.Embedding(CONTEXT, DIM)
    self.blocks = [Block() for _ in range(2)]
    self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, N_CHARS)

  def __call__(self, x: Tensor) -> Tensor:  # (batch, time) of characters -> (batch, time, N_CHARS)
    h = self.chars(x) + self.places.weight[:x.shape[1]]
    for block in self.blocks: h = block(h)
    return self.head(self.norm(h))


def batch(text: bytes, step: int) -> Tensor:
  """(BATCH, CONTEXT + 1) characters from places that a formula picks."""
  starts = [(step * BATCH + i) * 9973 % (len(text) - CONTEXT - 1) for i in range(BATCH)]
  return Tensor([[c % N_CHARS for c in text[s:s + CONTEXT + 1]] for s in starts], dtype=dtypes.int32).realize()


def train(steps: int, model: Transformer, text: bytes):
  opt = nn.optim.AdamW(nn.state.get_parameters(model), lr=3e-3)

  @TinyJit
  def step(chars: Tensor) -> Tensor:
    opt.zero_grad()
    loss = model(chars[:, :-1]).flatten(0, 1).sparse_categorical_crossentropy(chars[:, 1:].flatten()).backward()
    nn.utils.clip_grad_norm_(opt.params, 1.0)
    return loss.realize(*opt.schedule_step())

  with Context(TRAINING=1):
    for i in range(steps): print(i, f"{step(batch(text, i)).item():.6e}", flush=True)


if __name__ == "__main__":
  p = argparse.ArgumentParser()
  p.add_argument("--steps", type=int, default=200)
  p.add_argument("--text", default=pathlib.Path(__file__).parent.parent / "docs/ir.md")
  p.add_argument("--save")
  p.add_argument("--weights")
  args = p.parse_args()
  Tensor.manual_seed(1)
  model = Transformer()
  if args.save: nn.state.safe_save(nn.state.get_state_dict(model), args.save)
  if args.weights: nn.state.load_state_dict(model, nn.state.safe_load(args.weights), verbose=False)
  train(args.steps, model, pathlib.Path(args.text).read_bytes())
