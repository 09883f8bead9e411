"""Languages of C's family."""
from __future__ import annotations

import struct

from whit.dtype import DType, dtypes
from whit.hints import missing
from whit.renderer import Renderer
from whit.uop import Ops
from whit.uop.ops import AxisType, UOp

_WRAPS = {Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.SHL: "<<"}
_SPECIAL = {"inf": "__builtin_inf()", "-inf": "-__builtin_inf()", "nan": '__builtin_nan("")', "True": "1", "False": "0"}


class CStyle(Renderer):
  """Kernels as C, a statement a node, one element at a time: the CPU's compiler for C takes it as it is. A language of the family derives from it and
  changes what it writes otherwise: the table of types, the table of ops, and the methods.

  >>> class Named(CStyle):
  ...   name, types = "doc_named", {**CStyle.types, dtypes.float32: "real"}
  ...   prologue = "typedef float real;"
  >>> from whit import Tensor, codegen
  >>> from whit.schedule import create_schedule
  >>> kernel = create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0]
  >>> "real* restrict" in Named().register().render(codegen.lower(kernel, "doc_named"), "plus")
  True
  """

  types: dict[DType, str] = {
    dtypes.bool: "_Bool", dtypes.float16: "_Float16", dtypes.float32: "float", dtypes.float64: "double", dtypes.bfloat16: "unsigned short",
    dtypes.int8: "signed char", dtypes.int16: "short", dtypes.int32: "int", dtypes.int64: "long",
    dtypes.uint8: "unsigned char", dtypes.uint16: "unsigned short", dtypes.uint32: "unsigned", dtypes.uint64: "unsigned long"}
  """The name of each dtype. A bfloat16 comes as its bits."""

  text: dict[Ops, str] = {
    Ops.ADD: "{0} + {1}", Ops.SUB: "{0} - {1}", Ops.MUL: "{0} * {1}", Ops.FDIV: "{0} / {1}", Ops.NEG: "-{0}", Ops.RECIP: "1 / {0}",
    Ops.SQRT: "__builtin_sqrt{f}({0})", Ops.TRUNC: "__builtin_trunc{f}({0})", Ops.MULACC: "__builtin_fma{f}({0}, {1}, {2})",
    Ops.MAX: "{0} > {1} || {0} != {0} ? {0} : {1}", Ops.MIN: "{0} < {1} || {0} != {0} ? {0} : {1}",
    Ops.CDIV: "{1} == 0 ? 0 : {0} / {1}", Ops.CMOD: "{1} == 0 ? {0} : {0} % {1}", Ops.AND: "{0} & {1}", Ops.OR: "{0} | {1}", Ops.XOR: "{0} ^ {1}",
    Ops.SHR: "{0} >> {1}", Ops.CMPLT: "{0} < {1}", Ops.CMPNE: "{0} != {1}", Ops.CMPEQ: "{0} == {1}", Ops.WHERE: "{0} ? {1} : {2}", Ops.CAST: "({t}){0}"}
  """The expression of each op: {0} {1} {2} are its sources, {t} the name of its dtype, {f} the ending of a function of its floats."""

  prologue: str = ""
  """What stands before the kernel."""

  def function(self, name: str, body: list[str]) -> str:
    """The whole kernel: a function around its statements."""
    head = f"void {name}(void* const* buffers, const long* variables, void* scratch, long first, long last) {{"
    return "\n".join([self.prologue, head, *body, "}", ""])

  def buffer(self, slot: int, kind: str, name: str) -> str:
    """The statement that makes `name` the memory of a slot."""
    return f"{kind}* restrict {name} = buffers[{slot}];"

  def element(self, buffer: str, index: str, size: int) -> str:
    """What an element of a buffer is called. `size` is how many it has."""
    return f"{buffer}[{index}]"

  def loop(self, name: str, first: str, last: str, kind: AxisType) -> str:
    """What opens a loop; a `}` closes it."""
    return f"for (long {name} = {first}; {name} < {last}; ++{name}) {{"

  def literal(self, value: object, dtype: DType) -> str:
    """A constant."""
    if dtype is dtypes.bfloat16: return str(struct.unpack("<I", struct.pack("<f", value))[0] >> 16)
    return f"(({self.types[dtype]}){_SPECIAL.get(str(value), value)})"

  def render(self, program: UOp, name: str = "") -> str:
    v: dict[UOp, str] = {}  # what a node is called
    out: list[str] = []
    for i, u in enumerate(program.src[1].src):  # a node that is listed again is done again
      x = [self.literal(s.arg, s.dtype) if s.op is Ops.CONST else v[s] for s in u.src]
      n, t, gate = f"v{i}", self.types.get(u.dtype, ""), x[0] if u.op is Ops.IF else v[u.src[0].src[2]] if u.op in (Ops.LOAD, Ops.STORE) and len(u.src[0].src) > 2 else ""
      v[u] = n
      match u.op:
        case Ops.CONST: pass
        case Ops.PARAM: out.append(self.buffer(u.arg[0], t, n))
        case Ops.REG: out.append(f"{t} {n};")
        case Ops.INDEX: v[u] = self.element(x[0], x[1], u.src[0].arg[1])
        case Ops.RANGE if u.arg[1] is AxisType.GLOBAL: out.append(self.loop(n, "first", "last", u.arg[1]))
        case Ops.RANGE: out.append(self.loop(n, "0" if len(x) < 2 else x[1], x[0] if x else str(u.arg[2]), u.arg[1]))
        case Ops.IF: out.append(f"if ({gate}) {{")
        case Ops.ENDRANGE | Ops.ENDIF: out.append("}")
        case Ops.LOAD: out.append(f"{t} {n} = {f'{gate} ? {x[0]} : 0' if gate else x[0]};")
        case Ops.STORE: out.append(f"{f'if ({gate}) ' if gate else ''}{x[0]} = {x[1]};")
        case Ops.BITCAST: out.append(f"{t} {n}; __builtin_memcpy(&{n}, &({self.types[u.src[0].dtype]}){{{x[0]}}}, sizeof {n});")
        case Ops.CAST if u.dtype in dtypes.ints and u.src[0].dtype in dtypes.floats: out.append(f"{t} {n} = (long){x[0]};")
        case op if op in _WRAPS and u.dtype in dtypes.ints: out.append(f"{t} {n} = (unsigned long){x[0]} {_WRAPS[op]} (unsigned long){x[1]};")
        case op if op in self.text: out.append(f"{t} {n} = {self.text[op].format(*x, t=t, f='f' if u.dtype is dtypes.float32 else '')};")
        case op: raise NotImplementedError(f"[{self.name}] no text for {op} of {u.dtype}")
    return self.function(name, out)


def __getattr__(name: str) -> object: raise missing(__name__, name)
