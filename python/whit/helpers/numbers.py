"""Whole numbers and their bits."""
from __future__ import annotations

import functools

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any, Sequence


def ceildiv(num: Any, amt: Any) -> Any:
  """Quotient rounded up.

  >>> ceildiv(7, 2)
  4
  """
  return -(num // -amt)


def round_up(num: int, amt: int) -> int:
  """The next multiple of amt.

  >>> round_up(5, 4)
  8
  """
  return -(num // -amt) * amt


def round_down(num: int, amt: int) -> int:
  """The multiple of amt at or below num.

  >>> round_down(7, 4)
  4
  """
  return num // amt * amt


def next_power2(x: int) -> int:
  """The least power of two that is not below x.

  >>> next_power2(5)
  8
  """
  return 1 << max(x - 1, 0).bit_length()


def cdiv(x: int, y: int) -> int:
  """Integer quotient towards zero; 0 for a zero divisor.

  >>> cdiv(-7, 2)
  -3
  """
  return abs(x) // abs(y) * (1 if x * y > 0 else -1) if y != 0 else 0


def cmod(x: int, y: int) -> int:
  """Remainder with the sign of x.

  >>> cmod(-7, 2)
  -1
  """
  return x - cdiv(x, y) * y


def floordiv(x: int, y: int) -> int:
  """Python's quotient; 0 for a zero divisor.

  >>> floordiv(-7, 2)
  -4
  """
  return x // y if y else 0


def floormod(x: int, y: int) -> int:
  """Python's remainder; x for a zero divisor.

  >>> floormod(-7, 2)
  1
  """
  return x - floordiv(x, y) * y


def lo32(x: Any) -> Any:
  """The low 32 bits.

  >>> lo32(1 << 33 | 5)
  5
  """
  return x & 0xFFFFFFFF


def hi32(x: Any) -> Any:
  """What is above the low 32 bits.

  >>> hi32(1 << 33)
  2
  """
  return x >> 32


def data64(data: Any) -> tuple[Any, Any]:
  """High and low half of 64 bits.

  >>> data64(1 << 33 | 5)
  (2, 5)
  """
  return (hi32(data), lo32(data))


def data64_le(data: Any) -> tuple[Any, Any]:
  """Low and high half of 64 bits.

  >>> data64_le(1 << 33 | 5)
  (5, 2)
  """
  return (lo32(data), hi32(data))


def getbits(value: int, start: int, end: int) -> int:
  """The bits from start to end, both included.

  >>> getbits(0b1100, 2, 3)
  3
  """
  return value >> start & (1 << end - start + 1) - 1


def i2u(bits: int, value: int) -> int:
  """A signed number as unsigned bits.

  >>> i2u(8, -1)
  255
  """
  return value if value >= 0 else (1 << bits) + value


def polyN(x: Any, p: Sequence[Any]) -> Any:
  """A polynomial by Horner's rule, the highest power first.

  >>> polyN(2.0, [1, 0, 3])
  7.0
  """
  return functools.reduce(lambda acc, c: acc * x + c, p, 0.0)
