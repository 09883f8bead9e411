"""A renderer of one's own: kernels as plain C, a statement a node, for a device that compiles and runs them."""
import struct

from whit import Device, Tensor, dtypes
from whit.device import CCompiler, Compiled, CPUProgram, HostAllocator, check_device
from whit.renderer import Renderer
from whit.uop.ops import AxisType, Ops, UOp

TYPES = {dtypes.bool: "_Bool", dtypes.float16: "_Float16", dtypes.float32: "float", dtypes.float64: "double",
         **{d: f"{'' if d in dtypes.sints else 'u'}int{8 * d.itemsize}_t" for d in dtypes.ints}, dtypes.bfloat16: "uint16_t"}
WRAPS = {Ops.ADD: "+", Ops.SUB: "-", Ops.MUL: "*", Ops.SHL: "<<"}
TEXT = {Ops.ADD: "{0} + {1}", Ops.SUB: "{0} - {1}", Ops.MUL: "{0} * {1}", Ops.FDIV: "{0} / {1}", Ops.NEG: "-{0}", Ops.RECIP: "1 / {0}", Ops.SQRT: "__builtin_sqrt{f}({0})",
        Ops.TRUNC: "__builtin_trunc{f}({0})", Ops.MAX: "{0} > {1} || {0} != {0} ? {0} : {1}", Ops.MIN: "{0} < {1} || {0} != {0} ? {0} : {1}",
        Ops.CDIV: "{1} == 0 ? 0 : {0} / {1}", Ops.CMOD: "{1} == 0 ? {0} : {0} % {1}", Ops.AND: "{0} & {1}", Ops.OR: "{0} | {1}", Ops.XOR: "{0} ^ {1}",
        Ops.SHR: "{0} >> {1}", Ops.CMPLT: "{0} < {1}", Ops.CMPNE: "{0} != {1}", Ops.CMPEQ: "{0} == {1}", Ops.WHERE: "{0} ? {1} : {2}", Ops.CAST: "{0}",
        Ops.MULACC: "__builtin_fma{f}({0}, {1}, {2})"}


def literal(u: UOp) -> str:
  """Constants stand in the list or do not."""
  if u.op is Ops.CONST and u.dtype is dtypes.bfloat16: return str(struct.unpack("<I", struct.pack("<f", u.arg))[0] >> 16)  # C has its bits only
  special = {"inf": "__builtin_inf()", "-inf": "-__builtin_inf()", "nan": '__builtin_nan("")', "True": "1", "False": "0"}
  return f"(({TYPES[u.dtype]}){special.get(str(u.arg), u.arg)})" if u.op is Ops.CONST else ""


class PlainC(Renderer):
  name = "plain"

  def render(self, program: UOp, name: str = "") -> str:
    v: dict[UOp, str] = {}  # what a node is called
    out = ["#include <stdint.h>", f"void {name}(void* const* buffers, const int64_t* variables, void* scratch, int64_t first, int64_t last) {{"]
    for i, u in enumerate(program.src[1].src):  # a node that is listed again is done again
      x, t = [v[s] if s in v else literal(s) for s in u.src], TYPES.get(u.dtype, "")
      n = v[u] = f"v{i}"
      if u.op is Ops.CONST: v[u] = literal(u)
      elif u.op is Ops.PARAM: out.append(f"{t}* restrict {n} = buffers[{u.arg[0]}];")
      elif u.op is Ops.REG: out.append(f"{t} {n};")
      elif u.op is Ops.INDEX: v[u] = f"{x[0]}[{x[1]}]"
      elif u.op is Ops.RANGE:
        begin, end = ("first", "last") if u.arg[1] is AxisType.GLOBAL else (0, x[0] if x else u.arg[2])
        out.append(f"for (int64_t {n} = {begin}; {n} < {end}; ++{n}) {{")
      elif u.op is Ops.IF: out.append(f"if ({x[0]}) {{")
      elif u.op in (Ops.ENDRANGE, Ops.ENDIF): out.append("}")
      elif u.op is Ops.LOAD: out.append(f"{t} {n} = {v[u.src[0].src[2]] + ' ? ' + x[0] + ' : 0' if len(u.src[0].src) > 2 else x[0]};")
      elif u.op is Ops.STORE: out.append(f"{'if (' + v[u.src[0].src[2]] + ') ' if len(u.src[0].src) > 2 else ''}{x[0]} = {x[1]};")
      elif u.op is Ops.CAST and u.dtype in dtypes.ints and u.src[0].dtype in dtypes.floats: out.append(f"{t} {n} = (int64_t){x[0]};")
      elif u.op is Ops.BITCAST: out.append(f"{t} {n}; __builtin_memcpy(&{n}, &({TYPES[u.src[0].dtype]}){{{x[0]}}}, sizeof {n});")
      elif u.op in WRAPS and u.dtype in dtypes.ints: out.append(f"{t} {n} = (uint64_t){x[0]} {WRAPS[u.op]} (uint64_t){x[1]};")
      elif u.op in TEXT: out.append(f"{t} {n} = {TEXT[u.op].format(*x, f='f' if u.dtype is dtypes.float32 else '')};")
      else: raise NotImplementedError(f"[plain] no text for {u.op} of {u.dtype}")
    return "\n".join(out) + "\n}\n"


class PlainDevice(Compiled):
  about, renderers = "the CPU over plain C", {"PLAIN": CCompiler}
  def __init__(self, device: str): super().__init__(device, HostAllocator(), CPUProgram)


def main() -> None:
  PlainC().register()
  Device.register("PLAIN", PlainDevice)
  x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device="PLAIN")
  print((x.exp().sum(1) * 2).tolist(), (x @ x.T).tolist(), (x[:, ::2].int() // 2).tolist())
  print("what it does otherwise than a device must:", check_device("PLAIN"))


if __name__ == "__main__": main()
