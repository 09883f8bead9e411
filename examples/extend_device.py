"""A device from one Python file: memory that is Python's bytearrays, and kernels that the C compiler makes, on copies of that memory.

It is of no use, and it is a whole device: `DEV=BYTES` would make it the default, `check_device` holds it to the contracts of all devices.
"""
from whit import Device, Tensor, TinyJit
from whit.device import Allocator, CCompiler, Compiled, CPUProgram, HostAllocator, KernelObject, check_device


class BytesAllocator(Allocator):
  """A handle is a memoryview, so a part of one is a handle too."""
  def _alloc(self, size: int) -> memoryview: return memoryview(bytearray(size))
  def _copyin(self, dest: memoryview, src: memoryview) -> None: dest[:] = src
  def _copyout(self, dest: memoryview, src: memoryview) -> None: dest[:] = src
  def _offset(self, buf: memoryview, size: int, offset: int) -> memoryview: return buf[offset:offset + size]


class BytesProgram:
  """Kernels take addresses: each launch copies all buffers there and back. A real device would queue its launch here."""
  host, launches = HostAllocator(), 0

  def __init__(self, kernel: KernelObject): self.program = CPUProgram(kernel)

  def __call__(self, *bufs: memoryview, global_size, local_size, vals=(), wait=False) -> float | None:
    BytesProgram.launches += 1
    addresses = [self.host._alloc(len(b)) for b in bufs]
    for address, b in zip(addresses, bufs): self.host._copyin(address, b)
    seconds = self.program(*addresses, global_size=global_size, vals=vals, wait=wait)
    for address, b in zip(addresses, bufs):
      self.host._copyout(b, address)
      self.host._free(address, len(b))
    return seconds


class BytesDevice(Compiled):
  about = "kernels over Python's bytearrays"
  n_devices = 2
  renderers = {"C": CCompiler}
  def __init__(self, device: str): super().__init__(device, BytesAllocator(), BytesProgram)


def main() -> None:
  Device.register("BYTES", BytesDevice)
  x, w = Tensor([[1.0, 2.0], [3.0, 4.0]], device="BYTES"), Tensor([[1.0], [10.0]], device="BYTES").realize()
  step = TinyJit(lambda x: (x @ w).relu().realize())
  for i in range(3): print(step((x + i).realize()).flatten().tolist())
  print(Device["BYTES"], "ran", BytesProgram.launches, "kernels; contracts that it breaks:", check_device("BYTES"))


if __name__ == "__main__": main()
