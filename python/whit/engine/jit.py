"""TinyJit: runs a function once, captures the kernels of its second call, and replays them afterwards."""
from __future__ import annotations

from whit import _whit
from whit.hints import missing

JitError = _whit.JitError


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


def __getattr__(name: str): raise missing(__name__, name)
