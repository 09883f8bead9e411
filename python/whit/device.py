"""Devices by name. `python -m whit.device` probes each and says what works and why not."""
from __future__ import annotations

from whit import _whit
from whit.helpers import DEV  # noqa: F401
from whit._typing import Devices
from whit.hints import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any, Callable, Iterator
  from whit.renderer import Renderer

CompileError = _whit.CompileError
Buffer = _whit.Buffer
KernelObject = _whit.KernelObject
CPUProgram = _whit.CPUProgram


class Allocator:
  """Memory of a device that Python adds: derive from it. A handle is any object; kernels get handles. Sizes are bytes.

  >>> HostAllocator()._alloc(8) != 0
  True
  """

  def _alloc(self, size: int) -> Any:
    """A handle of new memory. errors: MemoryError when there is none"""
    raise NotImplementedError(f"[device] {type(self).__name__} has no '_alloc'")
  def _free(self, opaque: Any, size: int) -> None:
    """Gives memory back. Without it the garbage collector does."""
  def _copyin(self, dest: Any, src: memoryview) -> None: raise NotImplementedError(f"[device] {type(self).__name__} has no '_copyin'")
  def _copyout(self, dest: memoryview, src: Any) -> None: raise NotImplementedError(f"[device] {type(self).__name__} has no '_copyout'")
  def _offset(self, buf: Any, size: int, offset: int) -> Any:
    """A handle of `size` bytes from byte `offset` of a handle, valid as long as that one."""
    raise NotImplementedError(f"[device] {type(self).__name__} has no '_offset'")
  def _address(self, buf: Any) -> int | None:
    """The address at which the host reads and writes the memory; None where it cannot."""
    return None


class HostAllocator(Allocator):
  """Memory of the C library; a handle is its address, as kernels of the CPU take it.

  >>> memory, out = HostAllocator(), bytearray(2)
  >>> handle = memory._alloc(2)
  >>> memory._copyin(handle, memoryview(b"ab"))
  >>> memory._copyout(memoryview(out), handle); bytes(out)
  b'ab'
  >>> memory._free(handle, 2)
  """

  def __init__(self) -> None:
    import ctypes
    self._c, self._c_types = ctypes.CDLL(None), ctypes
    self._c.aligned_alloc.restype, self._c.aligned_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_size_t]
    self._c.free.argtypes = [ctypes.c_void_p]

  def _bytes(self, address: int, size: int) -> memoryview: return memoryview((self._c_types.c_char * size).from_address(address)).cast("B")
  def _alloc(self, size: int) -> int:
    address = self._c.aligned_alloc(64, (size + 63) & ~63)
    if not address: raise MemoryError(f"[device] the C library has no {size} bytes")
    return int(address)
  def _free(self, opaque: int, size: int) -> None: self._c.free(opaque)
  def _copyin(self, dest: int, src: memoryview) -> None: self._bytes(dest, src.nbytes)[:] = src.cast("B")
  def _copyout(self, dest: memoryview, src: int) -> None: dest.cast("B")[:] = self._bytes(src, dest.nbytes)
  def _offset(self, buf: int, size: int, offset: int) -> int: return buf + offset
  def _address(self, buf: int) -> int: return buf


class Compiler:
  """Source to binary: derive from it. With a `cachekey`, which must name everything that decides the binary beside the source, binaries are
  kept on disk.

  >>> CCompiler("x86_64,native").cachekey.startswith("c")
  True
  """

  cachekey: str | None = None

  def __init__(self, arch: str = "") -> None: self.arch = arch
  def compile(self, src: str) -> bytes: return src.encode()
  def disassemble(self, lib: bytes) -> str: raise NotImplementedError(f"[device] {type(self).__name__} does not disassemble")


def LLVMCompiler(arch: str = "") -> _whit.NativeCompiler:
  """The compiler of LLVM IR text to what `CPUProgram` runs.

  >>> LLVMCompiler().cachekey.startswith("llvm")
  True
  """
  return _whit.make_llvm_compiler(arch or _whit.host_cpu_arch())


def CCompiler(arch: str = "") -> _whit.NativeCompiler:
  """The compiler of C text to what `CPUProgram` runs: a subprocess.

  >>> CCompiler().cachekey.startswith("c")
  True
  """
  return _whit.make_c_compiler(arch or _whit.host_cpu_arch())


class Compiled:
  """An opened device. One that Python adds is a class derived from it, which `Device.register` names.

  `n_devices` says how many there are: NAME, NAME:1 ... `renderers` maps the names of renderers that write its kernels, best first, to what makes the compiler for an arch; without one the device
  holds data only. `runtime` makes a callable of a compiled `KernelObject`: it is called with a handle a buffer and `global_size`, `local_size`, `vals`,
  `wait`, and returns the seconds that it took if `wait` is set.

  >>> from whit import Device
  >>> Device["CPU"]
  <Device CPU>
  """

  about: str = "from Python"
  n_devices: int = 1
  arch: str = ""
  renderers: dict[str, Callable[[str], Any]] = {}

  def __init__(self, device: str, allocator: Allocator | None = None, runtime: Callable[[KernelObject], Callable[..., Any]] | None = None) -> None:
    self.device, self.allocator, self.runtime = device, allocator, runtime
  def count(self) -> int:
    """How many devices of this kind there are."""
    return self.n_devices
  def synchronize(self) -> None:
    """Returns when all earlier work of the device is done."""
  def finalize(self) -> None:
    """Called once, when the process ends."""
  def __repr__(self) -> str: return f"<Device {self.device}>"


