"""Passes of one's own: rules and functions in Python that run inside the pipeline, on tensor graphs and on kernels."""
from whit import GlobalCounters, Tensor
from whit.codegen import Pass
from whit.uop.ops import Ops, PatternMatcher, UOp, UPat

seen: list = []  # kernels are compiled in several threads: a pass may be called by each


def by_reciprocal(x: UOp, c: UOp) -> UOp:
  seen.append(f"a division by {c.arg}")
  return x * (1 / c.arg)


# Division by a number becomes a multiplication: faster, and not the same to the last bit, so it is no rule of whit's own.
fast_division = PatternMatcher([(UPat.var("x").alu(Ops.FDIV, UPat.cvar("c")), by_reciprocal)])


def no_barriers(sink: UOp) -> UOp:
  """A decision about fusion: what the program wanted in memory of its own is computed where it is used."""
  return sink.substitute({u: u.src[0] for u in sink.toposort() if u.op is Ops.CONTIGUOUS})


def look(sink: UOp) -> None:
  """A pass may only look: here at kernels with their loops split and typed."""
  seen.append(f"kernel {sink.arg[0]} with {sum(u.op is Ops.RANGE for u in sink.toposort())} loops")


def main() -> None:
  a = Tensor.rand(8, 64).realize()
  def program() -> Tensor: return ((a + 1).contiguous() / 3.0).sum(1)

  def kernels() -> int:
    GlobalCounters.reset()
    program().realize()
    return GlobalCounters.kernel_count

  print("kernels as it is:", kernels())
  with Pass("tensor", no_barriers): print("kernels without barriers:", kernels())
  with Pass("kernel", fast_division), Pass("loops", look): fast = program().realize()
  print(*sorted(seen), sep="\n")
  print("apart by", (fast - program()).abs().max().item())


if __name__ == "__main__": main()
