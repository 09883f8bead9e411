"""Element types. `dtypes.float32` and so on are singletons: compare them with `is` or `==`."""
from __future__ import annotations

import builtins, enum

from whit import _whit
from whit.hints import missing

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any, Callable

DType = _whit.DType
InvalidType, Invalid = _whit.InvalidType, _whit.Invalid
DTypeLike = str | DType
PyConst = ConstType = float | int | bool  # what a constant is made of


class _DTypesMeta(type):
  @property
  def default_float(cls) -> DType: return _whit.default_float()

  @property
  def default_int(cls) -> DType: return _whit.default_int()


class dtypes(metaclass=_DTypesMeta):
  """The namespace of element types, their groups and predicates.

  >>> dtypes.float32
  dtypes.float
  """
  void = _whit.dtype("void")
  bool = _whit.dtype("bool")
  weakint = _whit.dtype("weakint")
  int8 = char = _whit.dtype("int8")
  uint8 = uchar = _whit.dtype("uint8")
  int16 = short = _whit.dtype("int16")
  uint16 = ushort = _whit.dtype("uint16")
  int32 = int = _whit.dtype("int32")
  uint32 = uint = _whit.dtype("uint32")
  int64 = long = _whit.dtype("int64")
  uint64 = ulong = _whit.dtype("uint64")
  weakfloat = _whit.dtype("weakfloat")
  fp8e4m3 = _whit.dtype("fp8e4m3")
  fp8e4m3fnuz = _whit.dtype("fp8e4m3fnuz")
  fp8e5m2 = _whit.dtype("fp8e5m2")
  fp8e5m2fnuz = _whit.dtype("fp8e5m2fnuz")
  float16 = half = _whit.dtype("float16")
  bfloat16 = _whit.dtype("bfloat16")
  float32 = float = _whit.dtype("float32")
  float64 = double = _whit.dtype("float64")

  fp8_ocp = (fp8e4m3, fp8e5m2)
  fp8_fnuz = (fp8e4m3fnuz, fp8e5m2fnuz)
  fp8s = fp8_ocp + fp8_fnuz
  floats = fp8s + (float16, bfloat16, float32, float64)
  int8s = (int8, uint8)
  int16s = (int16, uint16)
  int32s = (int32, uint32)
  int64s = (int64, uint64)
  uints = (uint8, uint16, uint32, uint64)
  sints = (int8, int16, int32, int64)
  ints = uints + sints
  weaks = (weakint, weakfloat)
  all = floats + ints + (bool,)

  @staticmethod
  def is_float(x: DType) -> builtins.bool: return _whit.is_float(x)
  @staticmethod
  def is_int(x: DType) -> builtins.bool: return _whit.is_int(x)
  @staticmethod
  def is_unsigned(x: DType) -> builtins.bool: return _whit.is_unsigned(x)
  @staticmethod
  def is_bool(x: DType) -> builtins.bool: return x is dtypes.bool

  @staticmethod
  def from_py(x: Any) -> DType:
    """The dtype of a Python number or (nested) list: numbers are weak, lists strong."""
    if x is True or x is False: return dtypes.bool
    if x.__class__.__name__ == "int": return dtypes.weakint
    if x.__class__.__name__ == "float": return dtypes.weakfloat
    if isinstance(x, (list, tuple)):
      kinds = [dtypes.from_py(y) for y in x]
      return max((strong_dtype(k) for k in kinds), key=lambda d: d.priority) if kinds else dtypes.default_float
    raise RuntimeError(f"Could not infer dtype of {x} with type {type(x)}")

  @staticmethod
  def finfo(dt: DType) -> tuple[builtins.int, builtins.int]:
    """(exponent bits, mantissa bits) of a float dtype."""
    if not dtypes.is_float(dt): raise ValueError(f"{dt} is not a floating point type")
    return _whit.finfo(dt)

  @staticmethod
  def as_const(val: Any, dt: DType) -> Any: return dt.const(val)


DTYPES_DICT = {k: v for k, v in dtypes.__dict__.items() if isinstance(v, DType) and k != "void" and not _whit.is_weak(v)}
INVERSE_DTYPES_DICT = {v.name: k for k, v in dtypes.__dict__.items() if isinstance(v, DType)}


def to_dtype(dtype: DTypeLike) -> DType:
  """A dtype by name, or itself.

  >>> to_dtype("float32") is to_dtype(dtypes.float32)
  True
  """
  return dtype if isinstance(dtype, DType) else _whit.dtype(dtype)


least_upper_dtype = _whit.least_upper_dtype
least_upper_float = _whit.least_upper_float
strong_dtype = _whit.strong_dtype
weak_dtype = _whit.weak_dtype
can_lossless_cast = _whit.can_lossless_cast
sum_acc_dtype = _whit.sum_acc_dtype


