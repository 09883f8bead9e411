"""Small things that programs import: flags, timing, progress bars, lists."""
from __future__ import annotations

import contextlib, functools, hashlib, itertools, operator, os, pathlib, re, shutil, sys, tempfile, time, urllib.parse, urllib.request
from typing import Any, Callable, Generic, Iterable, Iterator, TypeVar

from whit import _whit

T = TypeVar("T")

OSX, WIN = sys.platform == "darwin", sys.platform == "win32"
CI = os.getenv("CI", "") != ""


def prod(x: Iterable) -> Any:
  """The product of the elements; 1 for none.

  >>> prod([2, 3, 4])
  24
  """
  return functools.reduce(operator.mul, x, 1)


def dedup(x: Iterable[T]) -> list[T]:
  """The elements without repetitions, in order of first appearance.

  >>> dedup([3, 1, 3])
  [3, 1]
  """
  return list(dict.fromkeys(x))


def argfix(*x):
  """`f(1, 2)` and `f((1, 2))` give the same tuple.

  >>> argfix(1, 2), argfix((1, 2))
  ((1, 2), (1, 2))
  """
  if x and isinstance(x[0], (tuple, list)):
    if len(x) != 1: raise ValueError(f"bad arg {x}: a list or single values, not both")
    return tuple(x[0])
  return tuple(x)


def argsort(x):
  """The indices that sort x, as a list or tuple like x.

  >>> argsort([30, 10, 20])
  [1, 2, 0]
  """
  return type(x)(sorted(range(len(x)), key=x.__getitem__))


def all_same(items) -> bool:
  """True when all elements are equal (also for none).

  >>> all_same([1, 1]), all_same([1, 2])
  (True, False)
  """
  return all(x == items[0] for x in items)


def flatten(l: Iterable[Iterable[T]]) -> list[T]:
  """One level of nesting less.

  >>> flatten([[1], [2, 3]])
  [1, 2, 3]
  """
  return [item for sub in l for item in sub]


def fully_flatten(l) -> list:
  """All levels of nested lists and tuples gone.

  >>> fully_flatten([1, [2, [3]]])
  [1, 2, 3]
  """
  return [y for x in l for y in fully_flatten(x)] if isinstance(l, (list, tuple)) else [l]


def partition(itr: Iterable[T], fxn: Callable[[T], bool]) -> tuple[list[T], list[T]]:
  """Those for which fxn holds, and the others.

  >>> partition([1, 2, 3], lambda x: x > 1)
  ([2, 3], [1])
  """
  yes: list[T] = []
  no: list[T] = []
  for s in itr: (yes if fxn(s) else no).append(s)
  return yes, no


def unwrap(x: T | None) -> T:
  """x, which must not be None.

  >>> unwrap(3)
  3
  """
  if x is None: raise AssertionError("unwrap of None")
  return x


def get_single_element(x: Iterable[T]) -> T:
  """The only element.

  >>> get_single_element({7})
  7
  """
  items = list(x)
  if len(items) != 1: raise AssertionError(f"expected one element, got {len(items)}")
  return items[0]


def get_child(obj, key: str):
  """Follows a dotted path through attributes, lists and dicts.

  >>> get_child({"a": [10, 20]}, "a.1")
  20
  """
  for k in key.split("."):
    obj = obj[int(k)] if k.isnumeric() else obj[k] if isinstance(obj, dict) else getattr(obj, k)
  return obj


def merge_dicts(ds: Iterable[dict]) -> dict:
  """One dict of all; a key with two values is an error.

  >>> merge_dicts([{"a": 1}, {"b": 2}])
  {'a': 1, 'b': 2}
  """
  out: dict = {}
  for d in ds:
    for k, v in d.items():
      if k in out and out[k] != v: raise KeyError(f"{k} has the values {out[k]} and {v}")
      out[k] = v
  return out


