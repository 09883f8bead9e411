"""Trains the networks of examples/ in whit (Python and C++) and in PyTorch from the same weights; writes docs/examples.md and its picture.

.venv-bench/bin/python bench/curves.py [BUILD]     BUILD: the folder with examples/linear, cnn and chars, by default build-release
"""
import gzip
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

torch.set_num_threads(1)

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "build-release")
STEPS = {"linear": 60, "cnn": 100, "chars": 200}
COLORS = {"PyTorch": "#888888", "whit, Python": "#d1495b", "whit, C++": "#2e6f95"}


def load(path: str) -> dict:
  raw = pathlib.Path(path).read_bytes()
  n = int.from_bytes(raw[:8], "little")
  data = bytearray(raw[8 + n:])
  return {k: torch.frombuffer(data[v["data_offsets"][0]:v["data_offsets"][1]], dtype=torch.float32).reshape(v["shape"]).clone().requires_grad_()
          for k, v in json.loads(raw[8:8 + n]).items() if k != "__metadata__"}


def linear(w, steps):
  x = torch.tensor([[(i * 7919 + k * 104729) % 1000 / 1000 - 0.5 for k in range(4)] for i in range(256)])
  y = x @ torch.tensor([[3.0], [-2.0], [0.5], [1.0]]) + 0.25
  opt = torch.optim.SGD(w.values(), lr=0.3, momentum=0.9)
  return run(opt, steps, lambda _: (F.linear(x, w["weight"], w["bias"]) - y).square().mean())


def idx(name: str, skip: int) -> torch.Tensor:
  for folder in ("/usr/share/datasets/fashion-mnist",):
    if (path := pathlib.Path(folder) / f"{name}.gz").exists():
      return torch.frombuffer(bytearray(gzip.decompress(path.read_bytes())[skip:]), dtype=torch.uint8)
  sys.exit(f"curves: {name}.gz is not there; apt install dataset-fashion-mnist")


def cnn(w, steps):
  images, labels = idx("train-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28), idx("train-labels-idx1-ubyte", 8).long()
  opt = torch.optim.Adam(w.values(), lr=1e-3)

  def loss(step):
    part = slice(at := step * 64 % len(images), at + 64)
    x = F.max_pool2d(F.conv2d(images[part].float() / 255, w["c1.weight"], w["c1.bias"]).relu(), 2)
    x = F.max_pool2d(F.conv2d(x, w["c2.weight"], w["c2.bias"]).relu(), 2)
    return F.cross_entropy(F.linear(x.flatten(1), w["head.weight"], w["head.bias"]), labels[part])
  return run(opt, steps, loss)


def chars(w, steps):
  text, context = (ROOT / "docs/ir.md").read_bytes(), 32
  opt = torch.optim.AdamW(w.values(), lr=3e-3, weight_decay=0.01)

  def lin(x, name): return F.linear(x, w[name + ".weight"], w[name + ".bias"])
  def norm(x, name): return F.layer_norm(x, (64,), w[name + ".weight"], w[name + ".bias"])

  def loss(step):
    starts = [(step * 8 + i) * 9973 % (len(text) - context - 1) for i in range(8)]
    t = torch.tensor([[c % 128 for c in text[s:s + context + 1]] for s in starts])
    h = F.embedding(t[:, :-1], w["chars.weight"]) + w["places.weight"]
    for b in ("blocks.0.", "blocks.1."):
      q, k, v = lin(norm(h, b + "norm1"), b + "qkv").reshape(8, context, 3, 4, 16).permute(2, 0, 3, 1, 4)
      y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
      h = h + lin(y.transpose(1, 2).reshape(8, context, 64), b + "out")
      h = h + lin(F.gelu(lin(norm(h, b + "norm2"), b + "up"), approximate="tanh"), b + "down")
    return F.cross_entropy(lin(norm(h, "norm"), "head").flatten(0, 1), t[:, 1:].flatten())
  return run(opt, steps, loss, clip=1.0)


def run(opt, steps, loss_of, clip=None):
  losses = []
  for step in range(steps):
    opt.zero_grad()
    loss = loss_of(step)
    loss.backward()
    if clip: torch.nn.utils.clip_grad_norm_(opt.param_groups[0]["params"], clip)
    opt.step()
    losses.append(loss.item())
  return losses


def example(command: list, *args) -> list[float]:
  out = subprocess.run([*map(str, command), *map(str, args)], cwd=ROOT, env={"PYTHONPATH": "python", "PATH": "/usr/bin:/bin"}, check=True,
                       capture_output=True, text=True).stdout
  return [float(x) for x in re.findall(r"^\d+ (\S+)$", out, re.M)]


def picture(curves: dict) -> str:
  """An SVG with a panel for each network; the loss is on a logarithmic axis for the regression."""
  import math
  out = ['<svg xmlns="http://www.w3.org/2000/svg" width="960" height="300" font-family="sans-serif" font-size="12">',
         '<rect width="960" height="300" fill="white"/>']
  for i, (name, lines) in enumerate(curves.items()):
    scale = math.log10 if name == "linear" else float
    values = [scale(v) for line in lines.values() for v in line]
    low, high, left = min(values), max(values), 60 + 315 * i
    out.append(f'<text x="{left + 110}" y="20" text-anchor="middle">{name}</text>')
    out.append(f'<rect x="{left}" y="30" width="240" height="220" fill="none" stroke="#ccc"/>')
    for y, v in ((254, low), (36, high)):
      out.append(f'<text x="{left - 4}" y="{y}" text-anchor="end">{10 ** v if name == "linear" else v:.2g}</text>')
    for k, (label, line) in enumerate(lines.items()):
      points = " ".join(f"{left + 240 * x / (len(line) - 1):.1f},{250 - 220 * (scale(v) - low) / (high - low):.1f}" for x, v in enumerate(line))
      dash = ("", ' stroke-dasharray="6 4"', ' stroke-dasharray="2 4"')[k]
      out.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[label]}" stroke-width="{(4, 2, 2)[k]}"{dash}/>')
  for k, (label, color) in enumerate(COLORS.items()):
    out.append(f'<text x="{60 + 160 * k}" y="285" fill="{color}">{label}</text>')
  return "\n".join([*out, "</svg>", ""])