def _to_np_dtype(dtype: DType) -> Any:
  """The NumPy type, or None where NumPy has none."""
  import numpy as np
  return np.dtype(str(dtype.fmt)).type if dtype.fmt is not None else None


def _from_np_dtype(npdtype: Any) -> DType:
  import numpy as np
  return to_dtype(np.dtype(npdtype).name)


def _to_torch_dtype(dtype: DType) -> Any:
  import torch  # type: ignore[import-not-found,unused-ignore]
  return getattr(torch, dtype.name, None)


def _from_torch_dtype(torchdtype: Any) -> DType: return to_dtype(str(torchdtype).split(".")[1])


class AddrSpace(enum.IntEnum):
  """Where memory of a kernel lies.

  >>> AddrSpace.GLOBAL.name
  'GLOBAL'
  """
  GLOBAL = 0
  LOCAL = 1
  REG = 2
  ALU = 3


class ConstFloat(float):
  """A float that equals itself bit for bit: nan is nan, -0.0 is not 0.0.

  >>> ConstFloat("nan") == ConstFloat("nan"), ConstFloat(0.0) == ConstFloat(-0.0)
  (True, False)
  """

  def __eq__(self, x: object) -> bool: return _whit.bits_of(self, "float64") == _whit.bits_of(x, "float64") if isinstance(x, float) else float.__eq__(self, x)
  def __ne__(self, x: object) -> bool: return not self == x
  def __hash__(self) -> int: return hash(_whit.bits_of(self, "float64"))


def _truncate(dt: DType) -> Callable[[Any], Any]:
  return lambda x: _whit.eval_scalar(_whit.Ops.CAST, dt, [x])


# By dtype: a Python number as the dtype holds it; ints wrap, floats are rounded.
truncate = {dt: _truncate(dt) for dt in dtypes.all}


def float_to_fp16(x: float) -> float:
  """x rounded to half precision.

  >>> float_to_fp16(1.0001)
  1.0
  """
  return float(truncate[dtypes.float16](float(x)))


def float_to_bf16(x: float) -> float:
  """x rounded to bfloat16.

  >>> float_to_bf16(1.001)
  1.0
  """
  return float(truncate[dtypes.bfloat16](float(x)))


def float_to_fp8(x: float, dtype: DType) -> int:
  """The byte of x in an 8-bit float dtype.

  >>> float_to_fp8(1.0, dtypes.fp8e4m3)
  56
  """
  if dtype not in dtypes.fp8s: raise ValueError(f"[float_to_fp8] {dtype} is no 8-bit float")
  return _whit.bits_of(truncate[dtype](float(x)), dtype)


def fp8_to_float(x: int, dtype: DType) -> float:
  """The number of a byte of an 8-bit float dtype.

  >>> fp8_to_float(56, dtypes.fp8e4m3)
  1.0
  """
  if dtype not in dtypes.fp8s: raise ValueError(f"[fp8_to_float] {dtype} is no 8-bit float")
  return float(_whit.from_bits(x, dtype))


def bitcast(x: Any, in_dtype: DType, out_dtype: DType) -> Any:
  """The same bits as a number of another dtype of the same width.

  >>> bitcast(1.0, dtypes.float32, dtypes.int32)
  1065353216
  """
  if in_dtype.itemsize != out_dtype.itemsize: raise ValueError(f"[bitcast] {in_dtype} has {in_dtype.itemsize} bytes, {out_dtype} has {out_dtype.itemsize}")
  return _whit.from_bits(_whit.bits_of(x, in_dtype), out_dtype)


def storage_fmt_for_dtype(dtype: DType) -> str | None:
  """The struct format of an element in memory: of an unsigned integer where Python has no such float.

  >>> storage_fmt_for_dtype(dtypes.bfloat16)
  'H'
  """
  return "H" if dtype is dtypes.bfloat16 else "B" if dtype in dtypes.fp8s else dtype.fmt


def to_storage_scalar(x: Any, dtype: DType) -> Any:
  """A number as `storage_fmt_for_dtype` packs it.

  >>> to_storage_scalar(1.0, dtypes.bfloat16)
  16256
  """
  return _whit.bits_of(truncate[dtype](x), dtype) if dtype is dtypes.bfloat16 or dtype in dtypes.fp8s else truncate[dtype](x)


def from_storage_scalar(x: Any, dtype: DType) -> Any:
  """A number from what `storage_fmt_for_dtype` unpacks.

  >>> from_storage_scalar(16256, dtypes.bfloat16)
  1.0
  """
  return _whit.from_bits(x, dtype) if dtype is dtypes.bfloat16 or dtype in dtypes.fp8s else x


def __getattr__(name: str) -> Any: raise missing(__name__, name)
