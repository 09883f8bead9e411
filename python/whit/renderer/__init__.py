"""Renderers: what writes a kernel's source."""
from __future__ import annotations

from whit import _whit
from whit.hints import missing


def renderer_names() -> list[str]:
  """The renderers that there are.

  >>> "llvm" in renderer_names()
  True
  """
  return _whit.renderer_names()


class Renderer:
  """A renderer by name.

  >>> Renderer("c").name
  'c'
  """

  def __init__(self, name: str):
    if name not in renderer_names(): raise ValueError(f"[Renderer] there is no renderer {name}; there are {', '.join(renderer_names())}")
    self.name = name

  def render(self, program) -> str:
    """The source of a PROGRAM that was lowered for this renderer."""
    return _whit.render_program(program, self.name)


class Estimates:
  """Work of a kernel: arithmetic operations and bytes of its buffers.

  >>> Estimates(2, 8).ops
  2
  """

  def __init__(self, ops: int = 0, mem: int = 0): self.ops, self.mem = ops, mem

  @staticmethod
  def of(kernel: _whit.Executable) -> Estimates: return Estimates(kernel.n_ops, kernel.n_bytes)


def __getattr__(name: str): raise missing(__name__, name)
