"""The examples run and learn; from the same weights C++ and Python see the same losses."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STEPS = {"linear": 20, "cnn": 12, "chars": 8}


def losses(command: list, *args) -> list:
  env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
  done = subprocess.run([*map(str, command), *map(str, args)], cwd=ROOT, env=env, capture_output=True, text=True)
  if "[mnist]" in done.stderr: pytest.skip("Fashion-MNIST is not on this machine")
  assert done.returncode == 0, done.stderr
  return [float(x) for x in re.findall(r"^\d+ (\S+)$", done.stdout, re.M)]


@pytest.mark.parametrize("name", STEPS)
def test_example(name, tmp_path):
  weights, n = tmp_path / "w.safetensors", STEPS[name]
  python = losses([sys.executable, f"examples/{name}.py"], "--steps", n, "--save", weights)
  assert len(python) == n and sum(python[-3:]) < sum(python[:3])
  built = [p for b in ("build-release", "build-dev") if (p := ROOT / b / "examples" / name).exists()]
  if not built: pytest.skip(f"examples/{name}.cpp is not built")
  assert losses([built[0]], "--steps", n, "--weights", weights) == pytest.approx(python, rel=1e-3)


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_mixed_precision(dtype):
  """Learns what float32 learns, also where the first scale of the loss is far too large."""
  full, mixed = (losses([sys.executable, "examples/mixed.py"], "--steps", 60, "--dtype", d) for d in ("float", dtype))
  assert mixed[-1] < 0.5 * mixed[0] and mixed[-1] == pytest.approx(full[-1], rel=0.1)


def test_the_loss_scale_follows_overflows():
  """A scale of 2^40 is halved until gradients in float16 are finite; without a scale small gradients are lost."""
  sys.path.insert(0, str(ROOT / "examples"))
  from mixed import Scaler

  from whit import Tensor, dtypes
  scaler, w, n = Scaler(2.0**40, every=2), Tensor([1.0], dtype=dtypes.half).realize(), 0
  def grad(scale): return (w * 1e-6 * scale).cast(dtypes.float32).sum().gradient(w)
  while not scaler.unscale(grad(scaler.scale))[1]: n += 1
  assert n > 0 and scaler.unscale(grad(scaler.scale))[0][0].item() == pytest.approx(1e-6, rel=0.1)
  assert scaler.scale == 2.0 ** (40 - n + 1) and scaler.good == 2


def test_mixed_precision_in_cpp():
  built = [p for b in ("build-release", "build-dev") if (p := ROOT / b / "examples/mixed").exists()]
  if not built: pytest.skip("examples/mixed.cpp is not built")
  full, mixed = losses([built[0]], 60, "float32"), losses([built[0]], 60)
  assert mixed[-1] < 0.5 * mixed[0] and mixed[-1] == pytest.approx(full[-1], rel=0.1)
