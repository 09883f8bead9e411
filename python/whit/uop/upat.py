"""UPat and PatternMatcher: rules written in Python. They run in the engine that runs the rules of the core."""
from __future__ import annotations

import itertools

from whit import _whit
from whit.hints import missing
from whit.dtype import DType
from whit.uop import GroupOp, Ops

UOp = _whit.UOp

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any, Callable, Iterable, Iterator, Sequence


def _tuple(x: Any) -> tuple[Any, ...] | None: return None if x is None else tuple(x) if isinstance(x, (tuple, list, set, frozenset)) else (x,)


class UPat:
  """A pattern: what a node and its sources must look like, and names for what is found.

  `src`: a tuple of patterns in this order, a list for any order, one pattern for all sources (any number), None for any sources.

  >>> from whit.uop.ops import UOp, PatternMatcher, graph_rewrite
  >>> x = UPat.var("x")
  >>> rules = PatternMatcher([(x * 2, lambda x: x + x)])
  >>> graph_rewrite(UOp.variable("v", 0, 9) * 2, rules).render(simplify=False)
  '(v+v)'
  """

  def __init__(self, op: Any = None, dtype: Any = None, src: Any = None, arg: Any = None, name: str | None = None, allow_any_len: bool = False,
               custom_early_reject: None = None, is_any: bool = False) -> None:
    if custom_early_reject is not None: raise NotImplementedError("[UPat] custom_early_reject: the engine computes what can match itself")
    self.op, self.match_dtype, self.src, self.arg, self.name = _tuple(op), _tuple(dtype), src, arg, name
    self.allow_any_len, self.is_any = allow_any_len, is_any

  def named(self, name: str) -> UPat:
    p = UPat.__new__(UPat)
    p.__dict__.update(self.__dict__, name=name)
    return p

  @staticmethod
  def any(*src: UPat) -> UPat: return UPat(src=src, is_any=True)
  @staticmethod
  def var(name: str | None = None, dtype: Any = None) -> UPat: return UPat(dtype=dtype, name=name)
  @staticmethod
  def cvar(name: str | None = None, dtype: Any = None, arg: Any = None) -> UPat: return UPat(Ops.CONST, dtype, name=name, arg=arg)
  @staticmethod
  def const(b: Any, dtype: Any = None) -> UPat:
    if isinstance(b, DType) or (b is None and not isinstance(dtype, DType)): b, dtype = dtype, b
    return UPat(Ops.CONST, dtype, arg=b)

  def or_casted(self, name: str | None = None) -> UPat:
    return UPat.any(self if name is None else self.named(name), UPat(Ops.CAST, name=name, src=(self,)))

  # nodes over this one
  def f(self, op: Any, **kwargs: Any) -> UPat: return UPat(op, src=(self,), **kwargs)
  def sink(*srcs: UPat, **kwargs: Any) -> UPat: return UPat(Ops.SINK, src=srcs, **kwargs)
  def index(self, *srcs: Any, **kwargs: Any) -> UPat: return UPat(Ops.INDEX, src=(self, *srcs), **kwargs)
  def cast(self, dtype: Any = None, **kwargs: Any) -> UPat: return UPat(Ops.CAST, dtype, (self,), **kwargs)
  def bitcast(self, dtype: Any = None) -> UPat: return UPat(Ops.BITCAST, dtype, (self,))
  def load(self, *src: Any, **kwargs: Any) -> UPat: return UPat(Ops.LOAD, src=(self, *src), **kwargs)
  def store(self, *src: Any, **kwargs: Any) -> UPat: return UPat(Ops.STORE, src=(self, *src), **kwargs)
  def reduce(self, *src: Any, **kwargs: Any) -> UPat: return UPat(Ops.REDUCE, src=(self, *src), **kwargs)
  def after(self, *src: Any, **kwargs: Any) -> UPat: return UPat(Ops.AFTER, self.match_dtype, (self, *src), **kwargs)
  def end(self, *src: Any, **kwargs: Any) -> UPat: return UPat(Ops.END, src=(self, *src), **kwargs)
  def alu(self, op: Any, *src: Any) -> UPat:
    operands = tuple(s if isinstance(s, UPat) else UPat.cvar(arg=s) for s in (self, *src))
    dtype = None if op in GroupOp.Comparison else operands[-1].match_dtype if op is Ops.WHERE else self.match_dtype
    return UPat(op, dtype, list(operands) if op in GroupOp.Commutative else operands)

  def where(self, x: Any, y: Any) -> UPat: return UPat(Ops.WHERE, src=tuple(s if isinstance(s, UPat) else UPat.cvar(arg=s) for s in (self, x, y)))
  def maximum(self, x: Any) -> UPat: return UPat(Ops.MAX, src=(self, x if isinstance(x, UPat) else UPat.cvar(arg=x)))
  def minimum(self, x: Any) -> UPat: return UPat(Ops.MIN, src=(self, x if isinstance(x, UPat) else UPat.cvar(arg=x)))
  def eq(self, x: Any) -> UPat: return self.alu(Ops.CMPEQ, x)
  def ne(self, x: Any) -> UPat: return self.alu(Ops.CMPNE, x)
  def exp2(self) -> UPat: return self.alu(Ops.EXP2)
  def log2(self) -> UPat: return self.alu(Ops.LOG2)
  def sqrt(self) -> UPat: return self.alu(Ops.SQRT)
  def sin(self) -> UPat: return self.alu(Ops.SIN)
  def trunc(self) -> UPat: return self.alu(Ops.TRUNC)
  def reciprocal(self) -> UPat: return self.alu(Ops.RECIP)
  def logical_not(self) -> UPat: return self.alu(Ops.XOR, True)
  if TYPE_CHECKING:  # set below
    def __add__(self, x: Any) -> UPat: ...
    def __radd__(self, x: Any) -> UPat: ...
    def __sub__(self, x: Any) -> UPat: ...
    def __rsub__(self, x: Any) -> UPat: ...
    def __mul__(self, x: Any) -> UPat: ...
    def __rmul__(self, x: Any) -> UPat: ...
    def __truediv__(self, x: Any) -> UPat: ...
    def __rtruediv__(self, x: Any) -> UPat: ...
    def __floordiv__(self, x: Any) -> UPat: ...
    def __rfloordiv__(self, x: Any) -> UPat: ...
    def __mod__(self, x: Any) -> UPat: ...
    def __rmod__(self, x: Any) -> UPat: ...
    def __and__(self, x: Any) -> UPat: ...
    def __rand__(self, x: Any) -> UPat: ...
    def __or__(self, x: Any) -> UPat: ...
    def __ror__(self, x: Any) -> UPat: ...
    def __xor__(self, x: Any) -> UPat: ...
    def __rxor__(self, x: Any) -> UPat: ...
    def __lshift__(self, x: Any) -> UPat: ...
    def __rlshift__(self, x: Any) -> UPat: ...
    def __rshift__(self, x: Any) -> UPat: ...
    def __rrshift__(self, x: Any) -> UPat: ...
    def __pow__(self, x: Any) -> UPat: ...
    def __rpow__(self, x: Any) -> UPat: ...

  def __neg__(self) -> UPat: return self.alu(Ops.NEG)
  def __invert__(self) -> UPat: return self.logical_not()
  def __lt__(self, x: Any) -> UPat: return self.alu(Ops.CMPLT, x)
  def __gt__(self, x: Any) -> UPat: return (x if isinstance(x, UPat) else UPat.cvar(arg=x)).alu(Ops.CMPLT, self)
  def __ne__(self, x: object) -> UPat: return self.ne(x)  # type: ignore[override]
  def __hash__(self) -> int: return id(self)

  def plain(self) -> Iterator[tuple[Any, ...]]:
    """The patterns without choices that this one stands for, as the engine reads them."""
    if self.is_any:
      for s in self.src: yield from (s if self.name is None else s.named(self.name)).plain()
      return
    arg = None if self.arg is None else (self.arg,)
    if isinstance(self.src, UPat):
      orders: Iterable[tuple[Any, ...]] = [(self.src,)]
      if any(p._has_name() for p in (self.src,)): raise ValueError("[UPat] a pattern for all sources has no names: which source would it be?")
    elif self.src is None: orders = [()]
    else: orders = dict.fromkeys(itertools.permutations(self.src)) if isinstance(self.src, list) else [self.src]
    free = self.src is None and (self.op is None or self.op != (Ops.CONST,))
    for order in orders:
      for src in itertools.product(*(tuple(s.plain()) for s in order)):
        yield (self.op, self.match_dtype, self.name, arg, src, free or self.allow_any_len, isinstance(self.src, UPat))

  def _has_name(self) -> bool:
    below = () if self.src is None else (self.src,) if isinstance(self.src, UPat) else self.src
    return self.name is not None or self.arg is not None or any(s._has_name() for s in below)

  def match(self, uop: UOp, store: dict[str, UOp]) -> list[dict[str, UOp]]:
    """The captures of each way in which a node matches, on top of `store`."""
    found: list[dict[str, UOp]] = []
    for i, p in enumerate(self.plain()):
      def seen(**kw: UOp) -> None: found.append({**store, **kw})
      _whit.make_rules("match", [("match", "", 0, p, seen, False)]).rewrite(uop)
    return [f for f in found if all(f[k] is v for k, v in store.items())]

  def __repr__(self) -> str:
    fields = [("", self.op and (self.op[0] if len(self.op) == 1 else self.op)), ("dtype=", self.match_dtype), ("src=", self.src), ("arg=", self.arg),
              ("name=", self.name)]
    return f"UPat{'.any' if self.is_any else ''}({', '.join(f'{k}{v!r}' for k, v in fields if v is not None)})"


