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
