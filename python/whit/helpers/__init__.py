"""Small things that programs import: flags, timing, progress bars, lists."""
from __future__ import annotations

import importlib, os, sys

from whit import _whit
from whit.hints import missing
from whit.helpers.flags import (getenv as getenv, ContextVar as ContextVar, Context as Context, Target as Target)
from whit.helpers.lists import (prod as prod, dedup as dedup, argfix as argfix, argsort as argsort, all_same as all_same, flatten as flatten,
  fully_flatten as fully_flatten, partition as partition, unwrap as unwrap, get_single_element as get_single_element, get_child as get_child,
  merge_dicts as merge_dicts, all_int as all_int, make_tuple as make_tuple, to_tuple as to_tuple, flat_to_grouped as flat_to_grouped, get_shape as
  get_shape, strides_for_shape as strides_for_shape, canonicalize_strides as canonicalize_strides, count as count)
from whit.helpers.numbers import (ceildiv as ceildiv, round_up as round_up, round_down as round_down, next_power2 as next_power2, cdiv as cdiv, cmod
  as cmod, floordiv as floordiv, floormod as floormod, lo32 as lo32, hi32 as hi32, data64 as data64, data64_le as data64_le, getbits as getbits, i2u
  as i2u, polyN as polyN)
from whit.helpers.text import (colored as colored, ansistrip as ansistrip, ansilen as ansilen, ansipad as ansipad, colorize_float as colorize_float,
  time_to_str as time_to_str, size_to_str as size_to_str, to_function_name as to_function_name, word_wrap as word_wrap, strip_parens as strip_parens,
  pluralize as pluralize)

TYPE_CHECKING = False
if TYPE_CHECKING:  # at run time: when they are first asked for
  from typing import Any, TypeVar
  from whit.helpers.memory import (pad_bytes as pad_bytes, from_mv as from_mv, to_mv as to_mv, mv_address as mv_address, flat_mv as flat_mv)
  from whit.helpers.timing import (Timing as Timing, Profiling as Profiling, perf_counter_us as perf_counter_us, TracingKey as TracingKey,
    ProfileEvent as ProfileEvent, ProfileRangeEvent as ProfileRangeEvent, ProfilePointEvent as ProfilePointEvent, cpu_profile as cpu_profile,
    profile_marker as profile_marker, profile_events as profile_events, write_profile as write_profile, wait_cond as wait_cond, disable_gc as
    disable_gc, cpu_events as cpu_events)
  from whit.helpers.progress import (tqdm as tqdm, trange as trange)
  from whit.helpers.files import (temp as temp, cache_dir as cache_dir, fetch as fetch, stderr_log as stderr_log, system as system, fromimport as
    fromimport, db_connection as db_connection, diskcache_get as diskcache_get, diskcache_put as diskcache_put, diskcache_clear as diskcache_clear,
    diskcache as diskcache, VERSION as VERSION)

  T = TypeVar("T")

OSX, WIN = sys.platform == "darwin", sys.platform == "win32"
CI = os.getenv("CI", "") != ""
GlobalCounters = _whit.GlobalCounters


_LATE = ("whit.helpers.memory", "whit.helpers.progress", "whit.helpers.timing", "whit.helpers.files")


def __dir__() -> list[str]: return sorted({*globals(), *ContextVar._cache, *(n for m in _LATE for n in vars(importlib.import_module(m)) if n[0] != "_")})


def __getattr__(name: str) -> Any:
  # Every flag of the table is a name of this module: DEBUG, BEAM, TRAINING ...
  if name in ContextVar._cache: return ContextVar._cache[name]
  if name.startswith("__"): raise missing("whit.helpers", name)
  for module in map(importlib.import_module, _LATE):
    if hasattr(module, name):
      globals()[name] = getattr(module, name)
      return globals()[name]
  if name == "T":
    from typing import TypeVar
    globals()["T"] = TypeVar("T")
    return globals()["T"]
  raise missing("whit.helpers", name)
