"""Schedules: which kernels run, in which order, on which memory."""
from __future__ import annotations

from whit import _whit
from whit.helpers import argfix
from whit.hints import missing

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any

Schedule = _whit.Schedule


def create_schedule(*tensors: Any) -> Schedule:
  """The schedule that realising these tensors (or graphs) would run now. It opens no device and changes nothing.

  >>> from whit import Tensor
  >>> s = create_schedule(Tensor([1.0, 2.0]) + 1)
  >>> len(s), s.kernels[0][0].op
  (1, Ops.SINK)
  """
  return _whit.schedule(list(argfix(*tensors)))


def clear_schedule_cache() -> None:
  """Forgets the schedules of earlier graphs.

  >>> clear_schedule_cache()
  """
  _whit.clear_schedule_cache()


def schedule_cache_size() -> int:
  """How many schedules are remembered.

  >>> clear_schedule_cache(); schedule_cache_size()
  0
  """
  return _whit.schedule_cache_size()


def __getattr__(name: str) -> Any: raise missing(__name__, name)
