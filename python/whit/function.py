"""`@function`: a callable as one parameterised, differentiable graph node."""
from __future__ import annotations

import functools, types

from whit import _whit
from whit.hints import missing
from whit._typing import Generic, P, Q, R, S, overload
from whit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any, Callable, Concatenate


def _collect(x: object, out: list[Tensor], seen: set[int] | None = None) -> None:
  # Depth first, in a fixed order: positional, then keywords by name; objects by their attributes, each once: they may form circles.
  if isinstance(x, Tensor):
    out.append(x)
    return
  seen = set() if seen is None else seen
  if id(x) in seen: return
  seen.add(id(x))
  if isinstance(x, (list, tuple)):
    for y in x: _collect(y, out, seen)
  elif isinstance(x, dict):
    for y in x.values(): _collect(y, out, seen)
  elif hasattr(x, "__dict__") and not isinstance(x, (type, types.ModuleType)) and not callable(getattr(x, "__code__", None)):
    for y in x.__dict__.values(): _collect(y, out, seen)


class _Function(Generic[P, R]):
  def __init__(self, fxn: Callable[P, R], precompile: bool = False, precompile_backward: bool = False, allow_implicit: bool = False,
               grad_fxn: Callable[..., Any] | None = None) -> None:
    self.fxn, self.precompile, self.precompile_backward = fxn, precompile, precompile_backward
    self.allow_implicit, self.grad_fxn = allow_implicit, grad_fxn
    self._gradient = _whit.register_gradient(grad_fxn) if grad_fxn is not None else -3 if precompile and precompile_backward else -2 if precompile else 0
    functools.update_wrapper(self, fxn)

  @overload
  def __get__(self, obj: None, objtype: object = None) -> _Function[P, R]: ...
  @overload
  def __get__(self: _Function[Concatenate[S, Q], R], obj: S, objtype: object = None) -> Callable[Q, R]: ...
  def __get__(self, obj: Any, objtype: object = None) -> Any: return functools.partial(self.__call__, obj) if obj is not None else self

  def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
    tensors: list[Tensor] = []
    _collect((args, dict(sorted(kwargs.items()))), tensors)
    tensors = list({id(t): t for t in tensors}.values())
    out: R = _whit.call_function(tensors, lambda: self.fxn(*args, **kwargs), self.allow_implicit, self._gradient)
    return out


@overload
def function(fxn: Callable[P, R], *, precompile: bool = False, precompile_backward: bool = False, allow_implicit: bool = False,
             grad_fxn: Callable[..., Any] | None = None) -> _Function[P, R]: ...
@overload
def function(fxn: None = None, *, precompile: bool = False, precompile_backward: bool = False, allow_implicit: bool = False,
             grad_fxn: Callable[..., Any] | None = None) -> Callable[[Callable[P, R]], _Function[P, R]]: ...
def function(fxn: Callable[..., Any] | None = None, *, precompile: bool = False, precompile_backward: bool = False, allow_implicit: bool = False,
             grad_fxn: Callable[..., Any] | None = None) -> Any:
  """Traces a pure function of tensors (also a method) into one node of the graph: equal calls have equal graphs, and it is differentiable.

  With `precompile` a call is computed by itself, between what comes before and after it, from arguments in memory to results in memory: calls of
  equal bodies, such as the blocks of a deep network, share one schedule. `precompile_backward` does the same for its derivative.

  >>> from whit import Tensor
  >>> @function
  ... def f(a, b): return a * b + 1
  >>> f(Tensor([2.0]), Tensor([3.0])).tolist()
  [7.0]
  """
  def wrap(f: Callable[..., Any]) -> _Function[..., Any]: return _Function(f, precompile, precompile_backward, allow_implicit, grad_fxn)
  return wrap(fxn) if fxn is not None else wrap


def __getattr__(name: str) -> Any: raise missing(__name__, name)
