"""UOp, the node of every graph, and what goes with it."""
from __future__ import annotations

import copyreg, functools, math
from collections import namedtuple

from whit import _whit
from whit.hints import missing
from whit.dtype import Invalid, dtypes as dtypes
from whit.uop import GroupOp as GroupOp, Ops as Ops

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any, Callable, Iterable, Iterator
  from whit._whit import UOp as _Base
  from whit.dtype import DType
else: _Base = object

UOp = _whit.UOp
AxisType = _whit.AxisType
sint = int | UOp


def parse_text(text: str) -> UOp:
  """A graph from the text that `print(uop)` shows.

  >>> parse_text(str(UOp.const(3))) is UOp.const(3)
  True
  """
  return _whit.parse_text(text)


def _reduce(u: UOp) -> tuple[Any, ...]:
  if any(x.op is Ops.BUFFER for x in u.toposort()):
    raise TypeError("[UOp] a graph over memory does not travel: pickle its Tensor, which takes its values along")
  return parse_text, (str(u),)


copyreg.pickle(UOp, _reduce)


class KernelInfo(namedtuple("KernelInfo", "name", defaults=("kernel",))):
  """What a kernel's SINK says about itself.

  >>> KernelInfo(name="mine").function_name
  'mine'
  """
  __slots__ = ()

  @property
  def function_name(self) -> str:
    from whit.helpers import to_function_name
    return to_function_name(self.name)


_SYMBOLS = {Ops.ADD: "({}+{})", Ops.SUB: "({}-{})", Ops.MUL: "({}*{})", Ops.FLOORDIV: "({}//{})", Ops.FLOORMOD: "({}%{})", Ops.FDIV: "({}/{})",
            Ops.CMPLT: "({}<{})", Ops.CMPNE: "({}!={})", Ops.CMPEQ: "({}=={})", Ops.AND: "({}&{})", Ops.OR: "({}|{})", Ops.XOR: "({}^{})",
            Ops.SHL: "({}<<{})", Ops.SHR: "({}>>{})", Ops.POW: "({}**{})", Ops.MAX: "max({}, {})", Ops.MIN: "min({}, {})", Ops.CDIV: "cdiv({}, {})",
            Ops.CMOD: "cmod({}, {})", Ops.NEG: "(-{})", Ops.RECIP: "(1/{})", Ops.TRUNC: "trunc({})", Ops.WHERE: "({1} if {0} else {2})",
            Ops.MULACC: "({}*{}+{})"}


def _leaf(u: UOp) -> str:
  if u.op is Ops.CONST: return str(u.arg)
  if u.op is Ops.VARIABLE: return str(u.arg[0])
  if u.op is Ops.RANGE: return f"r{u.arg[0]}" if u.arg[0] >= 0 else f"rm{-u.arg[0]}"
  if u.op is Ops.PARAM: return f"p{u.arg[0]}"
  return ""


