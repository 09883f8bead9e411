"""Gradient clipping, by PyTorch's names."""
from __future__ import annotations

from typing import Iterable

from whit.arguments import check_all
from whit import _whit
from whit.tensor import Tensor


def _list(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]: return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
  """Scales the gradients so that their joint norm is at most `max_norm`; gives the norm before. Lazy, so that it works in TinyJit.

  >>> w = Tensor([3.0, 4.0])
  >>> _ = (w * w / 2).sum().backward()
  >>> clip_grad_norm_([w], 1.0).item(), [round(g, 3) for g in w.grad.tolist()]
  (5.0, [0.6, 0.8])
  """
  return _whit.clip_grad_norm_(_list(parameters), max_norm, norm_type, error_if_nonfinite)


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
  """Brings every element of the gradients into [-clip_value, clip_value].

  >>> w = Tensor([3.0, 4.0])
  >>> _ = (w * w / 2).sum().backward()
  >>> clip_grad_value_([w], 3.5)
  >>> w.grad.tolist()
  [3.0, 3.5]
  """
  _whit.clip_grad_value_(_list(parameters), clip_value)


check_all(globals())
