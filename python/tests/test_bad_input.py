"""Arguments that make no sense: always a Python exception or a right result, never a crash, a hang or an internal error (bad_input.py)."""
import os
import pathlib
import subprocess
import sys

import pytest

from whit import Tensor, TinyJit, dtypes

HERE = pathlib.Path(__file__).resolve().parent


def test_every_name_survives():
  command = [sys.executable, HERE / "bad_input.py", os.environ.get("WHIT_FUZZ_SEED", "0"), os.environ.get("WHIT_FUZZ_CALLS", "3")]
  done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(HERE.parent)})
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
