"""What annotations of generic functions need. It comes from `typing` for the type checker alone: to import that takes a third of the time of `import whit`."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Generic as Generic, ParamSpec, TypeVar, overload as overload
  P = ParamSpec("P")
  Q = ParamSpec("Q")
  R = TypeVar("R")
  S = TypeVar("S")
  Ints = int | tuple[int, ...]  # one for all axes, or one an axis
  Devices = str | tuple[str, ...] | None
else:
  P = Q = R = S = Ints = Devices = None

  class Generic:
    def __class_getitem__(cls, _): return cls

  def overload(f): return f
