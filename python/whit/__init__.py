"""whit: a deep-learning framework and compiler. `Tensor` is lazy; `realize`, `numpy`, `item` run it."""
import sys
from importlib import import_module
from whit import _whit as _whit
if sys.argv[:1] == ["-m"]:
  # `python -m whit.device` runs the module that `import whit` has loaded already, which is as meant.
  import warnings
  warnings.filterwarnings("ignore", message="'whit.device' found in sys.modules", category=RuntimeWarning)
from whit.hints import missing as _missing
from whit.helpers import Context, GlobalCounters, getenv  # noqa: F401
from whit.dtype import dtypes  # noqa: F401
from whit.device import Device  # noqa: F401
from whit.tensor import Tensor  # noqa: F401
from whit.engine.jit import TinyJit  # noqa: F401
from whit.function import function  # noqa: F401
from whit.transform import (checkpoint as checkpoint, grad as grad, hessian as hessian, jacobian as jacobian, jvp as jvp, pmap as pmap, value_and_grad as value_and_grad,
                            vjp as vjp, vmap as vmap)
from whit.uop.ops import UOp, Variable  # noqa: F401

__version__ = _whit.__version__
__all__ = ["Tensor", "TinyJit", "function", "Variable", "UOp", "dtypes", "GlobalCounters", "fetch", "Context", "getenv", "Device"]


# Modules that are imported when first asked for: `import whit; whit.nn.Linear(2, 3)`.
_MODULES = {"codegen", "distributed", "llm", "nn", "renderer", "schedule"}
TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any
  from whit import codegen as codegen, distributed as distributed, llm as llm, nn as nn, renderer as renderer, schedule as schedule
  from whit.helpers.files import fetch as fetch


def __dir__() -> list[str]: return sorted({*globals(), *__all__, *_MODULES})


def __getattr__(name: str) -> "Any":
  if name in _MODULES: return import_module(f"{__name__}.{name}")
  if name != "fetch": raise _missing(__name__, name)
  from whit.helpers.files import fetch  # which needs modules that take long
  globals()[name] = fetch
  return fetch
