"""tinygrad on the CPU: the workloads of peer_whit.py, word for word, with `whit` standing for tinygrad.

peer_tinygrad.py              answers `WORK N` lines (peer_protocol.py)
peer_tinygrad.py --plans      what its planner takes for the models of `models.py plans`
"""
import contextlib
import importlib.metadata
import io
import os
import re
import sys
import types

is_planning = sys.argv[1:] == ["--plans"]
os.environ["DEV"] = "NULL" if is_planning else "CPU"
import tinygrad
from tinygrad import Context, Device, Tensor, TinyJit


def create_schedule(*tensors):
  """As whit.schedule's, as far as models.py needs it: what tinygrad prints of its plan."""
  printed = io.StringIO()
  with contextlib.redirect_stdout(printed), Context(DEBUG=1): Tensor.schedule_linear(*tensors)
  found = re.search(r"memory reduced from [\d.]+ MB -> ([\d.]+) MB", printed.getvalue())
  if not found: raise RuntimeError("tinygrad prints no plan")
  return types.SimpleNamespace(stats={"arena_bytes": float(found.group(1)) * 1e6, "live_bytes": 0})


sys.modules["whit"] = tinygrad
sys.modules["whit.schedule"] = types.ModuleType("whit.schedule")
sys.modules["whit.schedule"].create_schedule = create_schedule
import models
import peer_protocol
import peer_whit


def matmul(n):
  a, b = Tensor.randn(n, n).realize(), Tensor.randn(n, n).realize()
  jitted = TinyJit(lambda p, q: (p @ q).realize())

  def run():
    jitted(a, b)
    Device[Device.DEFAULT].synchronize()
  return run


if __name__ == "__main__":
  if is_planning: models.plans()
  else: peer_protocol.serve("tinygrad CPU", importlib.metadata.version("tinygrad"), {**peer_whit.WORKLOADS, "matmul1024": lambda: matmul(1024)})
