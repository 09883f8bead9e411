"""Tensor: lazy, differentiable, n-dimensional. The class itself is the C++ one."""
from __future__ import annotations

from whit import _whit
from whit.dtype import _from_np_dtype, _to_np_dtype, dtypes  # noqa: F401

Tensor = _whit.Tensor
Slice = _whit.Slice
