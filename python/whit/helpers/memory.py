"""Memory as Python sees it."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any


def pad_bytes(b: bytes, align: int) -> bytes:
  """Zeros up to a multiple of align.

  >>> pad_bytes(b'abc', 4)
  b'abc\\x00'
  """
  return b + bytes(-len(b) % align)


def from_mv(mv: memoryview, to_type: Any = None) -> Any:
  """Memory as a ctypes array.

  >>> len(from_mv(memoryview(bytearray(4))))
  4
  """
  import ctypes
  kind = to_type or ctypes.c_char
  return (kind * (mv.nbytes // ctypes.sizeof(kind))).from_buffer(mv)


def to_mv(ptr: int, sz: int) -> memoryview:
  """Memory by address.

  >>> m = memoryview(bytearray(b'abcd'))
  >>> bytes(to_mv(mv_address(m), 2))
  b'ab'
  """
  import ctypes
  return memoryview((ctypes.c_uint8 * sz).from_address(ptr)).cast("B")


def mv_address(mv: memoryview) -> int:
  """The address of memory.

  >>> mv_address(memoryview(bytearray(1))) > 0
  True
  """
  import ctypes
  return ctypes.addressof(ctypes.c_char.from_buffer(mv))


def flat_mv(mv: memoryview) -> memoryview:
  """Memory as bytes in one axis.

  >>> flat_mv(memoryview(bytearray(4))).shape
  (4,)
  """
  return mv if len(mv) == 0 else mv.cast("B", shape=(mv.nbytes,))