def _operator(op: Ops, reverse: bool) -> Callable[[UPat, Any], UPat]:
  def run(self: UPat, x: Any) -> UPat:
    x = x if isinstance(x, UPat) else UPat.cvar(arg=x)
    return x.alu(op, self) if reverse else self.alu(op, x)
  return run


for _name, _op in (("add", Ops.ADD), ("sub", Ops.SUB), ("mul", Ops.MUL), ("truediv", Ops.FDIV), ("floordiv", Ops.FLOORDIV), ("mod", Ops.FLOORMOD),
                   ("and", Ops.AND), ("or", Ops.OR), ("xor", Ops.XOR), ("lshift", Ops.SHL), ("rshift", Ops.SHR), ("pow", Ops.POW)):
  setattr(UPat, f"__{_name}__", _operator(_op, False))
  setattr(UPat, f"__r{_name}__", _operator(_op, True))


class PatternMatcher:
  """A table of rules: (pattern, function). The first whose pattern matches and whose function does not return None wins.

  The function takes the captures by name, and `ctx` if it wants the context of the rewrite. `a + b` is both tables, a's rules first; the tables
  of the core (`whit.uop.symbolic`) are such objects too.

  >>> from whit.uop.ops import UOp
  >>> PatternMatcher([(UPat.var("x") + 0, lambda x: x)]).rewrite(UOp.const(1.0) + 0) is UOp.const(1.0)
  True
  """

  def __init__(self, patterns: Sequence[tuple[UPat, Callable[..., Any]]] = (), compiled: bool = True, name: str = "python",
               _rules: _whit.RuleSet | None = None) -> None:
    self.patterns = list(patterns)
    if _rules is not None:
      self._rules = _rules
      return
    rows = []
    for i, (p, fn) in enumerate(self.patterns):
      code = getattr(getattr(fn, "__func__", fn), "__code__", None)
      takes_ctx = code is not None and "ctx" in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
      where = (code.co_filename, code.co_firstlineno) if code else ("", 0)
      label = fn.__name__ if getattr(fn, "__name__", "<lambda>") != "<lambda>" else "rule"
      for k, plain in enumerate(p.plain()): rows.append((f"{label}-{i}" + (f".{k}" if k else ""), *where, plain, fn, takes_ctx))
    self._rules = _whit.make_rules(f"{name}@{id(self):x}", rows)

  def __add__(self, more: PatternMatcher) -> PatternMatcher:
    return PatternMatcher(self.patterns + more.patterns, _rules=self._rules + more._rules)

  def rewrite(self, uop: UOp, ctx: Any = None) -> UOp | None:
    """What the first rule that applies makes of this node alone; None when none does."""
    return self._rules.rewrite(uop, ctx)

  @property
  def names(self) -> list[str]:
    """The rules' names."""
    return self._rules.names