def ceildiv(num, amt):
  """Quotient rounded up.

  >>> ceildiv(7, 2)
  4
  """
  return -(num // -amt)


def round_up(num: int, amt: int) -> int:
  """The next multiple of amt.

  >>> round_up(5, 4)
  8
  """
  return ceildiv(num, amt) * amt


def cdiv(x: int, y: int) -> int:
  """Integer quotient towards zero; 0 for a zero divisor.

  >>> cdiv(-7, 2)
  -3
  """
  return abs(x) // abs(y) * (1 if x * y > 0 else -1) if y != 0 else 0


def cmod(x: int, y: int) -> int:
  """Remainder with the sign of x.

  >>> cmod(-7, 2)
  -1
  """
  return x - cdiv(x, y) * y


_COLORS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"]


def colored(st: str, color: str | None, background: bool = False) -> str:
  """The text in a terminal colour; upper-case names are bright. NO_COLOR=1 leaves it plain.

  >>> ansistrip(colored("hello", "green"))
  'hello'
  """
  if color is None or ContextVar._cache["NO_COLOR"]: return st
  code = 10 * background + 60 * (color.upper() == color) + 30 + _COLORS.index(color.lower())
  return f"\u001b[{code}m{st}\u001b[0m"


def ansistrip(s: str) -> str:
  """The text without terminal colours.

  >>> ansistrip("\\u001b[32mhello\\u001b[0m")
  'hello'
  """
  return re.sub("\x1b\\[(K|.*?m)", "", s)


def colorize_float(x: float) -> str:
  """A ratio: green below 0.75, red above 1.15.

  >>> ansistrip(colorize_float(1.0))
  '   1.00x'
  """
  return colored(f"{x:7.2f}x", "green" if x < 0.75 else "red" if x > 1.15 else "yellow")


def time_to_str(t: float, w: int = 8) -> str:
  """Seconds as s, ms or us.

  >>> time_to_str(0.0123)
  '   12.30ms'
  """
  return next((f"{t * d:{w}.2f}{pr}" for d, pr in [(1, "s "), (1e3, "ms")] if t > 10 / d), f"{t * 1e6:{w}.2f}us")


def temp(x: str, append_user: bool = False) -> str:
  """A path in the folder for temporary files.

  >>> temp("x").endswith("/x")
  True
  """
  return (pathlib.Path(tempfile.gettempdir()) / (f"{x}.{os.getenv('USER', os.getuid())}" if append_user else x)).as_posix()


def to_function_name(s: str) -> str:
  """The text as an identifier.

  >>> to_function_name("a-b")
  'a2Db'
  """
  return "".join(c if c.isalnum() or c == "_" else f"{ord(c):02X}" for c in ansistrip(s))


def word_wrap(x: str, wrap: int = 80) -> str:
  """Lines of at most `wrap` characters.

  >>> word_wrap("abcdef", 4).splitlines()
  ['abcd', 'ef']
  """
  return "\n".join(line[i:i + wrap] for line in x.splitlines() for i in range(0, max(len(line), 1), wrap))


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

  def __init__(self, key: str, default_value=None):
    if key in ContextVar._cache: raise RuntimeError(f"ContextVar {key} already exists")
    ContextVar._cache[key] = self
    self.key = key
    self._native = default_value is None or _whit.has_flag(key)
    self._own = None if self._native else getenv(key, default_value)

  @property
  def value(self):
    return _whit.flag(self.key) if self._native else self._own

  @value.setter
  def value(self, v):
    if self._native: _whit.set_flag(self.key, v)
    else: self._own = v

  def tolist(self, obj=None) -> list:
    """The comma list, each name looked up in obj when one is given."""
    return [getattr(obj, x) if obj is not None else x for x in str(self.value).split(",") if x]

  def __bool__(self): return bool(self.value)
  def __eq__(self, x): return self.value == x
  def __ne__(self, x): return self.value != x
  def __ge__(self, x): return self.value >= x
  def __gt__(self, x): return self.value > x
  def __le__(self, x): return self.value <= x
  def __lt__(self, x): return self.value < x
  def __hash__(self): return hash(self.key)
  def __int__(self): return int(self.value)
  def __str__(self): return str(self.value)
  def __repr__(self): return f"ContextVar({self.key}={self.value!r})"


for _name in _whit.flag_names(): ContextVar(_name)


def __getattr__(name: str):
  # Every flag of the table is a name of this module: DEBUG, BEAM, TRAINING ...
  if name in ContextVar._cache: return ContextVar._cache[name]
  raise AttributeError(f"module 'whit.helpers' has no attribute '{name}'")


class Context(contextlib.ContextDecorator):
  """Overrides flags in a `with` block or a decorated function: `with Context(TRAINING=1): ...`

  >>> from whit.helpers import TRAINING
  >>> with Context(TRAINING=1): print(bool(TRAINING))
  ...
  True
  """
  _stack: list[dict]

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

  def _recreate_cm(self): return self


class Timing(contextlib.ContextDecorator):
  """Prints how long a block took.

  >>> with Timing("copy ", enabled=False): pass
  ...
  """

  def __init__(self, prefix: str = "", on_exit: Callable[[int], str] | None = None, enabled: bool = True):
    self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled

  def __enter__(self):
    self.st = time.perf_counter_ns()
    return self

  def __exit__(self, *exc):
    self.et = time.perf_counter_ns() - self.st
    if self.enabled: print(f"{self.prefix}{self.et * 1e-6:6.2f} ms" + (self.on_exit(self.et) if self.on_exit else ""))


class Profiling(contextlib.ContextDecorator):
  """Profiles a block with cProfile and prints the functions that took longest.

  >>> with Profiling(enabled=False): pass
  ...
  """

  def __init__(self, enabled: bool = True, sort: str = "cumtime", frac: float = 0.2, fn: str | None = None, ts: float = 1):
    self.enabled, self.sort, self.frac, self.fn, self.time_scale = enabled, sort, frac, fn, 1e3 / ts

  def __enter__(self):
    import cProfile
    self.pr = cProfile.Profile()
    if self.enabled: self.pr.enable()
    return self

  def __exit__(self, *exc):
    if not self.enabled: return
    self.pr.disable()
    import pstats
    stats = pstats.Stats(self.pr)
    if self.fn: stats.dump_stats(self.fn)
    stats.strip_dirs().sort_stats(self.sort).print_stats(self.frac)


class tqdm(Generic[T]):
  """A progress bar: over an iterable, or driven by `update`.

  >>> sum(tqdm([1, 2, 3], disable=True))
  6
  """

  def __init__(self, iterable: Iterable[T] | None = None, desc: str = "", disable: bool = False, unit: str = "it", unit_scale: bool = False,
               total: int | None = None, rate: int = 10):
    self.iterable, self.disable, self.unit, self.rate = iterable, disable, unit, rate
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

  def __enter__(self): return self
  def __exit__(self, *_): self.update(close=True)

  def set_description(self, desc: str): self.desc = f"{desc}: " if desc else ""

  def update(self, n: int = 0, close: bool = False):
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
  def write(cls, s: str): print(f"\r\033[K{s}", flush=True, file=sys.stderr)


class trange(tqdm):
  """`tqdm(range(n))`

  >>> list(trange(3, disable=True))
  [0, 1, 2]
  """

  def __init__(self, n: int, **kwargs): super().__init__(iterable=range(n), total=n, **kwargs)


def cache_dir() -> pathlib.Path:
  """The folder in which downloads and kernels are kept (XDG_CACHE_HOME/whit).

  >>> cache_dir().name
  'whit'
  """
  return pathlib.Path(os.getenv("XDG_CACHE_HOME", "~/.cache")).expanduser() / "whit"


def fetch(url: str, name: str | pathlib.Path | None = None, subdir: str | None = None, gunzip: bool = False, allow_caching: bool = True,
          headers: dict[str, str] = {}, sha256: str | None = None, extract: bool = False) -> pathlib.Path:
  """Downloads a file into the cache and gives its path; a local path is given back as it is. What fails its sha256 is not kept.

  >>> import tempfile
  >>> f = tempfile.NamedTemporaryFile()
  >>> fetch(f.name) == pathlib.Path(f.name)
  True
  """
  if url.startswith(("/", ".")): return pathlib.Path(url)
  if name is not None and (isinstance(name, pathlib.Path) or "/" in name): fp = pathlib.Path(name)
  else:
    base = cache_dir() / "downloads" / (subdir or "")
    stem = name or hashlib.md5(url.encode()).hexdigest() + ("-" + hashlib.md5("\n".join(f"{k}:{v}" for k, v in headers.items()).encode()).hexdigest() if headers else "")
    fp = base / (str(stem) + (".gunzip" if gunzip else ""))
  if not fp.is_file() or not allow_caching or getenv("DISABLE_HTTP_CACHE"):
    fp.parent.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(urllib.request.Request(url, headers={"User-Agent": "whit", **headers}), timeout=10) as r:
      if r.status not in (200, 206): raise OSError(f"fetch of {url}: status {r.status}")
      length = int(r.headers.get("content-length", 0)) if not gunzip else None
      if gunzip:
        import gzip
        r = gzip.GzipFile(fileobj=r)
      digest = hashlib.sha256()
      with tempfile.NamedTemporaryFile(dir=fp.parent, delete=False) as f:
        try:
          while chunk := r.read(1 << 20):
            f.write(chunk)
            digest.update(chunk)
          f.close()
          if length and (n := os.stat(f.name).st_size) < length: raise RuntimeError(f"fetch of {url}: {n} bytes of {length}")
          if sha256 and digest.hexdigest() != sha256.lower(): raise RuntimeError(f"fetch of {url}: sha256 is {digest.hexdigest()}, expected {sha256}")
          pathlib.Path(f.name).rename(fp)
        except BaseException:
          with contextlib.suppress(FileNotFoundError): os.unlink(f.name)
          raise
  if extract:
    import tarfile
    out = fp.with_suffix(fp.suffix + ".extract")
    if not out.is_dir():
      with tarfile.open(fp) as tar: tar.extractall(out, filter="data")
    return out
  return fp


GlobalCounters = _whit.GlobalCounters
