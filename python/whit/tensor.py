"""Tensor: lazy, differentiable, n-dimensional. The class itself is the C++ one."""
from __future__ import annotations

from whit import _whit
from whit.dtype import _from_np_dtype, _to_np_dtype, dtypes  # noqa: F401

Tensor = _whit.Tensor
Slice = _whit.Slice


def _sequential(self, ll):
  """Applies the functions of the list one after the other."""
  x = self
  for f in ll: x = f(x)
  return x


Tensor.sequential = _sequential
