"""Arguments that make no sense: always a Python exception or a right result, never a crash, a hang or an internal error (bad_input.py)."""
import os
import pathlib
import subprocess
import sys

import pytest

from whit import Tensor, TinyJit, dtypes

HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("what", [[], ["modules"]], ids=["tensor", "modules"])
def test_every_name_survives(what, tmp_path):
  command = [sys.executable, HERE / "bad_input.py", *what, os.environ.get("WHIT_FUZZ_SEED", "0"), os.environ.get("WHIT_FUZZ_CALLS", "3")]
  done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(HERE.parent)}, cwd=tmp_path, timeout=1800)
  lines = done.stdout.splitlines()
  wrong = [f"{call}: {said}" for call, said in zip(lines, lines[1:]) if said.startswith("WRONG")]
  assert done.returncode == 0, f"exit {done.returncode} after {lines[-1] if lines else 'nothing'}\n" + "\n".join(wrong) + done.stderr[-500:]


@pytest.mark.parametrize("call", ["split(1)", "split([1])", "chunk(2)", "unfold(0, 1, 1)", "size(0)", "roll(1, 0)", "repeat_interleave(2, 0)",
                                  "scatter(0, Tensor(0), t)", "scatter(0, Tensor(0), 1, reduce='add')", "scatter_reduce(0, Tensor(0), t, 'sum')", "keccak()"])
def test_a_tensor_without_axes_has_no_axis(call):
  t = Tensor(2.5, device="CPU")
  with pytest.raises(IndexError, match=r"without axes"): eval(f"t.{call}", {"t": t, "Tensor": Tensor})


def test_void_holds_no_values():
  for call in (lambda t: t.bitcast(dtypes.void), lambda t: t.cast(dtypes.void)):
    with pytest.raises(RuntimeError, match="void"): call(Tensor([1, 2]))


def test_results_by_data_say_why_they_are_not_captured():
  for body in (lambda t: t.nonzero(), lambda t: t.masked_select(t > 1), lambda t: t[t > 1]):
    f = TinyJit(lambda t: body(t).realize())
    f(Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(RuntimeError, match="how many elements a mask chooses"): f(Tensor([1.0, 2.0, 3.0]))
  f = TinyJit(lambda t: t.nonzero(size=2).realize())
  assert [f(Tensor([0.0, 2.0, float(i)])).flatten().tolist() for i in range(1, 4)] == [[1, 2]] * 3


@pytest.mark.parametrize("call,said", [
  ("t.softmax(axis=1.5)", "[softmax] 'axis' is of type float; expected int; its arguments are (axis: int = -1, dtype = None)"),
  ("t.conv2d(3)", "[conv2d] 'weight' is of type int; expected Tensor; its arguments are (weight: Tensor, bias = None, groups: int = 1, "),
  ("t.sum(foo=3)", "[sum] it has no argument 'foo'; its arguments are "), ("t.gather(0)", "[gather] 'index' is missing; its arguments are (dim: int, index: Tensor)"),
  ("t.gather(0, dim=1)", "[gather] 'dim' is given twice; its"), ("t.add(1, 2, 3)", "[add] 3 arguments are given, it takes 2; its"),
  ("Tensor(1, 2, 3, 4, 5)", "[Tensor] 5 arguments are given, it takes 4; its"), ("Tensor.manual_seed('x')", "[manual_seed] 'seed' is of type str; expected int; its"),
  ("t.split(None)", "[split] got (NoneType); its arguments are (sizes, dim: int = 0)"), ("setattr(t, 'is_param', 'x')", "[Tensor] the value of the attribute is of type str; expected bool"),
  ("setattr(t, 'grad', 3)", "[grad] expected a Tensor or None"), ("Tensor.arange('x')", "[arange] a bound is str; expected a number")])
def test_wrong_types_are_named(call, said):
  with pytest.raises(TypeError) as e: eval(call, {"t": Tensor([1.0]), "Tensor": Tensor})
  assert str(e.value).startswith(said)


def test_sizes_that_no_list_has():
  with pytest.raises(MemoryError, match="has 4.61e\\+18 lists"): Tensor.ones(2**62, 0).tolist()
  with pytest.raises(RuntimeError, match="reads a PARAM"): Tensor([1.0]).as_param(3).tolist()


def test_counted_operations_stop_at_the_largest_number():
  program = """
from whit import GlobalCounters, Tensor
a, b = Tensor.empty(2**10, 2**21, 2**10, device="NULL"), Tensor.empty(2**10, 2**10, 2**21, device="NULL")
for _ in range(2): (a @ b).realize()
print(GlobalCounters.global_ops)
GlobalCounters.reset()
print(GlobalCounters.global_ops)
"""
  done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
  assert done.stdout.split() == [str(2**63 - 1), "0"]
