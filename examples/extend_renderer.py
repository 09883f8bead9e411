"""A renderer of one's own: C whose every access looks whether it is within its buffer, for a device that compiles and runs it.

What `CStyle` writes is changed in two places. A language that is not like C derives from `Renderer` and has `render` alone.
"""
from whit import Device, Tensor
from whit.device import CCompiler, Compiled, CPUProgram, HostAllocator, check_device
from whit.renderer.cstyle import CStyle
from whit.uop.ops import Ops


class CheckedC(CStyle):
  name = "checked"
  prologue = "static inline long within(long i, long n) { if (i < 0 || i >= n) __builtin_trap(); return i; }"
  text = {**CStyle.text, Ops.SQRT: "({t})__builtin_sqrt({0})"}  # a row of the table of ops

  def element(self, buffer: str, index: str, size: int) -> str: return f"{buffer}[within({index}, {size})]"


class CheckedDevice(Compiled):
  about, renderers = "the CPU over C that checks its indices", {"CHECKED": CCompiler}
  def __init__(self, device: str) -> None: super().__init__(device, HostAllocator(), CPUProgram)


def main() -> None:
  CheckedC().register()
  Device.register("CHECKED", CheckedDevice)
  x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device="CHECKED")
  print((x.exp().sum(1) * 2).tolist(), (x @ x.T).tolist(), (x[:, ::2].int() // 2).tolist())
  print("what it does otherwise than a device must:", check_device("CHECKED"))


if __name__ == "__main__": main()