class _BuiltIn(Compiled):
  def count(self) -> int: return _whit.device_count(self.device)
  def synchronize(self) -> None: _whit.synchronize(self.device)
  @property
  def arch(self) -> str: return _whit.device_arch(self.device)  # type: ignore[override]
  @property
  def renderer(self) -> Renderer:
    """What writes the device's kernels."""
    from whit.renderer import Renderer
    return Renderer(_whit.device_renderer(self.device).lower())


class _Devices:
  def __init__(self) -> None: self._opened: dict[str, Compiled] = {}

  @property
  def DEFAULT(self) -> str: return _whit.default_device()

  @property
  def default(self) -> Compiled: return self[self.DEFAULT]

  @property
  def _opened_devices(self) -> set[str]: return set(_whit.opened_devices())

  def canonicalize(self, device: str | None) -> str:
    """The device's full name: upper-case family, `:0` dropped; the default for None."""
    return _whit.canonicalize_device(device) if device is not None else self.DEFAULT

  def __getitem__(self, device: str) -> Compiled:
    name = self.canonicalize(device)
    if name not in self._opened: self._opened[name] = _whit.python_device(name) or _BuiltIn(name)
    return self._opened[name]

  def register(self, name: str, device: type[Compiled]) -> None:
    """Adds a kind of device, of which `device(name)` makes one when it is first used. The kind may be registered again as long as none is open.
    `check_device` says what it does wrong.

    >>> class Heap(Compiled):
    ...   renderers = {"LLVM": LLVMCompiler}
    ...   def __init__(self, device): super().__init__(device, HostAllocator(), CPUProgram)
    >>> Device.register("DOCHEAP", Heap)
    >>> from whit import Tensor
    >>> (Tensor([1, 2, 3], device="DOCHEAP") + 1).tolist()
    [2, 3, 4]
    """
    if not (isinstance(device, type) and issubclass(device, Compiled)): raise TypeError(f"[device] {device!r} is no class derived from Compiled")
    if not name.isidentifier() or name != name.upper(): raise ValueError(f"[device] a device is named by upper-case letters and digits, not {name!r}")
    _whit.register_device(name, device)

  def get_class(self, device: str) -> type[Compiled]: return type(self[device])

  def get_available_devices(self) -> Iterator[str]:
    """The names of the devices that open."""
    return iter(_whit.available_devices())


Device = _Devices()


def canonicalize_device(device: Devices | list[str]) -> str | tuple[str, ...]:
  """The full name of a device; of several, a tuple, or the one name where it is one.

  >>> canonicalize_device("cpu:0")
  'CPU'
  """
  if not isinstance(device, (tuple, list)): return Device.canonicalize(device)
  names = tuple(Device.canonicalize(d) for d in device)
  return names[0] if len(names) == 1 else names


def check_device(name: str) -> list[str]:
  """What a device does otherwise than a device must: memory, copies, and for those that run kernels what some kernels give. Each is one text;
  none when all is well.

  >>> check_device("CPU")
  []
  """
  from whit.tensor import Tensor
  broken = list(_whit.device_contract(Device.canonicalize(name)))
  if isinstance(Device[name], _BuiltIn) or Device[name].renderers:
    for what, fn in _KERNELS.items():
      for i, (got, want) in enumerate(zip(*([t.flatten().tolist() for t in fn(Tensor, device)] for device in (name, "REF")))):
        differ = [j for j, (a, b) in enumerate(zip(got, want)) if a != b]
        if differ: broken.append(f"{name}: {what}, result {i}: element {differ[0]} is {got[differ[0]]}, expected {want[differ[0]]}; {len(differ)} of {len(want)} differ")
  return broken


def _numbers(Tensor: Any, device: str, *shape: int) -> Any:
  n = 1
  for s in shape: n *= s
  return Tensor([((i * 37) % 64 - 31) / 8 for i in range(n)]).reshape(*shape).to(device).realize()


# Each is exact in float32, whatever the order of its sums.
_KERNELS: dict[str, Callable[[Any, str], list[Any]]] = {
  "elementwise arithmetic": lambda T, d: [(x := _numbers(T, d, 7, 9)) * 2 + 1, x.maximum(0.5), (x > 0).where(x, -x), x.trunc(), x.int() // 3, x.int() % 5],
  "sums": lambda T, d: [(x := _numbers(T, d, 16, 33)).sum(), x.sum(0), x.max(1), x.int().prod(1)],
  "a matrix product": lambda T, d: [_numbers(T, d, 5, 24) @ _numbers(T, d, 24, 6)],
  "movement": lambda T, d: [(x := _numbers(T, d, 6, 8)).T.contiguous(), x.pad((1, 2)), x[1:5, ::2] + 1, x.flip(0) * 2, x[T([3, 0, 5]).to(d)]],
  "other dtypes": lambda T, d: [(x := _numbers(T, d, 40)).half() + 1, x.bfloat16() * 2, x.double() / 4, x.cast("int8") - 3, x.cast("uint64") ^ 5, x != 0],
  "a write into a part": lambda T, d: [(x := _numbers(T, d, 4, 5).clone().realize(), x.__setitem__((slice(1, 3), slice(0, 2)), 9.0), x)[2]],
}


def enumerate_devices_str() -> Iterator[str]:
  """The lines of the device table.

  >>> next(enumerate_devices_str()).split()
  ['device', 'renderer', 'result', 'detail']
  """
  return iter(_whit.device_table().splitlines())


def __getattr__(name: str) -> Any:
  if name in ("ProfileEvent", "ProfilePointEvent", "ProfileRangeEvent"):
    from whit.helpers import timing
    return getattr(timing, name)
  raise missing(__name__, name)


if __name__ == "__main__":
  import sys
  from whit.helpers import NO_COLOR
  print(_whit.device_table(sys.stdout.isatty() and not NO_COLOR), end="")
