"""Progress bars."""
from __future__ import annotations

import shutil, sys, time
from typing import Any, Generic, Iterable, Iterator, TypeVar

T = TypeVar("T")


class tqdm(Generic[T]):
  """A progress bar: over an iterable, or driven by `update`.

  >>> sum(tqdm([1, 2, 3], disable=True))
  6
  """

  def __init__(self, iterable: Iterable[T] | None = None, desc: str = "", disable: bool | None = False, unit: str = "it", unit_scale: bool = False,
               total: int | None = None, rate: int = 10) -> None:
    self.iterable, self.disable, self.unit, self.rate = iterable, not sys.stderr.isatty() if disable is None else disable, unit, rate
    self.unit_scale, self.st, self.i, self.n, self.skip, self.t = unit_scale, time.perf_counter(), -1, 0, 1, total
    if total is None and iterable is not None and hasattr(iterable, "__len__"): self.t = len(iterable)  # type: ignore
    self.set_description(desc)
    self.update(0)

  def __iter__(self) -> Iterator[T]:
    if self.iterable is None: raise RuntimeError("need an iterable to iterate")
    for item in self.iterable:
      yield item
      self.update(1)
    self.update(close=True)

  def __enter__(self) -> tqdm[T]: return self
  def __exit__(self, *_: object) -> None: self.update(close=True)

  def set_description(self, desc: str) -> None: self.desc = f"{desc}: " if desc else ""

  def update(self, n: int = 0, close: bool = False) -> None:
    self.n, self.i = self.n + n, self.i + 1
    if self.disable or (not close and self.i % self.skip != 0): return
    elapsed, ncols = time.perf_counter() - self.st, shutil.get_terminal_size().columns
    if self.i and elapsed and self.i / elapsed > self.rate: self.skip = max(int(self.i / elapsed) // self.rate, 1)

    def hms(t: float) -> str:
      m, s = divmod(int(t), 60)
      h, m = divmod(m, 60)
      return f"{h}:{m:02d}:{s:02d}" if h else f"{m:02d}:{s:02d}"

    def scale(x: float) -> str:
      if not self.unit_scale: return f"{x:g}" if isinstance(x, int) else f"{x:.2f}"
      for p in ("", "k", "M", "G", "T"):
        if x < 1000: break
        x /= 1000
      return f"{x:.3g}{p}"

    frac = self.n / self.t if self.t else None
    rate = scale(self.n / elapsed) if elapsed and self.n else "?"
    if self.t and frac is not None:
      left = hms(elapsed / frac - elapsed) if frac else "?"
      suffix = f" {scale(self.n)}/{scale(self.t)} [{hms(elapsed)}<{left}, {rate}{self.unit}/s]"
      size = max(ncols - len(self.desc) - 3 - 2 - 2 - len(suffix), 1)
      num = min(frac, 1.0) * size
      bar = "█" * int(num) + " ▏▎▍▌▋▊▉"[int(8 * num) % 8].strip()
      text = f"\r{self.desc}{100 * frac:3.0f}%|{bar:{size}s}|{suffix}"
    else:
      text = f"\r{self.desc}{scale(self.n)}{self.unit} [{hms(elapsed)}, {rate}{self.unit}/s]"
    print(text[:ncols + 1], flush=True, end="\n" * close, file=sys.stderr)

  @classmethod
  def write(cls, s: str) -> None: print(f"\r\033[K{s}", flush=True, file=sys.stderr)


class trange(tqdm[int]):
  """`tqdm(range(n))`

  >>> list(trange(3, disable=True))
  [0, 1, 2]
  """

  def __init__(self, n: int, **kwargs: Any) -> None: super().__init__(iterable=range(n), total=n, **kwargs)
