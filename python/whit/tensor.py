"""Tensor: lazy, differentiable, n-dimensional. The class itself is the C++ one."""
from __future__ import annotations

import copyreg

from whit import _whit
from whit import surface as surface
from whit.dtype import _from_np_dtype, _to_np_dtype, dtypes  # noqa: F401
from whit.hints import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any
  from whit.dtype import DType

Tensor = _whit.Tensor
Slice = _whit.Slice


def _reduce(t: Tensor) -> tuple[Any, ...]:
  # Pickling and copying: the values, on the tensor's device; neither graph nor gradient. A constant stays one.
  if t.device is None: return _constant, (t.tolist(), t.dtype, t.shape)
  return _restore, (_whit.tensor_bytes(t), t.dtype, t.shape, t.device, t.is_param), t.__dict__ or None


def _constant(values: Any, dtype: DType, shape: tuple[int, ...]) -> Tensor:
  return Tensor(values).cast(dtype) if shape == () else Tensor(values, dtype=_whit.strong_dtype(dtype)).reshape(shape)


def _restore(data: bytes, dtype: DType, shape: tuple[int, ...], device: str, is_param: bool) -> Tensor:
  t = Tensor(data, dtype=dtype, device=device).reshape(shape)
  t.is_param = is_param
  return t


copyreg.pickle(Tensor, _reduce)


def __getattr__(name: str) -> Any:
  if name == "cast":  # of typing: programs for tinygrad import it from there
    import typing
    return typing.cast
  raise missing(__name__, name)
