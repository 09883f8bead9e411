"""Calls every public name of Tensor with arguments that make no sense: `bad_input.py [SEED] [CALLS] [NAME..]`; those of nn, dtypes and helpers:
`bad_input.py modules SEED CALLS [NAME..]`.

Each call must give a result that can be computed, or raise one of the types that Python users expect, with a text that names the operation. A
crash or a hang ends the process; the last line of the output then says in which call. test_bad_input.py runs it.
"""
import itertools
import math
import random
import re
import signal
import sys

from whit import Context, Tensor, TinyJit, UOp, dtypes

ALLOWED = (ValueError, LookupError, TypeError, AttributeError, RuntimeError, AssertionError, OverflowError, ArithmeticError, MemoryError, OSError,
           BufferError, ImportError)
NEVER = ("InternalError", "CompileError", "SystemError", "RecursionError")
LEFT_OUT = {"from_url": "opens what it is given", "from_blob": "any number is an address"}
SECONDS = 60  # of the process's own time for one call


def selves():
  return {"f": Tensor([[1.0, -2.0, 3.0], [0.5, float("nan"), 6.0]]), "i": Tensor([3, 1, 2, 1]), "b": Tensor([[True, False], [False, True]]),
          "s": Tensor(2.5, device="CPU"), "w": Tensor(3), "e": Tensor.zeros(0, 3), "h": Tensor([[1.0, 2.0]], dtype=dtypes.half), "u": Tensor([200, 7], dtype=dtypes.uint8),
          "x": Tensor.arange(24).reshape(1, 2, 3, 4).float().contiguous()}


def values(t: dict) -> dict:
  numbers = {repr(v): v for v in (None, True, -1, 0, 1, 2, 3, -7, 2**31, -2**31, 2**62, -2**63, 2**70, 0.5, -1.5, math.nan, math.inf, 1e300)}
  texts = {repr(v): v for v in ("abc", "", "mean", "->", "ij,jk->ik", "sum", b"xy", "float32", "CPU", "NOWHERE")}
  lists = {repr(v): v for v in ([], (), (0,), (-1,), (1, 1), (0, 0), (2, 3), (3, 2), (-1, -1), (2**40, 2**40), [1.5], ["a"], [None, None], ((0, 1), (1, 0)), ((1,), 2), [[1], [2, 3]])}
  others = {"{}": {}, "object()": object(), "dtypes.half": dtypes.half, "dtypes.void": dtypes.void, "int": int, "lambda x: x": lambda x: x, "...": ..., "slice(0, 2)": slice(0, 2),
            "slice(None, None, 0)": slice(None, None, 0), "UOp.const(1)": UOp.const(1)}
  return {**numbers, **texts, **lists, **others, **t}


def names(rows):
  for row in rows:
    kind, name, sig = re.fullmatch(r"(?:@(\w+) )?(\w+)(?:\((.*)\))?", row).groups()
    if kind == "helper" or not hasattr(Tensor, name) or name in LEFT_OUT or name in ("__hash__", "__init__", "__repr__"): continue
    yield kind, name, sig


def force(x):
  """Computes what came out, unless that is large."""
  for y in x if isinstance(x, (tuple, list)) else (x,):
    if isinstance(y, Tensor) and y.numel() <= 1 << 16 and max(y.shape, default=0) <= 1 << 16: y.tolist()


def one_call(r: random.Random, t: dict, kind: str, name: str, sig: str | None):
  pool = values(t)
  s = r.choice(list(t))
  words = [p.strip() for p in re.sub(r"\([^)]*\)", "0", sig or "").split(",") if p.strip() and p.strip() != "*"] if kind != "dunder" else ["x", "y"][:1 + (name == "__setitem__")]
  if kind == "dunder" and name in ("__neg__", "__invert__", "__bool__", "__len__"): words = []
  args, kwargs = [], {}
  for w in words:
    if w.startswith("**"): continue
    if w.startswith("*"): args += [r.choice(list(pool)) for _ in range(r.randrange(3))]
    elif "=" not in w: args.append(r.choice(list(pool)))
    elif r.random() < 0.5: kwargs[w.split("=")[0]] = r.choice(list(pool))
  target = f"Tensor.{name}" if kind in ("cls", "static") else f"{s}.{name}"
  text = f"{target}({', '.join(args + [f'{k}={v}' for k, v in kwargs.items()])})"
  print(text, flush=True)
  if kind == "prop": call = lambda: getattr(t[s], name)
  else: call = lambda: getattr(Tensor if kind in ("cls", "static") else t[s], name)(*(pool[a] for a in args), **{k: pool[v] for k, v in kwargs.items()})
  signal.setitimer(signal.ITIMER_PROF, SECONDS)
  try:
    force(call())
  except ALLOWED as e:
    if type(e).__name__ in NEVER: raise
    said = str(e)
    if not re.search(r"\[[\w ]+\]|\w+\(\)|not iterable|object|has no attribute|must be|Tensor|float|integer|an argument has a type", said): raise
  signal.setitimer(signal.ITIMER_PROF, 0)


