"""Clocks, profiles, waiting."""
from __future__ import annotations

import contextlib, time
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple

from whit import _whit
from whit.helpers.flags import Context, ContextVar  # noqa: F401
from whit.helpers.files import temp  # noqa: F401

if TYPE_CHECKING: import decimal

# What a program marks itself.
cpu_events: list[ProfileEvent] = []


class Timing(contextlib.ContextDecorator):
  """Prints how long a block took.

  >>> with Timing("copy ", enabled=False): pass
  ...
  """

  def __init__(self, prefix: str = "", on_exit: Callable[[int], str] | None = None, enabled: bool = True) -> None:
    self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled

  def __enter__(self) -> Timing:
    self.st = time.perf_counter_ns()
    return self

  def __exit__(self, *exc: object) -> None:
    self.et = time.perf_counter_ns() - self.st
    if self.enabled: print(f"{self.prefix}{self.et * 1e-6:6.2f} ms" + (self.on_exit(self.et) if self.on_exit else ""))


class Profiling(contextlib.ContextDecorator):
  """Profiles a block with cProfile and prints the functions that took longest.

  >>> with Profiling(enabled=False): pass
  ...
  """

  def __init__(self, enabled: bool = True, sort: str = "cumtime", frac: float = 0.2, fn: str | None = None, ts: float = 1) -> None:
    self.enabled, self.sort, self.frac, self.fn, self.time_scale = enabled, sort, frac, fn, 1e3 / ts

  def __enter__(self) -> Profiling:
    import cProfile
    self.pr = cProfile.Profile()
    if self.enabled: self.pr.enable()
    return self

  def __exit__(self, *exc: object) -> None:
    if not self.enabled: return
    self.pr.disable()
    import pstats
    stats = pstats.Stats(self.pr)
    if self.fn: stats.dump_stats(self.fn)
    stats.strip_dirs().sort_stats(self.sort).print_stats(self.frac)


def perf_counter_us() -> decimal.Decimal:
  """The clock in microseconds, as a Decimal.

  >>> perf_counter_us() > 0
  True
  """
  import decimal
  return decimal.Decimal(time.perf_counter_ns()) / 1000


class TracingKey(NamedTuple):
  """A name for something in a profile.

  >>> TracingKey("load").display_name
  'load'
  """
  display_name: str
  keys: tuple[Any, ...] = ()
  ret: Any = None


class ProfileEvent:
  """Something that a profile shows.

  >>> isinstance(ProfilePointEvent("CPU", "start", 1), ProfileEvent)
  True
  """


class ProfileRangeEvent(ProfileEvent):
  """Work with a beginning and an end, in microseconds.

  >>> ProfileRangeEvent("CPU", "load", 1, 2).en
  2
  """

  def __init__(self, device: str, name: Any, st: Any, en: Any = None, is_copy: bool = False) -> None:
    self.device, self.name, self.st, self.en, self.is_copy = device, name, st, en, is_copy
    self.key: Any = None
    self.arg: dict[str, Any] = {}


class ProfilePointEvent(ProfileEvent):
  """A moment.

  >>> ProfilePointEvent("CPU", "start", 1).name
  'start'
  """

  def __init__(self, device: str, name: str, key: Any, arg: dict[str, Any] | None = None, ts: Any = None) -> None:
    self.device, self.name, self.key, self.arg, self.ts = device, name, key, arg or {}, perf_counter_us() if ts is None else ts


@contextlib.contextmanager
def cpu_profile(name: Any, device: str = "WHIT", display: bool = True) -> Iterator[ProfileRangeEvent]:
  """Times a block; with PROFILE=1 it is added to `cpu_events` and to the timeline.

  >>> with cpu_profile("load") as e: pass
  >>> e.en >= e.st
  True
  """
  if display and ContextVar._cache["PROFILE"]: _whit.build_ended()
  event = ProfileRangeEvent(device, name, perf_counter_us())
  try: yield event
  finally:
    event.en = perf_counter_us()
    if display and ContextVar._cache["PROFILE"]:
      cpu_events.append(event)
      _whit.build_ended()
      _whit.add_to_timeline(getattr(name, "display_name", name), device, float(event.st), float(event.en))


def profile_marker(name: str, color: str = "gray") -> None:
  """Marks a moment; with PROFILE=1 it is added to `cpu_events` and to the timeline.

  >>> profile_marker("epoch 1")
  """
  if not ContextVar._cache["PROFILE"]: return
  cpu_events.append(event := ProfilePointEvent("WHIT", "marker", None, {"name": name, "color": color}))
  _whit.add_to_timeline(name, "", float(event.ts), float(event.ts))


def profile_events() -> list[ProfileEvent]:
  """What PROFILE=1 has collected so far: building, scheduling, compiling, kernels, copies, memory in use.

  >>> from whit import Tensor
  >>> with Context(PROFILE=1): _ = (Tensor([1, 2]).realize() * 2).realize()
  >>> sorted({e.key for e in profile_events()} & {"schedule", "kernel"})
  ['kernel', 'schedule']
  """
  out: list[ProfileEvent] = []
  for category, name, device, thread, st, en, value in _whit.timeline():
    event: Any = ProfilePointEvent(device or "WHIT", name, category, {"thread": thread} | ({"bytes": value} if value >= 0 else {}), st * 1e-3)
    if st != en:
      event = ProfileRangeEvent(event.device, name, st * 1e-3, en * 1e-3 if en >= 0 else None, category == "copy")
      event.key, event.arg = category, {"thread": thread}
    out.append(event)
  return out


def write_profile(path: str) -> None:
  """Writes the timeline so far, in Chrome's trace format; at exit it is written to PROFILE_PATH.

  >>> write_profile(temp("timeline.json"))
  """
  _whit.write_timeline(str(path))


def wait_cond(cb: Callable[..., Any], *args: Any, value: Any = True, timeout_ms: int = 10000, msg: str = "") -> Any:
  """Calls cb until it returns `value`; TimeoutError after timeout_ms.

  >>> wait_cond(lambda: True)
  True
  """
  end = time.perf_counter() + timeout_ms * 1e-3
  while (got := cb(*args)) != value:
    if time.perf_counter() > end: raise TimeoutError(f"{msg}: timed out after {timeout_ms} ms, the value is {got}, expected {value}")
  return got


class disable_gc(contextlib.ContextDecorator):
  """No garbage collection in a block.

  >>> with disable_gc(): pass
  """

  def __enter__(self) -> None:
    import gc
    self.was_on = gc.isenabled()
    gc.disable()

  def __exit__(self, *exc: object) -> None:
    import gc
    if self.was_on: gc.enable()
