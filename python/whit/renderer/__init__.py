"""Renderers: what writes a kernel's source."""
from __future__ import annotations

from whit import _whit
from whit.dtype import DType, dtypes
from whit.hints import missing
from whit.uop.ops import UOp

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any


def renderer_names() -> list[str]:
  """The renderers that there are.

  >>> "llvm" in renderer_names()
  True
  """
  return _whit.renderer_names()


class Renderer:
  """A renderer by name; or, derived from it, one of one's own, which `register` adds.

  A renderer gets PROGRAM(SINK, LINEAR) and writes `void name(void* const* buffers, const int64_t* variables, void* scratch, int64_t first,
  int64_t last)` for devices that run `CPUProgram`, or whatever else its device's runtime understands. docs/ir.md, section 4, says what the list may hold.
  With `has_lanes` False (the default here) no vectors reach it: one loop a range, one element at a time.

  >>> Renderer("c").name
  'c'
  """

  name: str = ""
  has_lanes: bool = False

  def __init__(self, name: str | None = None) -> None:
    if type(self) is not Renderer: return
    if name not in renderer_names(): raise ValueError(f"[Renderer] there is no renderer {name}; there are {', '.join(renderer_names())}")
    self.name = name

  # What a GPU would have otherwise.
  has_local: bool = False
  has_shared: bool = False
  has_threads: bool = True
  tensor_cores: tuple[Any, ...] = ()

  def supported_dtypes(self) -> set[DType]:
    """The dtypes that kernels may compute with: all of them, where need be through others.

    >>> dtypes.bfloat16 in Renderer("c").supported_dtypes()
    True
    """
    return set(dtypes.all)

  def render(self, program: UOp, name: str = "") -> str:
    """The source of a PROGRAM that was lowered for this renderer, as a function called `name`."""
    if type(self) is not Renderer: raise NotImplementedError(f"[Renderer] {type(self).__name__} has no 'render'")
    return _whit.render_program(program, self.name)

  def register(self) -> Renderer:
    """Makes the renderer known by its name, for the life of the process. errors: ValueError when there is one of that name

    >>> class Listing(Renderer):
    ...   name = "doc_listing"
    ...   def render(self, program, name=""): return " ".join(u.op.name for u in program.src[1].src)
    >>> from whit import Tensor, codegen
    >>> from whit.schedule import create_schedule
    >>> kernel = create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0]
    >>> "STORE" in Listing().register().render(codegen.lower(kernel, "doc_listing"))
    True
    """
    if not self.name: raise ValueError(f"[Renderer] {type(self).__name__} has no name")
    _whit.register_renderer(self.name, self.render, self.has_lanes)
    return self


def signature(program: UOp) -> dict[str, Any]:
  """What calling a PROGRAM takes: `buffers` as (slot, dtype, elements, is_read, is_written), `variables` by name in the order of their values,
  `scratch_bytes`, the launch space `n_global`, and whether it has one.

  >>> from whit import Tensor, codegen
  >>> from whit.schedule import create_schedule
  >>> signature(codegen.lower(create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0]))["variables"]
  []
  """
  return _whit.kernel_signature(program)


class Estimates:
  """Work of a kernel: arithmetic operations and bytes of its buffers.

  >>> Estimates(2, 8).ops
  2
  """

  def __init__(self, ops: int = 0, mem: int = 0) -> None: self.ops, self.mem = ops, mem

  @staticmethod
  def of(kernel: _whit.Executable) -> Estimates: return Estimates(kernel.n_ops, kernel.n_bytes)


def __getattr__(name: str) -> Any: raise missing(__name__, name)
