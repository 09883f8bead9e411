"""Small things that programs import: flags, timing, progress bars, lists."""
from __future__ import annotations

import contextlib, functools, importlib, itertools, operator, os, pathlib, re, shutil, sys, tempfile, time
from typing import Any, Callable, Generic, Iterable, Iterator, NamedTuple, TypeVar

from whit import _whit
from whit.hints import missing

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


def ansilen(s: str):
  """The length as a terminal shows it.

  >>> ansilen(colored("ab", "red"))
  2
  """
  return len(ansistrip(s))


def ansipad(s: str, w: int):
  """Spaces up to a width, terminal colours not counted.

  >>> ansipad("ab", 3)
  'ab '
  """
  return s + " " * max(w - ansilen(s), 0)


def size_to_str(s: int):
  """Bytes as GB, MB or KB.

  >>> size_to_str(2048)
  '2.00 KB'
  """
  return next((f"{s / d:.2f} {u}" for d, u in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")) if s >= d), f"{s} B")


def all_int(t):
  """True when no element is symbolic.

  >>> all_int((1, 2))
  True
  """
  return all(isinstance(x, int) for x in t)


def make_tuple(x, cnt: int):
  """A number for each of cnt axes.

  >>> make_tuple(3, 2)
  (3, 3)
  """
  return (x,) * cnt if isinstance(x, int) else tuple(x)


def to_tuple(x):
  """x, as a tuple of one where it is none.

  >>> to_tuple(3)
  (3,)
  """
  return x if isinstance(x, tuple) else (x,)


def flat_to_grouped(padding):
  """Padding from the last axis on, as pairs from the first axis on.

  >>> flat_to_grouped((1, 2, 3, 4))
  ((3, 4), (1, 2))
  """
  return tuple(zip(padding[-2::-2], padding[::-2]))


def round_down(num: int, amt: int):
  """The multiple of amt at or below num.

  >>> round_down(7, 4)
  4
  """
  return num // amt * amt


def next_power2(x: int):
  """The least power of two that is not below x.

  >>> next_power2(5)
  8
  """
  return 1 << max(x - 1, 0).bit_length()


def floordiv(x: int, y: int):
  """Python's quotient; 0 for a zero divisor.

  >>> floordiv(-7, 2)
  -4
  """
  return x // y if y else 0


def floormod(x: int, y: int):
  """Python's remainder; x for a zero divisor.

  >>> floormod(-7, 2)
  1
  """
  return x - floordiv(x, y) * y


def lo32(x):
  """The low 32 bits.

  >>> lo32(1 << 33 | 5)
  5
  """
  return x & 0xFFFFFFFF


def hi32(x):
  """What is above the low 32 bits.

  >>> hi32(1 << 33)
  2
  """
  return x >> 32


def data64(x):
  """High and low half of 64 bits.

  >>> data64(1 << 33 | 5)
  (2, 5)
  """
  return (hi32(x), lo32(x))


def data64_le(x):
  """Low and high half of 64 bits.

  >>> data64_le(1 << 33 | 5)
  (5, 2)
  """
  return (lo32(x), hi32(x))


def getbits(value: int, start: int, end: int):
  """The bits from start to end, both included.

  >>> getbits(0b1100, 2, 3)
  3
  """
  return value >> start & (1 << end - start + 1) - 1


def i2u(bits: int, value: int):
  """A signed number as unsigned bits.

  >>> i2u(8, -1)
  255
  """
  return value if value >= 0 else (1 << bits) + value


def pad_bytes(b: bytes, align: int):
  """Zeros up to a multiple of align.

  >>> pad_bytes(b'abc', 4)
  b'abc\\x00'
  """
  return b + bytes(-len(b) % align)


def polyN(x, p):
  """A polynomial by Horner's rule, the highest power first.

  >>> polyN(2.0, [1, 0, 3])
  7.0
  """
  return functools.reduce(lambda acc, c: acc * x + c, p, 0.0)


def strides_for_shape(shape):
  """Row-major strides; 0 for axes of size 1.

  >>> strides_for_shape((2, 1, 3))
  (3, 0, 1)
  """
  return tuple(prod(shape[i + 1:]) if n != 1 else 0 for i, n in enumerate(shape))


def pluralize(st: str, cnt: int):
  """A count with its noun.

  >>> pluralize("kernel", 2)
  '2 kernels'
  """
  return f"{cnt} {st}" + ("" if cnt == 1 else "s")


def from_mv(mv: memoryview, to_type=None):
  """Memory as a ctypes array.

  >>> len(from_mv(memoryview(bytearray(4))))
  4
  """
  import ctypes
  kind = to_type or ctypes.c_char
  return (kind * (mv.nbytes // ctypes.sizeof(kind))).from_buffer(mv)


def to_mv(ptr: int, sz: int):
  """Memory by address.

  >>> m = memoryview(bytearray(b'abcd'))
  >>> bytes(to_mv(mv_address(m), 2))
  b'ab'
  """
  import ctypes
  return memoryview((ctypes.c_uint8 * sz).from_address(ptr)).cast("B")


def mv_address(mv: memoryview):
  """The address of memory.

  >>> mv_address(memoryview(bytearray(1))) > 0
  True
  """
  import ctypes
  return ctypes.addressof(ctypes.c_char.from_buffer(mv))


def flat_mv(mv: memoryview):
  """Memory as bytes in one axis.

  >>> flat_mv(memoryview(bytearray(4))).shape
  (4,)
  """
  return mv if len(mv) == 0 else mv.cast("B", shape=(mv.nbytes,))


def fromimport(mod: str, frm: str):
  """`from mod import frm`.

  >>> fromimport("math", "pi") > 3
  True
  """
  return getattr(importlib.import_module(mod), frm)


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
  raise missing("whit.helpers", name)


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
  import hashlib
  if url.startswith(("/", ".")): return pathlib.Path(url)
  if name is not None and (isinstance(name, pathlib.Path) or "/" in name): fp = pathlib.Path(name)
  else:
    base = cache_dir() / "downloads" / (subdir or "")
    stem = name or hashlib.md5(url.encode()).hexdigest() + ("-" + hashlib.md5("\n".join(f"{k}:{v}" for k, v in headers.items()).encode()).hexdigest() if headers else "")
    fp = base / (str(stem) + (".gunzip" if gunzip else ""))
  if (not fp.is_file() or not allow_caching or getenv("DISABLE_HTTP_CACHE")
      or (sha256 and hashlib.sha256(fp.read_bytes()).hexdigest() != sha256.lower())):
    import urllib.request
    fp.parent.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(urllib.request.Request(url, headers={"User-Agent": "whit", **headers}), timeout=10) as r:
      if r.status not in (None, 200, 206): raise OSError(f"fetch of {url}: status {r.status}")
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


def get_shape(x) -> tuple[int, ...]:
  """The shape of a nested list.

  >>> get_shape([[1, 2, 3], [4, 5, 6]])
  (2, 3)
  """
  if not isinstance(x, (list, tuple)) and not hasattr(x, "__len__"): return ()
  if isinstance(x, (str, bytes)): return ()
  shapes = [get_shape(y) for y in x]
  if not all_same(shapes): raise ValueError(f"inhomogeneous shape from {x}")
  return (len(x),) + (shapes[0] if shapes else ())


def strip_parens(s: str) -> str:
  """The text without parentheses around all of it.

  >>> strip_parens("(a+b)"), strip_parens("(a)+(b)")
  ('a+b', '(a)+(b)')
  """
  if not (s.startswith("(") and s.endswith(")")): return s
  depth = 0
  for c in s[1:-1]:
    depth += (c == "(") - (c == ")")
    if depth < 0: return s
  return s[1:-1]


def canonicalize_strides(shape, strides) -> tuple:
  """Strides with 0 for axes of size 1.

  >>> canonicalize_strides((2, 1), (1, 7))
  (1, 0)
  """
  return tuple(0 if n == 1 else st for n, st in zip(shape, strides))


def perf_counter_us():
  """The clock in microseconds, as a Decimal.

  >>> perf_counter_us() > 0
  True
  """
  import decimal
  return decimal.Decimal(time.perf_counter_ns()) / 1000


def stderr_log(msg: str):
  """Writes to the standard error output at once.

  >>> stderr_log("")
  """
  print(msg, end="", file=sys.stderr, flush=True)


def system(cmd: str, **kwargs) -> str:
  """What a shell command prints; RuntimeError when it fails.

  >>> system("echo hello")
  'hello'
  """
  import subprocess
  done = subprocess.run(cmd, shell=True, capture_output=True, text=True, **kwargs)
  if done.returncode: raise RuntimeError(f"[system] {cmd}: exit status {done.returncode}: {done.stderr.strip()}")
  return done.stdout.strip()


def wait_cond(cb: Callable, *args, value=True, timeout_ms: int = 10000, msg: str = "") -> bool:
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

  def __enter__(self):
    import gc
    self.was_on = gc.isenabled()
    gc.disable()

  def __exit__(self, *exc):
    import gc
    if self.was_on: gc.enable()


class count:
  """Numbers from `start` on, which can be pickled.

  >>> c = count(3)
  >>> next(c), next(c)
  (3, 4)
  """

  def __init__(self, start: int = 0, step: int = 1): self.n, self.step = start, step
  def __iter__(self): return self
  def __next__(self):
    self.n += self.step
    return self.n - self.step


# Profiling: what a program marks itself.
cpu_events: list = []


class TracingKey(NamedTuple):
  """A name for something in a profile.

  >>> TracingKey("load").display_name
  'load'
  """
  display_name: str
  keys: tuple = ()
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

  def __init__(self, device: str, name: Any, st: Any, en: Any = None, is_copy: bool = False):
    self.device, self.name, self.st, self.en, self.is_copy = device, name, st, en, is_copy
    self.key: Any = None
    self.arg: dict = {}


class ProfilePointEvent(ProfileEvent):
  """A moment.

  >>> ProfilePointEvent("CPU", "start", 1).name
  'start'
  """

  def __init__(self, device: str, name: str, key: Any, arg: dict | None = None, ts: Any = None):
    self.device, self.name, self.key, self.arg, self.ts = device, name, key, arg or {}, perf_counter_us() if ts is None else ts


@contextlib.contextmanager
def cpu_profile(name, device: str = "WHIT", display: bool = True):
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


# A cache of values on disk.
VERSION = 1


@functools.cache
def db_connection():
  """The SQLite database behind `diskcache`.

  >>> db_connection().execute("select 1").fetchone()
  (1,)
  """
  import sqlite3
  cache_dir().mkdir(parents=True, exist_ok=True)
  db = sqlite3.connect(cache_dir() / "python.db", timeout=60, isolation_level=None, check_same_thread=False)
  db.execute("pragma journal_mode=wal")
  db.execute("create table if not exists cache (tab text, key text, val blob, primary key (tab, key))")
  return db


def _disk_key(key) -> str: return repr(sorted(key.items()) if isinstance(key, dict) else key)


def diskcache_get(table: str, key) -> Any:
  """What was put under a key, or None.

  >>> diskcache_get("nothing", "here") is None
  True
  """
  if not ContextVar._cache["CACHELEVEL"]: return None
  import pickle
  row = db_connection().execute("select val from cache where tab = ? and key = ?", (f"{table}_{VERSION}", _disk_key(key))).fetchone()
  return None if row is None else pickle.loads(row[0])


def diskcache_put(table: str, key, val: Any, prepickled: bool = False):
  """Keeps a value on disk, and returns it.

  >>> diskcache_put("doc", {"a": 1}, [1, 2]), diskcache_get("doc", {"a": 1})
  ([1, 2], [1, 2])
  """
  if not ContextVar._cache["CACHELEVEL"]: return val
  import pickle
  db_connection().execute("replace into cache values (?, ?, ?)", (f"{table}_{VERSION}", _disk_key(key), val if prepickled else pickle.dumps(val)))
  return val


def diskcache_clear():
  """Forgets all values on disk.

  >>> diskcache_clear()
  """
  db_connection().execute("delete from cache")


def diskcache(func: Callable) -> Callable:
  """Remembers a function's results on disk, by its arguments.

  >>> @diskcache
  ... def slow(x): return x + 1
  >>> slow(3)
  4
  """
  @functools.wraps(func)
  def wrapper(*args, **kwargs):
    import hashlib
    key = hashlib.sha256(repr((func.__module__, func.__code__.co_code, func.__code__.co_consts, args, sorted(kwargs.items()))).encode()).hexdigest()
    got = diskcache_get(f"cache_{func.__name__}", key)
    return got if got is not None else diskcache_put(f"cache_{func.__name__}", key, func(*args, **kwargs))
  return wrapper


class Target(NamedTuple):
  """A device with its renderer, as the flag DEV names them: DEVICE[:RENDERER[:ARCH]].

  >>> Target.parse("CPU:LLVM").renderer
  'LLVM'
  """
  device: str = ""
  renderer: str = ""
  arch: str = ""

  @staticmethod
  def parse(text: str) -> Target: return Target(*(text.split(":") + ["", "", ""])[:3])
  def __str__(self): return ":".join(p for p in (self.device, self.renderer, self.arch) if p)


GlobalCounters = _whit.GlobalCounters
