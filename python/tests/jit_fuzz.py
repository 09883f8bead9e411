"""Random programs, captured by TinyJit, against the same programs run plainly.

A program has state, a function that computes, stores into state or arguments and returns some of it, and a driver that calls it several times and, in
between, keeps results, passes them back, reads state by values that are not computed, stores into state itself. Everything is int32, so equal bit for bit.
A JitError is allowed if it is one of the documented reasons and has changed nothing. `python jit_fuzz.py FIRST N` runs more of them."""
import random, re, sys

import numpy as np

from whit import Context, Tensor, TinyJit, Variable, checkpoint, dtypes
from whit.engine.jit import JitError

REASONS = ["were the same memory when captured", "share memory, and the captured function writes it", "view of part of a memory that the captured function writes", "is memory that the captured function writes", "replaced the value of a tensor from before", "realize\\(\\) it before", "constant without memory", "ran nothing",
           "nothing was run", "still used"]
ROWS, COLS = 3, 4


class Program:
  def __init__(self, seed: int, jit: bool):
    self.rng = random.Random(seed)
    self.n_states, self.n_args = self.rng.randint(1, 3), self.rng.randint(1, 3)
    self.body_seed, self.n_steps, self.n_calls = self.rng.random(), self.rng.randint(1, 8), self.rng.randint(4, 8)
    self.states = [self.fresh() for _ in range(self.n_states)]
    self.base = self.fresh(2 * ROWS)
    self.use_variable, self.use_views = self.rng.random() < 0.2, self.rng.random() < 0.4
    self.inner = TinyJit(lambda x: (x * 3 + 1).realize()) if jit else lambda x: (x * 3 + 1).realize()
    if self.rng.random() < 0.3:
      for _ in range(2): self.inner(self.fresh())
    else: self.inner = None
    self.call = TinyJit(self.body) if jit else self.body
    self.kept, self.shown = [], []  # tensors that the driver holds; arrays to compare

  def fresh(self, rows=ROWS):
    values = [self.rng.randint(-9, 9) for _ in range(rows * COLS)]
    return Tensor(values, dtype=dtypes.int32).reshape(rows, COLS).clone().realize()

  def body(self, *args, size=None):
    rng = random.Random(self.body_seed)
    values = [*args, *self.states]
    if size is not None: values.append(self.states[0][:size].sum(0, keepdim=True).expand(ROWS, COLS))
    for _ in range(self.n_steps):
      a, b = rng.choice(values), rng.choice(values)
      kind = rng.randrange(20)
      if kind < 3: values.append(a * rng.randint(-3, 3) + b)
      elif kind == 3: values.append(a.maximum(b) - 1)
      elif kind == 4: values.append((a < b).where(a, b + 1))
      elif kind == 5: values.append(a + b.sum(rng.randrange(2), keepdim=True))
      elif kind == 6: values.append(a.flip(rng.randrange(2)))
      elif kind == 7: values.append(a[1:].cat(b[:1]))
      elif kind == 8: values.append(a.T.contiguous().reshape(ROWS, COLS))
      elif kind == 9: values.append((a + b).realize())
      elif kind == 10: values.append((a - b).contiguous())  # of an input that is in memory it is the input itself
      elif kind == 11: values.append((a.cumsum(1) ^ b).realize())
      elif kind == 12: values.append(checkpoint(lambda t: (t * 2).contiguous() - 3)(a))
      elif kind == 13: values.append(self.inner((a + 0).realize()) if self.inner else a - b)
      elif kind < 17:
        target = rng.choice(self.states)
        how = rng.randrange(4)
        if how == 0: target.assign(a + b)
        elif how == 1: target += a
        elif how == 2: target[1:] = (a + 1)[:-1]
        else: target[:, rng.randrange(COLS)] = b[:, 0]
        if rng.random() < 0.4: target.realize()
      elif kind == 17: args[rng.randrange(len(args))].assign(a - b)
      elif kind == 18: values.append(Tensor.randint(ROWS, COLS, low=0, high=9) + a)
      else: values.append(a[:, 1:].pad(((0, 0), (0, 1))) + 2)
    if size is not None: Tensor.realize(*values, *self.states)  # one value of a variable in a graph
    n = rng.randint(0, 3)
    out = [rng.choice(values) if rng.random() < 0.3 else values[-1 - rng.randrange(min(3, len(values)))] for _ in range(n)]
    self.is_state = [any(o is s for s in [*self.states, *args]) for o in out] or [False]
    if out: return out if rng.random() < 0.5 else {"a": out[0], "b": (out[1:], None)}
    return (values[-1] + 1).realize()

  def argument(self):
    kind = self.rng.randrange(10)
    if kind < 3 or (kind < 6 and not self.kept): return self.fresh()
    if kind < 5: return self.rng.choice(self.kept)
    if kind == 5: return self.rng.choice(self.kept) + 1
    if kind == 6 and self.use_views: return self.base[(at := self.rng.randint(0, ROWS)):at + ROWS]
    if kind == 8: return self.rng.choice(self.states) * 2
    return self.fresh() + self.fresh()

  def show(self, t): self.shown.append(t.numpy().copy())

  def between(self):
    for _ in range(self.rng.randint(0, 3)):
      kind = self.rng.randrange(9)
      if kind == 0: self.kept.append(self.rng.choice(self.states) * 2 + 1)  # reads what later calls overwrite
      elif kind == 1: self.kept.append(self.rng.choice(self.states)[1:].pad(((1, 0), (0, 0))).contiguous())
      elif kind == 2: self.rng.choice(self.states).assign(self.fresh())
      elif kind == 3: self.rng.choice(self.states)[0] = 7
      elif kind == 4 and self.kept: self.show(self.rng.choice(self.kept))
      elif kind == 5 and self.kept: self.kept.pop(self.rng.randrange(len(self.kept)))
      elif kind == 6: self.show(self.rng.choice(self.states))
      elif kind == 7 and self.kept: self.rng.choice(self.states).assign(self.rng.choice(self.kept))
      elif kind == 8 and self.kept: self.kept.append(self.rng.choice(self.kept) - self.rng.choice(self.states))

  def contents(self): return [s.numpy().copy() for s in [*self.states, self.base]]

  def run(self, expected=None):
    """Arrays shown; the reason when a call was refused, which ends the program."""
    Tensor.manual_seed(1)
    keep = 0 if self.use_views else self.rng.random()  # a result that is a view of such a view is a copy
    same, state = self.rng.random() < 0.1, self.rng.random() < 0.1
    for number in range(self.n_calls):
      args = [self.argument() for _ in range(self.n_args)]
      if state: args[0] = self.states[0]  # in every call: the captured function cannot tell the argument from the state
      if same: args = [args[0]] * self.n_args
      more = {"size": Variable("size", 1, ROWS).bind(self.rng.randint(1, ROWS))} if self.use_variable else {}
      Tensor.realize(*args)  # as TinyJit does first: a view of what is not computed is no view of memory
      before = self.contents() if self.rng.random() < 0.5 else None
      try: result = self.call(*args, **more)
      except JitError as e:
        assert any(re.search(r, str(e)) for r in REASONS), f"call {number}: {e}"
        if getattr(self.call, "captured", None) and before: same_arrays(self.contents(), before, f"state after call {number}, refused as {e}")
        return str(e)
      flat = [result] if isinstance(result, Tensor) else result if isinstance(result, list) else [result["a"], *result["b"][0]]
      for t, is_state in zip(flat, self.is_state):
        if self.rng.random() < 0.5: self.show(t)
        if self.rng.random() < keep and not is_state: self.kept.append(t)  # as an argument the state would be two things at once
        if self.rng.random() < 0.2: self.kept.append(t[:1] + t)
      if self.rng.random() < 0.5: self.shown += self.contents()
      del result, flat, args
      if self.rng.random() < 0.7: self.between()
      if expected is not None: same_arrays(self.shown, expected[:len(self.shown)], f"after call {number}")
    for t in self.kept: self.show(t)
    self.shown += self.contents()
    if expected is not None: same_arrays(self.shown, expected, "at the end")
    return None


def same_arrays(got, want, when):
  assert len(got) == len(want), f"{when}: {len(got)} arrays shown, {len(want)} expected"
  for i, (g, w) in enumerate(zip(got, want)): assert np.array_equal(g, w), f"{when}: array {i} is\n{g}\nexpected\n{w}"


def check(seed: int, jit_check: bool = False):
  plain = Program(seed, jit=False)
  with Context(JIT=0): plain.run()
  with Context(JIT_CHECK=int(jit_check)): return Program(seed, jit=True).run(plain.shown)


def main(first: int, n: int):
  reasons, failures = {}, 0
  for seed in range(first, first + n):
    try: why = check(seed, seed % 5 == 0)
    except Exception as e:
      failures += 1
      print(f"seed {seed}: {type(e).__name__} {e}", flush=True)
      continue
    why = re.sub(r"\d+", "N", str(why))
    reasons[why] = reasons.get(why, 0) + 1
  for why, count in sorted(reasons.items(), key=lambda r: -r[1]): print(count, why)
  return failures


if __name__ == "__main__": sys.exit(min(1, main(int(sys.argv[1]), int(sys.argv[2]))))
