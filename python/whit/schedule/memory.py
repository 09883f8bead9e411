"""The memory plan of a schedule."""
from __future__ import annotations

from whit.hints import missing
from whit.schedule import Schedule

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any


def memory_plan(schedule: Schedule) -> dict[str, int]:
  """Bytes of a schedule: of all temporaries, of the arena that they share, of what is alive at once, of the results.

  >>> from whit import Tensor
  >>> from whit.schedule import create_schedule
  >>> memory_plan(create_schedule(Tensor([1.0, 2.0]) + 1))["output_bytes"]
  8
  """
  return {k: v for k, v in schedule.stats.items() if k.endswith("_bytes")}


def __getattr__(name: str) -> Any: raise missing(__name__, name)
