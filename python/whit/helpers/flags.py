"""Flags: read from the environment once, overridden for a while."""
from __future__ import annotations

import contextlib, functools, os
from collections import namedtuple

from whit import _whit

TYPE_CHECKING = False  # typing costs a third of the time of `import whit`
if TYPE_CHECKING:
  from typing import Any


@functools.cache
def getenv(key: str, default: Any = 0) -> Any:
  """The environment's value in the type of `default`; the first read holds for the life of the process.

  >>> getenv("NOT_SET_ANYWHERE", 5)
  5
  """
  return type(default)(os.getenv(key, default))


class ContextVar:
  """A flag: an object that compares like its value. `Context` overrides it for a while.

  >>> from whit.helpers import TRAINING
  >>> with Context(TRAINING=1): print(TRAINING == 1, TRAINING > 1)
  ...
  True False
  """
  _cache: dict[str, "ContextVar"] = {}

  def __init__(self, key: str, default_value: Any = None) -> None:
    if key in ContextVar._cache: raise RuntimeError(f"ContextVar {key} already exists")
    ContextVar._cache[key] = self
    self.key = key
    self._native = default_value is None or _whit.has_flag(key)
    self._own = None if self._native else getenv(key, default_value)

  @property
  def value(self) -> Any:
    return _whit.flag(self.key) if self._native else self._own

  @value.setter
  def value(self, v: Any) -> None:
    if self._native: _whit.set_flag(self.key, v.name if isinstance(v, _whit.DType) else v)  # DEFAULT_FLOAT=dtypes.half
    else: self._own = v

  def tolist(self, obj: Any = None) -> list[Any]:
    """The comma list, each name looked up in obj when one is given."""
    return [getattr(obj, x) if obj is not None else x for x in str(self.value).split(",") if x]

  def __bool__(self) -> bool: return bool(self.value)
  def __eq__(self, x: object) -> bool: return bool(self.value == x)
  def __ne__(self, x: object) -> bool: return bool(self.value != x)
  def __ge__(self, x: Any) -> bool: return bool(self.value >= x)
  def __gt__(self, x: Any) -> bool: return bool(self.value > x)
  def __le__(self, x: Any) -> bool: return bool(self.value <= x)
  def __lt__(self, x: Any) -> bool: return bool(self.value < x)
  def __hash__(self) -> int: return hash(self.key)
  def __int__(self) -> int: return int(self.value)
  def __str__(self) -> str: return str(self.value)
  def __repr__(self) -> str: return f"ContextVar({self.key}={self.value!r})"


for _name in _whit.flag_names(): ContextVar(_name)


class Context(contextlib.ContextDecorator):
  """Overrides flags in a `with` block or a decorated function: `with Context(TRAINING=1): ...`

  >>> from whit.helpers import TRAINING
  >>> with Context(TRAINING=1): print(bool(TRAINING))
  ...
  True
  """
  _stack: list[dict[str, Any]]

  def __init__(self, **kwargs: Any) -> None:
    self.kwargs = kwargs
    self._stack = []

  def __enter__(self) -> Context:
    old = {}
    for k in self.kwargs:
      if k not in ContextVar._cache: raise KeyError(f"[Context] there is no flag {k}; `whit flags` lists them")
    try:
      for k, v in self.kwargs.items():
        old[k] = ContextVar._cache[k].value
        ContextVar._cache[k].value = v
    except BaseException:
      for k, v in old.items(): ContextVar._cache[k].value = v
      raise
    self._stack.append(old)
    return self

  def __exit__(self, *args: Any) -> None:
    for k, v in self._stack.pop().items(): ContextVar._cache[k].value = v

  def _recreate_cm(self) -> Context: return self


class Target(namedtuple("Target", "device renderer arch", defaults=("", "", ""))):
  """A device with its renderer, as the flag DEV names them: DEVICE[:RENDERER[:ARCH]].

  >>> Target.parse("CPU:LLVM").renderer
  'LLVM'
  """
  __slots__ = ()

  @staticmethod
  def parse(s: str) -> Target: return Target(*(s.split(":") + ["", "", ""])[:3])
  def __str__(self) -> str: return ":".join(p for p in (self.device, self.renderer, self.arch) if p)
