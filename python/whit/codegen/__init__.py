"""From a kernel graph to a kernel: each stage alone."""
from __future__ import annotations


from whit import _whit
from whit.hints import missing
from whit.uop.ops import UOp
from whit.uop.upat import PatternMatcher, graph_rewrite

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any, Callable
  from whit.renderer import Renderer


def _name(renderer: str | Renderer) -> str: return renderer if isinstance(renderer, str) else renderer.name


def optimize(sink: UOp, renderer: str | Renderer = "llvm") -> UOp:
  """The kernel with split, typed and ordered loops.

  >>> from whit import Tensor
  >>> from whit.schedule import create_schedule
  >>> kernel = create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0]
  >>> optimize(kernel).op
  Ops.SINK
  """
  return _whit.optimize_kernel(sink, _name(renderer))


def alternatives(sink: UOp, renderer: str | Renderer = "llvm", decisions: str = "") -> dict[str, int]:
  """The questions that the optimiser answers by its cost model for a kernel, and how many answers each has: what BEAM searches.

  >>> from whit import Tensor
  >>> from whit.schedule import create_schedule
  >>> sorted(alternatives(create_schedule(Tensor.empty(64, 64) + 1).kernels[0][0]))
  ['0.lane', '0.unroll']
  """
  return _whit.alternatives(sink, _name(renderer), decisions)


def lower(sink: UOp, renderer: str | Renderer = "llvm", optimized: bool = False, decisions: str = "") -> UOp:
  """PROGRAM(SINK, LINEAR) of a kernel; with `optimized` its loops are taken as they are. `decisions` answers questions of
  `alternatives` otherwise than the model: "0.lane=1 0.unroll=2".

  >>> from whit import Tensor
  >>> from whit.schedule import create_schedule
  >>> lower(create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0]).src[1].op
  Ops.LINEAR
  """
  return _whit.lower_kernel(sink, _name(renderer), optimized, decisions)


def render(program: UOp, renderer: str | Renderer = "llvm") -> str:
  """The source of a PROGRAM. It must have been lowered for the same renderer.

  >>> from whit import Tensor
  >>> from whit.schedule import create_schedule
  >>> program = lower(create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0], "c")
  >>> "void" in render(program, "c")
  True
  """
  return _whit.render_program(program, _name(renderer))


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


class Pass:
  """A pass of one's own in the pipeline, while the `with` block lasts: rules (a PatternMatcher) or a function from a SINK to another, or to None
  for no change. It runs on every graph that is scheduled or compiled meanwhile; equal graphs must give equal graphs.

  The stages, as docs/ir.md describes them: "tensor" before values are scheduled (SINK of them), "kernel" before a kernel's loops are optimised, "loops"
  after that. What it gives is verified.

  >>> from whit import Tensor
  >>> from whit.uop.ops import PatternMatcher, UPat
  >>> x = UPat.var("x")
  >>> with Pass("tensor", PatternMatcher([(x * 2, lambda x: x + 5)])): wrong = (Tensor([1.0, 2.0]).realize() * 2).tolist()
  >>> wrong
  [6.0, 7.0]
  """

  def __init__(self, stage: str, rules: PatternMatcher | Callable[[UOp], UOp | None], name: str | None = None) -> None:
    self.stage, self.name = stage, name or str(getattr(rules, "__name__", type(rules).__name__))
    if isinstance(rules, PatternMatcher): self._fn: Callable[[UOp], UOp | None] = lambda sink: graph_rewrite(sink, rules, name=self.name)
    elif callable(rules): self._fn = rules
    else: raise TypeError(f"[pass] expected a PatternMatcher or a function, got a {type(rules).__name__}")
    self._scopes: list[_whit.PassScope] = []

  def __enter__(self) -> Pass:
    self._scopes.append(_whit.PassScope(self.stage, self.name, self._fn))
    return self

  def __exit__(self, *exc: object) -> None: self._scopes.pop()


full_rewrite_to_sink = optimize
to_program = lower


def __getattr__(name: str) -> Any: raise missing(__name__, name)
