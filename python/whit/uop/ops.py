"""UOp, the node of every graph."""
from whit import _whit

UOp = _whit.UOp


def Variable(name: str, min_val: int, max_val: int, dtype=None, multiple_of: int = 1):
  """Symbolic sizes are not there yet."""
  raise NotImplementedError("[Variable] whit does not have symbolic sizes yet")
