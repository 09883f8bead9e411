"""The types that users and their checkers see: the golden stub, and a program under `mypy --strict`."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

PROGRAM = '''
import pathlib
import tempfile
from typing import Any, NamedTuple, reveal_type

import whit
from whit import Context, Device, Tensor, TinyJit, UOp, Variable, checkpoint, distributed, dtypes, function, grad, hessian, jacobian, jvp, nn, value_and_grad, vjp, vmap
from whit.device import Allocator, Buffer, CCompiler, Compiled, CPUProgram, HostAllocator, canonicalize_device
from whit.dtype import DType, DTypeLike, least_upper_dtype, to_dtype
from whit.engine.jit import JitError
from whit.engine.realize import run_linear
from whit.helpers import GlobalCounters, Timing, argsort, cdiv, colored, fetch, flatten, getenv, prod, tqdm, trange
from whit.nn.datasets import mnist
from whit.nn.optim import LAMB, SGD, Adam, AdamW, OptimizerGroup
from whit.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save, torch_load
from whit.nn.onnx import OnnxRunner
from whit.renderer.cstyle import CStyle
from whit.schedule import create_schedule
from whit.uop.ops import Ops, PatternMatcher, UPat, graph_rewrite


class Model:
  def __init__(self) -> None:
    self.l1, self.l2 = nn.Linear(4, 8), nn.Linear(8, 2)
    self.norm = nn.LayerNorm(8)
    self.layers = [nn.Conv2d(1, 2, 3), nn.BatchNorm(2), nn.Embedding(10, 4), nn.RMSNorm(4), nn.GroupNorm(1, 2)]

  def __call__(self, x: Tensor) -> Tensor:
    return self.l2(self.norm(self.l1(x).relu()))

  @TinyJit
  def infer(self, x: Tensor) -> Tensor:
    return self(x).softmax().realize()

  @function(precompile=True)
  def part(self, x: Tensor) -> Tensor:
    return self.l1(x)


model = Model()
opt = Adam(get_parameters(model.l1) + get_parameters(model.l2) + get_parameters(model.norm), lr=1e-3)
both = OptimizerGroup(SGD([Tensor.ones(2).is_param_()], lr=0.1), AdamW([Tensor.ones(2).is_param_()]))
schedule = nn.lr_scheduler.CosineAnnealingLR(opt, 10)


@TinyJit
def step(x: Tensor, y: Tensor) -> Tensor:
  with Context(TRAINING=1):
    opt.zero_grad()
    loss = model(x).cross_entropy(y).backward()
    return loss.realize(*opt.schedule_step())


@TinyJit(prune=True)
def pruned(x: Tensor) -> tuple[Tensor, Tensor]:
  return (x + 1).realize(), (x * 2).realize()


@Context(TRAINING=1)
def in_training(x: Tensor, scale: float = 1.0) -> Tensor:
  return (x * scale).dropout(0.5)


@function
def f(a: Tensor, b: Tensor) -> Tensor:
  return (a * b + 1).sum()


@function(allow_implicit=True)
def g(a: Tensor) -> tuple[Tensor, Tensor]:
  return model.l1(a), a


class Params(NamedTuple):
  w: Tensor
  b: Tensor


def loss_of(p: Params, x: Tensor) -> Tensor:
  return (x @ p.w + p.b).square().sum()


x = Tensor.rand(16, 4).realize()
y = Tensor.randint(16, high=2).realize()
shape: tuple[int, ...] = (x @ x.T)[0, 1:].shape
reveal_type(step(x, y))
value: Any = step(x, y).item()
for _ in range(2): step(x, y)
reveal_type(pruned(x))
reveal_type(in_training(x, scale=0.5))
reveal_type(f(x, x))
reveal_type(g(x))
reveal_type(model.infer(x))
reveal_type(model.part(x))
reveal_type(model.l1(x))
p = Params(Tensor.rand(4, 2), Tensor.zeros(2))
gradients: Params = grad(loss_of)(p, x)
reveal_type(value_and_grad(loss_of)(p, x))
reveal_type(vmap(f)(x, x))
reveal_type(checkpoint(loss_of)(p, x))
j: Tensor = jacobian(lambda t: t * t)(x[0])
h: Tensor = hessian(lambda t: (t * t).sum())(x[0])
reveal_type(jvp(f, (x, x), (x, x)))
out, pullback = vjp(loss_of, p, x)
reveal_type(out)
gp, gx = pullback(out)
values, indices = x.sort()
name: str = Device.DEFAULT
half: DType = (2 * x.half() - x).dtype
kind: DTypeLike = "float32"
assert to_dtype(kind) is dtypes.float32 is x.dtype and get_state_dict(model)["l1.weight"].shape == (8, 4)
assert least_upper_dtype(dtypes.half, dtypes.float) is dtypes.float32

with tempfile.TemporaryDirectory() as folder:
  file = pathlib.Path(folder) / "w.safetensors"
  safe_save(get_state_dict(model), str(file))
  load_state_dict(model, safe_load(file), verbose=False)

with Timing("time: "):
  total = sum(i for i in trange(3, disable=True)) + sum(tqdm([1, 2], disable=True))
assert prod((2, 3)) == 6 and argsort([2, 1]) == [1, 0] and flatten([[1], [2]]) == [1, 2] and cdiv(-7, 2) == -3
print(colored(f"{GlobalCounters.kernel_count > 0} {getenv('NOT_SET', 3)}", "green"), distributed.rank(), distributed.size(), distributed.devices())

v = Variable("v", 1, 9).bind(3)
reveal_type(x[:v].sum().item())
rules = PatternMatcher([(UPat.var("x") * 2, lambda x: x + x)])
rewritten: UOp = graph_rewrite(Variable("n", 0, 9) * 2, rules)
assert rewritten.op is Ops.ADD
run_linear(x + 1)
assert len(create_schedule(x + 1)) == 1


class Heap(Compiled):
  renderers = {"C": CCompiler}

  def __init__(self, device: str) -> None:
    super().__init__(device, HostAllocator(), CPUProgram)


class Plain(CStyle):
  name = "typed_plain"


Device.register("TYPEDHEAP", Heap)
assert (Tensor([1.0], device="TYPEDHEAP") + 1).item() == 2.0 and canonicalize_device("cpu:0") == "CPU"
try:
  step(x[:3], y)
except JitError as e:
  print(e)
'''

# What the checker makes of the expressions that the program asks about: decorators keep signatures, nothing turns into Any.
REVEALED = ["Tensor", "tuple[Tensor, Tensor]", "Tensor", "Tensor", "tuple[Tensor, Tensor]", "Tensor", "Tensor", "Tensor", "tuple[Tensor, Any]",
            "Tensor", "Tensor", "tuple[Tensor, Tensor]", "Tensor", "Any"]


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
  revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
  assert [re.sub(r"(\w+\.)+|, fallback=.*", "", r) for r in revealed] == REVEALED
  subprocess.run([sys.executable, program], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, check=True)


def test_the_package_is_typed(tmp_path):
  pytest.importorskip("mypy")
  command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "-p", "whit"]
  done = subprocess.run(command, cwd=ROOT / "python", capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr


def test_the_interface_is_as_written_down():
  env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
  if os.environ.get("WHIT_BLESS"): subprocess.run([sys.executable, ROOT / "tools/api.py"], env=env, check=True)
  done = subprocess.run([sys.executable, ROOT / "tools/api.py", "--check"], env=env, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr


def test_one_version():
  import whit
  def first(path, pattern): return re.search(pattern, (ROOT / path).read_text(), re.M)[1]
  versions = {first("CMakeLists.txt", r"^project\(whit VERSION (\S+)"), first("pyproject.toml", r'^version = "(.*)"'), first("CHANGELOG.md", r"^## (\S+)"), whit.__version__}
  assert len(versions) == 1, versions
