"""The types that users and their checkers see: the golden stub, and a program under `mypy --strict`."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

PROGRAM = '''
import whit
from whit import Context, Device, Tensor, TinyJit, dtypes, function, nn


class Model:
  def __init__(self) -> None:
    self.l1, self.l2 = nn.Linear(4, 8), nn.Linear(8, 2)

  def __call__(self, x: Tensor) -> Tensor:
    return self.l2(self.l1(x).relu())


model = Model()
opt = nn.optim.Adam(nn.state.get_parameters(model), lr=1e-3)


@TinyJit
def step(x: Tensor, y: Tensor) -> Tensor:
  with Context(TRAINING=1):
    opt.zero_grad()
    loss = model(x).cross_entropy(y).backward()
    return loss.realize(*opt.schedule_step())


@function
def f(a: Tensor, b: Tensor) -> Tensor:
  return (a * b + 1).sum()


x = Tensor.rand(16, 4).realize()
y = Tensor.randint(16, high=2).realize()
shape: tuple[int, ...] = (x @ x.T)[0, 1:].shape
value: float = step(x, y).item()
values, indices = x.sort()
name: str = Device.DEFAULT
half: whit.dtype.DType = (2 * x.half() - x).dtype
assert dtypes.float32 is x.dtype and nn.state.get_state_dict(model)["l1.weight"].shape == (8, 4)
'''


def test_the_stub_is_what_the_module_has():
  env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
  if os.environ.get("WHIT_BLESS"): subprocess.run([sys.executable, ROOT / "tools/stubs.py"], env=env, check=True)
  done = subprocess.run([sys.executable, ROOT / "tools/stubs.py", "--check"], env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr + "\nWHIT_BLESS=1 rewrites python/whit/_whit.pyi"


def test_a_program_is_typed(tmp_path):
  pytest.importorskip("mypy")
  program = tmp_path / "program.py"
  program.write_text(PROGRAM)
  env = {**os.environ, "MYPYPATH": str(ROOT / "python")}
  command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", tmp_path / "cache", program]
  done = subprocess.run(command, env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr
  subprocess.run([sys.executable, program], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, check=True)


def test_the_stub_is_strict(tmp_path):
  pytest.importorskip("mypy")
  command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", tmp_path / "cache", ROOT / "python/whit/_whit.pyi"]
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr


def test_the_interface_is_as_written_down():
  env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
  if os.environ.get("WHIT_BLESS"): subprocess.run([sys.executable, ROOT / "tools/api.py"], env=env, check=True)
  done = subprocess.run([sys.executable, ROOT / "tools/api.py", "--check"], env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr


def test_one_version():
  import re

  import whit
  def first(path, pattern): return re.search(pattern, (ROOT / path).read_text(), re.M)[1]
  versions = {first("CMakeLists.txt", r"^project\(whit VERSION (\S+)"), first("pyproject.toml", r'^version = "(.*)"'), first("CHANGELOG.md", r"^## (\S+)"), whit.__version__}
  assert len(versions) == 1, versions
