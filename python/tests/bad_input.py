"""Calls every public name of Tensor with arguments that make no sense: `bad_input.py [SEED] [CALLS] [NAME..]`.

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
           BufferError)
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
    if not re.search(r"\[[\w ]+\]|incompatible function arguments|\w+\(\)|not iterable|object|has no attribute|must be|Tensor|float|integer|an argument has a type", said): raise
  signal.setitimer(signal.ITIMER_PROF, 0)


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
  rows = [r for r in (pathlib.Path(__file__).parent / "tensor_surface.txt").read_text().splitlines() if not r.startswith("#")]
  sys.exit(main(rows, int(sys.argv[1]) if len(sys.argv) > 1 else 0, int(sys.argv[2]) if len(sys.argv) > 2 else 10, sys.argv[3:]))