class _Methods(_Base):
  """What UOp has beside its C++ half; its names go into the class below."""

  def render(self, simplify: bool = True) -> str:
    """Arithmetic as text: `UOp.variable("x", 0, 3) + 1` is (x+1)."""
    root = self.simplify() if simplify else self
    text: dict[UOp, str] = {}
    for u in root.toposort():
      src = [text[s] for s in u.src]
      if u.op is Ops.CAST: text[u] = f"{src[0]}.cast({u.dtype!r})"
      elif u.op is Ops.BIND: text[u] = src[0]
      elif u.op in _SYMBOLS: text[u] = _SYMBOLS[u.op].format(*src)
      else: text[u] = _leaf(u) or f"{u.op.name.lower()}({', '.join(src + ([repr(u.arg)] if u.arg is not None else []))})"
    return text[root]

  def pyrender(self) -> str:
    """Python that builds the graph."""
    names: dict[UOp, str] = {}
    lines = []
    for i, u in enumerate(self.toposort()):
      names[u] = f"c{i}"
      src = "".join(names[s] + ", " for s in u.src)
      lines.append(f"c{i} = UOp({u.op}, {u.dtype!r}, ({src.rstrip() if len(u.src) == 1 else src.removesuffix(', ')}), {u.arg!r})")
    return "\n".join(lines)

  def ssimplify(self) -> Any:
    """`simplify`, as a Python number where it is one."""
    s = self.simplify()
    return s.arg if s.op is Ops.CONST else s

  @property
  def backward_slice(self) -> dict[UOp, None]:
    """All nodes below this one."""
    below = self.toposort()
    del below[self]
    return below

  @property
  def backward_slice_with_self(self) -> dict[UOp, None]: return self.toposort()

  def op_in_backward_slice_with_self(self, *ops: Ops) -> bool: return any(u.op in ops for u in self.toposort())

  @property
  def base(self) -> UOp:
    """What stands below the movement ops."""
    u = self
    while u.op in GroupOp.Movement and u.op is not Ops.STACK: u = u.src[0]
    return u

  def variables(self) -> list[UOp]:
    """The variables below, by name."""
    return sorted((u for u in self.toposort() if u.op is Ops.VARIABLE), key=lambda u: u.arg[0])

  @property
  def expr(self) -> str:
    """The name of a variable."""
    if self.op is Ops.BIND: return str(self.src[0].expr)
    if self.op is not Ops.VARIABLE: raise AttributeError(f"[UOp.expr] a {self.op.name} has no name; only a VARIABLE has")
    return str(self.arg[0])

  def unbind_all(self) -> tuple[UOp, dict[UOp, int]]:
    """The expression over variables, and the value of each.

    >>> (Variable("i", 1, 8).bind(3) * 2 + 1).unbind_all()[1]
    {UOp(Ops.VARIABLE, dtypes.weakint, shape=(), 0 src, arg=('i', 1, 8)): 3}
    """
    bound = [u for u in self.toposort() if u.op is Ops.BIND]
    return self.substitute({u: u.src[0] for u in bound}), dict(u.unbind() for u in bound)

  def sym_infer(self, var_vals: dict[str, int]) -> int:
    """The value for given values of the variables, by name."""
    here = self.variables()
    missing = [v.expr for v in here if v.expr not in var_vals]
    if missing: raise KeyError(f"[UOp.sym_infer] no value for {', '.join(missing)}; given: {', '.join(var_vals) or 'none'}")
    for v in here:
      if not v.vmin <= var_vals[v.expr] <= v.vmax: raise ValueError(f"[UOp.sym_infer] {v.expr} = {var_vals[v.expr]} is not in {v.vmin}..{v.vmax}")
    return int(self.substitute({v: UOp.const(var_vals[v.expr], v.dtype) for v in here}))

  def const_like(self, b: Any) -> UOp: return UOp.const(b, self.dtype) if self.shape == () else _unwrap(_whit.Tensor(self).const_like(b))
  def const_factor(self) -> int:
    """The largest number that certainly divides every value of an integer."""
    if self.op is Ops.CONST: return int(abs(self.arg))
    if self.op in (Ops.ADD, Ops.SUB): return math.gcd(*(s.const_factor() for s in self.src))
    if self.op is Ops.MUL: return math.prod(s.const_factor() for s in self.src)
    return 1

  def split_uop(self, sep: Ops) -> Iterator[UOp]:
    """The operands of a chain of one op."""
    stack = [self]
    while stack:
      u = stack.pop()
      if u.op is sep: stack += reversed(u.src)
      else: yield u

  # nodes of kernels and programs
  def f(self, op: Ops, **kwargs: Any) -> UOp: return UOp(op, kwargs.pop("dtype", self.dtype), (self,), **kwargs)
  def index(self, *idx: Any, gate: UOp | None = None) -> UOp:
    """The address of an element of flat memory; more indices are row-major over the shape."""
    if gate is not None and len(idx) == 1: return UOp(Ops.INDEX, self.dtype, (self, _to_uop(idx[0]), gate))
    if len(idx) != len(self.shape): raise ValueError(f"[UOp.index] {len(idx)} indices for shape {self.shape}")
    flat: Any = 0
    for i, n in zip(idx, self.shape): flat = flat * n + i
    memory = _unshaped(self)
    flat_self = memory if len(memory.shape) == 1 else UOp.param(memory.arg[0], self.dtype, (math.prod(self.shape),))
    return UOp(Ops.INDEX, self.dtype, (flat_self, _to_uop(flat)) + ((gate,) if gate is not None else ()))

  def __getitem__(self, idx: Any) -> UOp:
    """An element of a kernel's memory, as `index`; of any other value what Tensor gives, slices too."""
    each = idx if isinstance(idx, tuple) else (idx,)
    if _unshaped(self).op is Ops.PARAM and len(each) == len(self.shape) and all(isinstance(i, (int, UOp)) for i in each): return self.index(*each)
    return _whit.Tensor(self)[_wrap(idx)].uop

  def load(self) -> UOp: return UOp(Ops.LOAD, self.dtype, (self,))
  def store(self, value: Any) -> UOp: return UOp(Ops.STORE, dtypes.void, (self, value if isinstance(value, UOp) else UOp.const(value, self.dtype)))
  def end(self, *ranges: UOp) -> UOp: return UOp(Ops.END, dtypes.void, (self, *ranges)) if ranges else self
  def after(self, *deps: UOp) -> UOp: return UOp(Ops.AFTER, self.dtype, (self, *deps)) if deps else self
  def reduce(self, *ranges: UOp, arg: Ops = Ops.ADD) -> UOp:
    """The value folded over ranges: Ops.ADD, MUL, MAX or MIN."""
    if arg not in GroupOp.Reduce: raise ValueError(f"[UOp.reduce] {arg} folds nothing; expected ADD, MUL, MAX or MIN")
    return UOp(Ops.REDUCE, self.dtype, (self, *ranges), (arg.name.lower(),)) if ranges else self

  def call(self, *args: UOp) -> UOp: return UOp(Ops.CALL, self.dtype, (self, *args))
  def gettuple(self, idx: int) -> UOp: return UOp(Ops.GETTUPLE, None, (self,), idx)
  def placeholder_like(self, slot: int) -> UOp: return UOp.placeholder(self.shape, self.dtype, slot)
  def valid(self, cond: UOp) -> UOp: return cond.where(self, UOp.const(Invalid, self.dtype))

  def sink(*srcs: UOp | None, arg: Any = None) -> UOp:
    """The root of a graph; of a kernel with `arg=KernelInfo(name=...)`."""
    if isinstance(arg, KernelInfo): arg = (arg.name,)
    return UOp(Ops.SINK, dtypes.void, tuple(s for s in srcs if s is not None), arg)

  def group(*srcs: UOp) -> UOp: return srcs[0] if len(srcs) == 1 else UOp.sink(*srcs)
  def maketuple(*srcs: UOp) -> UOp: return UOp(Ops.TUPLE, dtypes.void, srcs)
  def stack(*srcs: UOp) -> UOp: return UOp(Ops.STACK, srcs[0].dtype, srcs)
  @staticmethod
  def invalid() -> UOp: return UOp.const(Invalid)
  @staticmethod
  def placeholder(shape: tuple[int, ...], dtype: DType | str, slot: int) -> UOp: return UOp.param(slot, dtype, shape)
  @staticmethod
  def special(end: int | UOp, name: str) -> UOp:
    """An axis of a launch: gidx0 is a GLOBAL range, lidx0 a LOCAL one."""
    kinds = {"g": AxisType.GLOBAL, "l": AxisType.LOCAL}
    if name[:1] not in kinds or name[1:4] != "idx" or not name[4:].isdigit(): raise ValueError(f"[UOp.special] {name}: expected gidxN or lidxN")
    return UOp.range(end, int(name[4:]), kinds[name[0]])

  def __getattr__(self, name: str) -> Any:
    # Whatever Tensor can do with a value.
    if name.startswith("_") or not hasattr(_whit.Tensor, name): raise AttributeError(f"UOp has no attribute '{name}'")
    got = getattr(_whit.Tensor(self), name)
    if not callable(got) or isinstance(got, _whit.Tensor): return _unwrap(got)
    return lambda *args, **kwargs: _unwrap(got(*_wrap(args), **_wrap(kwargs)))


