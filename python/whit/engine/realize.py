"""Running schedules and kernels."""
from __future__ import annotations

from whit import _whit
from whit.helpers import argfix
from whit.hints import missing
from whit.renderer import Estimates
from whit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any
  from whit.uop.ops import UOp


def run_linear(*tensors: Tensor) -> None:
  """Computes tensors: their schedule runs.

  >>> t = Tensor([1.0, 2.0]) + 1
  >>> run_linear(t)
  >>> t.uop.is_realized
  True
  """
  Tensor.realize(*argfix(*tensors))


def get_runtime(device: str, sink: UOp) -> _whit.Executable:
  """A kernel graph compiled for a device: callable with buffers by slot.

  >>> from whit.schedule import create_schedule
  >>> kernel, device, args = create_schedule(Tensor([1.0, 2.0], device="CPU") + 1).kernels[0]
  >>> get_runtime(device, kernel).device
  'CPU'
  """
  return _whit.compile_kernel(sink, device)


def compile_linear(schedule: _whit.Schedule) -> list[_whit.Executable]:
  """The kernels of a schedule, compiled.

  >>> from whit.schedule import create_schedule
  >>> len(compile_linear(create_schedule(Tensor([1.0, 2.0]) + 1)))
  1
  """
  return [_whit.compile_kernel(sink, device) for sink, device, _ in schedule.kernels if sink is not None]


def estimate_uop(sink: UOp) -> Estimates:
  """The work of a kernel graph.

  >>> from whit.schedule import create_schedule
  >>> estimate_uop(create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0]).ops
  2
  """
  return Estimates.of(_whit.compile_kernel(sink, None))


def __getattr__(name: str) -> Any: raise missing(__name__, name)
