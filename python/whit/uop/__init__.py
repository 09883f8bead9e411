"""The graph IR from Python: the kinds of nodes and their groups."""
from whit import _whit
from whit.hints import missing

Ops = _whit.Ops
# Other names of the same thing.
Ops.RECIPROCAL = Ops.RECIP  # type: ignore[attr-defined]


class GroupOp:
  """Sets of kinds of nodes.

  >>> Ops.ADD in GroupOp.Commutative, Ops.SUB in GroupOp.Commutative
  (True, False)
  """
  All = set(Ops)
  Unary = {o for o in Ops if _whit.op_group(o) == "Unary" and _whit.is_elementwise(o)} - {Ops.CAST, Ops.BITCAST}
  Binary = {o for o in Ops if _whit.op_group(o) == "Binary"}
  Ternary = {o for o in Ops if _whit.op_group(o) == "Ternary"}
  ALU = Unary | Binary | Ternary
  Broadcastable = Binary | Ternary
  Elementwise = ALU | {Ops.CAST, Ops.BITCAST}
  Movement = {o for o in Ops if _whit.op_group(o) == "Movement"}
  Commutative = {o for o in Ops if _whit.is_commutative(o)}
  Associative = {Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR, Ops.MAX, Ops.MIN}
  Idempotent = {Ops.AND, Ops.OR, Ops.MAX, Ops.MIN}
  Comparison = {Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ}
  Reduce = {Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN}
  Defines = {Ops.PARAM, Ops.BUFFER}
  Irreducible = {Ops.CONST, Ops.VARIABLE, Ops.RANGE, Ops.PARAM}


def __getattr__(name: str) -> object: raise missing(__name__, name)