def _unshaped(u: UOp) -> UOp:
  """What stands below reshapes, whose elements lie in the same order."""
  while u.op is Ops.RESHAPE: u = u.src[0]
  return u


def _to_uop(x: Any) -> UOp: return x if isinstance(x, UOp) else UOp.const(x)


def _wrap(x: Any) -> Any:
  if isinstance(x, UOp): return _whit.Tensor(x)
  if isinstance(x, dict): return {k: _wrap(v) for k, v in x.items()}
  return type(x)(map(_wrap, x)) if type(x) in (list, tuple) else x


def _unwrap(x: Any) -> Any:
  if isinstance(x, _whit.Tensor): return x.uop
  return type(x)(map(_unwrap, x)) if type(x) in (list, tuple) else x


def _creator(name: str) -> Any:
  def make(*args: Any, **kwargs: Any) -> Any: return _unwrap(getattr(_whit.Tensor, name)(*_wrap(args), **_wrap(kwargs)))
  make.__name__, make.__doc__ = name, f"The graph of `Tensor.{name}`."
  return staticmethod(make)


EXTENDED = UOp
added = [n for n in vars(_Methods) if not n.startswith("__") or n in ("__getattr__", "__getitem__")]
for _name in added: setattr(UOp, _name, vars(_Methods)[_name])
_creators = ("arange", "zeros", "ones", "full", "eye", "linspace", "empty", "rand", "randn")
for _name in _creators: setattr(UOp, _name, _creator(_name))
added += _creators