class BottomUpGate(Exception):
  """Raised by a rule of a bottom-up rewrite: keep this node and do not enter its sources.

  >>> raise BottomUpGate
  Traceback (most recent call last):
  BottomUpGate
  """


def graph_rewrite(sink: UOp, pm: PatternMatcher, ctx: Any = None, bottom_up: bool = False, name: str | None = None, bpm: PatternMatcher | None = None,
                  walk: bool = False, enter_calls: bool = False) -> UOp:
  """Applies rules everywhere in a graph until none fits; sources first, or with `bottom_up` users first. `walk`: what a rule made is final.

  >>> from whit.uop.ops import UOp
  >>> from whit.uop.symbolic import symbolic
  >>> graph_rewrite(UOp.variable("x", 0, 3) * 8 // 4, symbolic).render(simplify=False)
  '(x*2)'
  """
  if bpm is not None: raise NotImplementedError("[graph_rewrite] bpm: one rewrite goes one way; call it twice, with bottom_up=True first")
  return _whit.graph_rewrite(sink, pm._rules, ctx, name or "python", bottom_up, walk, enter_calls)


def track_rewrites(fn: Callable[[], Any]) -> tuple[Any, list[tuple[Any, ...]]]:
  """What fn returns, and every rewrite that happened: (pass, rule, before, after).

  >>> from whit.uop.ops import UOp
  >>> result, events = track_rewrites(lambda: (UOp.variable("x", 0, 3) * 8 // 4).simplify())
  >>> events[0][1].split("/")[0]
  'index'
  """
  return _whit.trace_rewrites(fn)


def __getattr__(name: str) -> Any: raise missing(__name__, name)