def main():
  curves, rows = {}, []
  with tempfile.TemporaryDirectory() as folder:
    for name, steps in STEPS.items():
      weights = f"{folder}/{name}.safetensors"
      python = example([ROOT / ".venv/bin/python", f"examples/{name}.py"], "--steps", steps, "--save", weights)
      cpp = example([BUILD / "examples" / name], "--steps", steps, "--weights", weights)
      torch_ = {"linear": linear, "cnn": cnn, "chars": chars}[name](load(weights), steps)
      curves[name] = {"PyTorch": torch_, "whit, Python": python, "whit, C++": cpp}
      apart = [max(abs(a - b) / abs(b) for a, b in zip(line[:20], torch_)) for line in (python, cpp)]
      rows.append(f"| {name} | {steps} | {torch_[0]:.4f} | {torch_[-1]:.3g} | {python[-1]:.3g} | {cpp[-1]:.3g} | {apart[0]:.1e} | {apart[1]:.1e} |")
  (ROOT / "docs/curves.svg").write_text(picture(curves))
  (ROOT / "docs/examples.md").write_text(f"""# Examples

Each is there in C++ (`examples/NAME.cpp`, built by `./dev build NAME`) and in Python (`examples/NAME.py`), prints a line `step loss` a step, and takes
`--steps`, `--save FILE` (the weights it begins with) and `--weights FILE`: the files are the same for both languages.

- `linear`: linear regression by SGD with momentum
- `cnn`: a small convolutional network on Fashion-MNIST, with Adam in a plain loop
- `chars`: a character transformer on a text, with AdamW, clipping and a captured step
- `extend_op`, `extend_pass`, `extend_renderer`, `extend_device`: what a program adds to whit, in both languages (no options)
- `mixed`: float16 or bfloat16 weights and activations with float32 masters and a loss scale (`--dtype`; C++: `mixed STEPS DTYPE`)
- `mnist`: what `make demo` runs; `readme.cpp`: README's listing

The loss beside PyTorch's from the same weights on the same data; the last two columns are the largest relative difference from PyTorch in
the first 20 steps, after which rounding may lead apart what is the same computation. Made by `.venv-bench/bin/python bench/curves.py`.

| example | steps | first loss | last: PyTorch | whit, Python | whit, C++ | Python apart | C++ apart |
|---|---|---|---|---|---|---|---|
""" + "\n".join(rows) + "\n\n![Loss curves of the three examples in PyTorch, whit from Python and whit from C++](curves.svg)\n")


main()
