"""Files, downloads, commands, and a cache of values on disk."""
from __future__ import annotations

import contextlib, functools, importlib, os, pathlib, sys, tempfile
from typing import TYPE_CHECKING, Any, Callable, ParamSpec, TypeVar

from whit.helpers.flags import ContextVar, getenv

if TYPE_CHECKING: import sqlite3

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

VERSION = 1  # of what the cache holds


def temp(x: str, append_user: bool = False) -> str:
  """A path in the folder for temporary files.

  >>> temp("x").endswith("/x")
  True
  """
  return (pathlib.Path(tempfile.gettempdir()) / (f"{x}.{os.getenv('USER', os.getuid())}" if append_user else x)).as_posix()


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


def stderr_log(msg: str) -> None:
  """Writes to the standard error output at once.

  >>> stderr_log("")
  """
  print(msg, end="", file=sys.stderr, flush=True)


def system(cmd: str, **kwargs: Any) -> str:
  """What a shell command prints; RuntimeError when it fails.

  >>> system("echo hello")
  'hello'
  """
  import subprocess
  done = subprocess.run(cmd, shell=True, capture_output=True, text=True, **kwargs)
  if done.returncode: raise RuntimeError(f"[system] {cmd}: exit status {done.returncode}: {done.stderr.strip()}")
  return str(done.stdout).strip()


def fromimport(mod: str, frm: str) -> Any:
  """`from mod import frm`.

  >>> fromimport("math", "pi") > 3
  True
  """
  return getattr(importlib.import_module(mod), frm)


@functools.cache
def db_connection() -> sqlite3.Connection:
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


def _disk_key(key: Any) -> str: return repr(sorted(key.items()) if isinstance(key, dict) else key)


def diskcache_get(table: str, key: Any) -> Any:
  """What was put under a key, or None.

  >>> diskcache_get("nothing", "here") is None
  True
  """
  if not ContextVar._cache["CACHELEVEL"]: return None
  import pickle
  row = db_connection().execute("select val from cache where tab = ? and key = ?", (f"{table}_{VERSION}", _disk_key(key))).fetchone()
  return None if row is None else pickle.loads(row[0])


def diskcache_put(table: str, key: Any, val: T, prepickled: bool = False) -> T:
  """Keeps a value on disk, and returns it.

  >>> diskcache_put("doc", {"a": 1}, [1, 2]), diskcache_get("doc", {"a": 1})
  ([1, 2], [1, 2])
  """
  if not ContextVar._cache["CACHELEVEL"]: return val
  import pickle
  db_connection().execute("replace into cache values (?, ?, ?)", (f"{table}_{VERSION}", _disk_key(key), val if prepickled else pickle.dumps(val)))
  return val


def diskcache_clear() -> None:
  """Forgets all values on disk.

  >>> diskcache_clear()
  """
  db_connection().execute("delete from cache")


def diskcache(func: Callable[P, R]) -> Callable[P, R]:
  """Remembers a function's results on disk, by its arguments.

  >>> @diskcache
  ... def slow(x): return x + 1
  >>> slow(3)
  4
  """
  @functools.wraps(func)
  def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
    import hashlib
    key = hashlib.sha256(repr((func.__module__, func.__code__.co_code, func.__code__.co_consts, args, sorted(kwargs.items()))).encode()).hexdigest()
    got: R | None = diskcache_get(f"cache_{func.__name__}", key)
    return got if got is not None else diskcache_put(f"cache_{func.__name__}", key, func(*args, **kwargs))
  return wrapper
