"""From a kernel graph to a kernel: each stage alone."""
from __future__ import annotations

from whit import _whit
from whit.hints import missing
from whit.uop.ops import UOp


def optimize(sink: UOp, renderer: str = "llvm") -> UOp:
  """The kernel with split, typed and ordered loops.

  >>> from whit import Tensor
  >>> from whit.schedule import create_schedule
  >>> kernel = create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0]
  >>> optimize(kernel).op
  Ops.SINK
  """
  return _whit.optimize_kernel(sink, renderer)


def alternatives(sink: UOp, renderer: str = "llvm", decisions: str = "") -> dict[str, int]:
  """The questions that the optimiser answers by its cost model for a kernel, and how many answers each has: what BEAM searches.

  >>> from whit import Tensor
  >>> from whit.schedule import create_schedule
  >>> sorted(alternatives(create_schedule(Tensor.empty(64, 64) + 1).kernels[0][0]))
  ['0.lane', '0.unroll']
  """
  return _whit.alternatives(sink, renderer, decisions)


def lower(sink: UOp, renderer: str = "llvm", optimized: bool = False, decisions: str = "") -> UOp:
  """PROGRAM(SINK, LINEAR) of a kernel; with `optimized` its loops are taken as they are. `decisions` answers questions of
  `alternatives` otherwise than the model: "0.lane=1 0.unroll=2".

  >>> from whit import Tensor
  >>> from whit.schedule import create_schedule
  >>> lower(create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0]).src[1].op
  Ops.LINEAR
  """
  return _whit.lower_kernel(sink, renderer, optimized, decisions)


def render(program: UOp, renderer: str = "llvm") -> str:
  """The source of a PROGRAM. It must have been lowered for the same renderer.

  >>> from whit import Tensor
  >>> from whit.schedule import create_schedule
  >>> program = lower(create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0], "c")
  >>> "void" in render(program, "c")
  True
  """
  return _whit.render_program(program, renderer)


def compile(sink: UOp, device: str | None = None, decisions: str = "") -> _whit.Executable:
  """The kernel compiled for a device: `.source`, `.library`, and callable with buffers by slot. `decisions` as in `lower`.

  >>> from whit import Tensor
  >>> from whit.schedule import create_schedule
  >>> kernel = compile(create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0])
  >>> out = Tensor.empty(2).realize()
  >>> kernel([out, Tensor([1.0, 2.0]).realize()])
  >>> out.tolist()
  [2.0, 3.0]
  """
  return _whit.compile_kernel(sink, device, decisions)


full_rewrite_to_sink = optimize
to_program = lower


def __getattr__(name: str): raise missing(__name__, name)
