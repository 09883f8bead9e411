"""TinyJit: runs a function once, captures the kernels of its second call, and replays them afterwards."""
from __future__ import annotations

from whit import _whit
from whit._typing import Generic, P, Q, R, S, overload
from whit.hints import missing

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any, Callable, Concatenate

JitError = _whit.JitError

if TYPE_CHECKING:
  class _Jit(_whit.TinyJit, Generic[P, R]):
    """A captured function keeps its signature."""
    def __init__(self, fxn: Callable[P, R], prune: bool = False, memory_budget: int = 0) -> None: ...
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __get__(self, obj: None, objtype: object = None) -> _Jit[P, R]: ...
    @overload
    def __get__(self: _Jit[Concatenate[S, Q], R], obj: S, objtype: object = None) -> Callable[Q, R]: ...
    def __get__(self, obj: Any, objtype: object = None) -> Any: ...
    def free_intermediates(self) -> None: ...

  @overload
  def TinyJit(fxn: Callable[P, R], prune: bool = False, memory_budget: int = 0) -> _Jit[P, R]: ...
  @overload
  def TinyJit(fxn: None = None, *, prune: bool = False, memory_budget: int = 0) -> Callable[[Callable[P, R]], _Jit[P, R]]: ...
  def TinyJit(fxn: Any = None, prune: bool = False, memory_budget: int = 0) -> Any: ...
else:
  class TinyJit(_whit.TinyJit):
    """`@TinyJit` over a function of tensors, also a method.

    The first call runs it, the second captures the kernels, later calls replay them with new inputs: tensors among the arguments, also in lists and
    dicts. Python side effects happen in the first two calls only. Another shape, dtype, device or number of inputs is a JitError.
    With `memory_budget` (bytes) no more temporaries are in memory at once: values are computed again instead of kept. A MemoryError names the least
    that is possible.

    >>> from whit import Tensor
    >>> @TinyJit
    ... def f(x): return (x + 1).realize()
    >>> [f(Tensor([i]).realize()).item() for i in range(4)]
    [1, 2, 3, 4]
    """

    def __new__(cls, fxn=None, **kwargs):
      # @TinyJit(prune=True): what does not depend on the inputs runs again with each replay; the results are the same.
      if fxn is None: return lambda f: cls(f, **kwargs)
      return super().__new__(cls)

    def __init__(self, fxn=None, prune: bool = False, memory_budget: int = 0):
      super().__init__(fxn, memory_budget)
      self.__wrapped__ = fxn
      self.__name__ = getattr(fxn, "__name__", "jit")
      self.__doc__ = getattr(fxn, "__doc__", None)

    def free_intermediates(self):
      """Frees the memory that the captured kernels hold, as `reset` does: the next call runs the function, the one after captures it again."""
      self.reset()


def __getattr__(name: str) -> Any: raise missing(__name__, name)