Variable = UOp.variable


def resolve(x: Any, default: bool = True) -> bool:
  """A condition that may be symbolic: its value where it has one, else `default`.

  >>> resolve(UOp.variable("x", 1, 4) > 0), resolve(UOp.variable("x", 0, 4) > 0, False)
  (True, False)
  """
  if not isinstance(x, UOp): return bool(x)
  s = x.simplify()
  return bool(s.vmin) if s.vmin == s.vmax else default


def ssimplify(x: Any) -> Any:
  """A symbolic number, simplified; a Python number where it is one.

  >>> ssimplify(UOp.const(2) + 3)
  5
  """
  return x.ssimplify() if isinstance(x, UOp) else x


def sym_infer(x: Any, var_vals: dict[str, int]) -> int:
  """A number, or a symbolic one for given values of its variables.

  >>> sym_infer(UOp.variable("x", 1, 4) * 2, {"x": 3})
  6
  """
  return x.sym_infer(var_vals) if isinstance(x, UOp) else x


def _joined(xs: Iterable[Any], node: Callable[[Any, Any], Any], plain: Callable[[list[Any]], Any]) -> Any:
  nodes, numbers = [x for x in xs if isinstance(x, UOp)], [x for x in xs if not isinstance(x, UOp)]
  return ssimplify(functools.reduce(node, nodes + ([plain(numbers)] if numbers else [])))


def smax(*lst: Any) -> Any:
  """The largest of numbers that may be symbolic.

  >>> smax(1, 5, 3)
  5
  """
  return _joined(lst, lambda a, b: _to_uop(a).maximum(b), max)


def smin(*lst: Any) -> Any:
  """The smallest of numbers that may be symbolic.

  >>> smin(1, 5, 3)
  1
  """
  return _joined(lst, lambda a, b: _to_uop(a).minimum(b), min)


def srender(x: Any) -> str:
  """A number that may be symbolic, as text.

  >>> srender(UOp.variable("x", 0, 4) + 1)
  '(x+1)'
  """
  return x.render() if isinstance(x, UOp) else str(x)


def identity_element(op: Ops, dt: DType) -> Any:
  """What changes nothing when `op` folds it in.

  >>> identity_element(Ops.MUL, dtypes.int32)
  1
  """
  return dt.const({Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dt.min, Ops.MIN: dt.max}[op])


def exec_alu(op: Ops, dtype: DType, operands: Iterable[Any], truncate_output: bool = True) -> Any:
  """An elementwise op on numbers, as constant folding does it.

  >>> exec_alu(Ops.ADD, dtypes.uint8, [250, 10])
  4
  """
  return _whit.eval_scalar(op, dtype, list(operands))


class _PythonAlu(dict):  # type: ignore[type-arg]
  def __missing__(self, op: Ops) -> Callable[..., Any]:
    def run(*xs: Any) -> Any: return exec_alu(op, dtypes.from_py(xs[1 if op is Ops.WHERE else 0]), xs)
    return run


python_alu = _PythonAlu()


def _broadcast_shape(*shapes: tuple[Any, ...]) -> tuple[Any, ...]:
  """The shape that shapes broadcast to.

  >>> _broadcast_shape((3, 1), (4,))
  (3, 4)
  """
  rank = max(map(len, shapes))
  out = []
  for sizes in zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes)):
    rest = list(dict.fromkeys(s for s in sizes if isinstance(s, UOp) or s != 1))
    if len(rest) > 1: raise IndexError(f"shape mismatch: objects cannot be broadcast to a single shape {shapes}")
    out.append(rest[0] if rest else 1)
  return tuple(out)


def buffers(u: UOp) -> list[UOp]:
  """The memory below a graph.

  >>> from whit import Tensor
  >>> len(buffers((Tensor([1.0]) + Tensor([2.0])).uop))
  2
  """
  return [x for x in u.toposort() if x.op is Ops.BUFFER]


from whit.uop.upat import (BottomUpGate as BottomUpGate, PatternMatcher as PatternMatcher, UPat as UPat, graph_rewrite as graph_rewrite,  # noqa: E402
                           track_rewrites as track_rewrites)


def __getattr__(name: str) -> Any: raise missing(__name__, name)