HELPERS_LEFT_OUT = {"fetch", "system", "cpu_profile", "disable_gc", "db_connection", "diskcache_clear", "diskcache_get", "diskcache_put", "from_mv", "to_mv", "mv_address", "flat_mv",
                    "temp", "tqdm", "trange", "Timing", "Profiling", "profile_marker", "getenv", "write_profile"}


def callables() -> dict:
  """Functions and classes of the package beside Tensor, by name."""
  import inspect

  import whit
  from whit import helpers, nn
  out = {}
  for module in (nn, nn.optim, nn.lr_scheduler, nn.utils, nn.state, whit.dtypes, helpers):
    prefix = getattr(module, "__name__", "dtypes").removeprefix("whit.")
    for name in getattr(module, "__all__", None) or dir(module):
      f = getattr(module, name)
      if name.startswith("_") or not callable(f) or module is helpers and (name in HELPERS_LEFT_OUT or getattr(f, "__module__", "") != "whit.helpers"): continue
      if prefix.startswith("nn.") and getattr(f, "__module__", "") != module.__name__ or name in ("save_checkpoint", "safe_save"): continue  # no files of odd names
      try: inspect.signature(f)
      except (ValueError, TypeError): continue
      out[f"{prefix}.{name}"] = f
  return out


def call_module(r: random.Random, t: dict, name: str, f):
  """A function, or a class whose object is then called, or steps as an optimiser does, with odd and with fitting arguments."""
  import inspect
  pool = values(t)
  fitting = {"params": [t["f"], t["x"]], "optimizer": None, "x": t["x"], "sz": 2, "num_features": 2, "in_channels": 2, "out_channels": 4, "kernel_size": 2, "in_features": 3, "out_features": 4}
  args, shown = {}, []
  for p in inspect.signature(f).parameters.values():
    if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.default is not p.empty and r.random() < 0.6: continue
    if p.name in fitting and r.random() < 0.6: args[p.name] = fitting[p.name]
    else: args[p.name] = pool[r.choice(list(pool))]
    shown.append(f"{p.name}={str(args[p.name])[:60]}")
  print(f"{name}({', '.join(shown)})".replace("\n", " "), flush=True)
  signal.setitimer(signal.ITIMER_PROF, SECONDS)
  try:
    made = f(*[args.pop(p.name) for p in inspect.signature(f).parameters.values() if p.kind == p.POSITIONAL_ONLY and p.name in args], **args)
    if isinstance(f, type) and hasattr(made, "step"): made.step()
    elif isinstance(f, type) and callable(made): made = made(t[r.choice(list(t))])
    force(made)
  except ALLOWED as e:
    if type(e).__name__ in NEVER: raise
  signal.setitimer(signal.ITIMER_PROF, 0)


def main_modules(seed: int, calls: int, only=()) -> int:
  wrong = 0
  for name, f in callables().items():
    if only and name not in only: continue
    r, t = random.Random(f"{seed} {name}"), selves()
    for _ in range(calls):
      try: call_module(r, t, name, f)
      except Exception as e:
        wrong += 1
        print(f"WRONG {type(e).__name__}: {str(e)[:300]}", flush=True)
  print(f"{wrong} wrong", flush=True)
  return int(wrong != 0)


def main(rows, seed: int, calls: int, only=()) -> int:
  wrong = 0
  for kind, name, sig in names(rows):
    if only and name not in only: continue
    r, t = random.Random(f"{seed} {name}"), selves()
    for _ in range(calls):
      try: one_call(r, t, kind, name, sig)
      except Exception as e:
        wrong += 1
        print(f"WRONG {type(e).__name__}: {str(e)[:300]}", flush=True)
  print(f"{wrong} wrong", flush=True)
  return int(wrong != 0)


if __name__ == "__main__":
  import pathlib
  import resource
  resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
  if sys.argv[1:2] == ["modules"]: sys.exit(main_modules(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
  rows = [r for r in (pathlib.Path(__file__).parent / "tensor_surface.txt").read_text().splitlines() if not r.startswith("#")]
  sys.exit(main(rows, int(sys.argv[1]) if len(sys.argv) > 1 else 0, int(sys.argv[2]) if len(sys.argv) > 2 else 10, sys.argv[3:]))
