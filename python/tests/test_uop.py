"""The graph IR from Python."""
import pickle

import pytest

from whit import Device, Tensor, UOp, Variable, _whit, codegen, dtypes
from whit.device import Buffer
from whit.dtype import Invalid
from whit.schedule import create_schedule
from whit.uop.ops import (AxisType, BottomUpGate, GroupOp, KernelInfo, Ops, PatternMatcher, UPat, exec_alu, graph_rewrite, parse_text, python_alu,
                          resolve, smax, smin, track_rewrites)
from whit.uop.symbolic import symbolic


def test_nodes_are_the_same_object_while_held():
  x = UOp.variable("x", 0, 7)
  y = x + 1
  assert y is x + 1 and y.src[0] is x and y.src[0] is y.src[0] and y == x + 1 and y != (x + 2) is not False
  assert {x: 1}[UOp.variable("x", 0, 7)] == 1


def test_a_node_by_its_parts():
  x = UOp.variable("x", 0, 7)
  assert UOp(Ops.ADD, src=(x, UOp.const(3))) is x + 3
  assert (x + 3).replace(op=Ops.MUL) is x * 3
  assert x.replace(arg=("y", 0, 3)) is UOp.variable("y", 0, 3)
  with pytest.raises(ValueError, match=r"\[UOp\] ADD has 1 sources, expected 2"): UOp(Ops.ADD, src=(x,))
  with pytest.raises(TypeError, match="a CAST needs a dtype"): UOp(Ops.CAST, src=(x,))
  with pytest.raises(TypeError, match="there is no field color"): x.replace(color=1)
  with pytest.raises(TypeError, match="arg is a set"): UOp(Ops.LANES, arg={1})
  with pytest.raises(TypeError, match="nodes have no tags"): UOp(Ops.LANES, arg=1, tag=3)


def test_attributes():
  r = UOp.range(10, 2, AxisType.REDUCE)
  assert r.arg == (2, AxisType.REDUCE, 10) and r.op is Ops.RANGE and r.dtype is dtypes.weakint and r.shape == ()
  assert list((r + 1).ranges) == [r] and (r.vmin, r.vmax) == (0, 9)
  assert UOp.const(2.5).vmin == 2.5 and UOp.const(True).vmax is True and UOp.const(Invalid).arg is Invalid
  t = (Tensor([[1.0, 2.0]], device="CPU") + 1).uop
  assert t.device == "CPU" and t.shape == (1, 2) and len(t.key) == 16
  assert [u.op for u in t.toposort()][0] is Ops.BUFFER and list(t.toposort())[-1] is t


def test_arithmetic_promotes_and_broadcasts_like_tensor():
  x = UOp.variable("x", 0, 7)
  assert (x / 2).dtype is dtypes.weakfloat and (x < 3).dtype is dtypes.bool and (x * 1.5).dtype is dtypes.weakfloat
  a, b = Tensor([[1.0], [2.0]]).uop, Tensor([3.0, 4.0]).uop
  assert Tensor(a * b).tolist() == [[3, 4], [6, 8]]
  assert Tensor((a <= b).where(a, 0)).tolist() == [[1, 1], [2, 2]]
  assert Tensor(Tensor([float("nan")]).uop <= 1).tolist() == [False]
  assert Tensor(2 - Tensor([5]).uop).tolist() == [-3] and Tensor(~Tensor([5]).uop).tolist() == [-6]
  with pytest.raises(IndexError, match="broadcast"): Tensor([1, 2]).uop + Tensor([1, 2, 3]).uop


def test_every_method_of_tensor_works_on_values():
  u = Tensor([[1.0, 2.0], [3.0, 4.0]]).uop
  assert Tensor(u.softmax(axis=-1)).shape == (2, 2) and u.ndim == 2 and Tensor(u.matmul(u)).tolist() == [[7, 10], [15, 22]]
  assert Tensor(UOp.arange(3)).tolist() == [0, 1, 2] and len(u.split([1, 1])) == 2
  with pytest.raises(AttributeError, match="UOp has no attribute 'nothing_like_this'"): u.nothing_like_this


def test_symbolic():
  x = Variable("x", 0, 7)
  assert (x * 4 // 2).simplify() is (x * 2).simplify()
  assert ((x * 4 + 8) // 4).render() == "(x+2)" and x.expr == "x" and (x + x).variables() == [x]
  assert (x * 2 + 1).sym_infer({"x": 3}) == 7 and (x * 6 + 9).const_factor() == 3 and (x * 6).divides(3) is x * 2
  with pytest.raises(KeyError, match="no value for x"): x.sym_infer({})
  with pytest.raises(ValueError, match="x = 8 is not in 0..7"): x.sym_infer({"x": 8})
  with pytest.raises(ValueError, match="no single number"): int(x)
  with pytest.raises(ValueError, match="no single number"): bool(x < 3)
  with pytest.raises(ValueError, match="the least value 3 is above"): Variable("y", 3, 1)
  assert int(UOp.const(3) + 4) == 7 and not bool(x < 0) and resolve(x < 3) and not resolve(x < 3, False)
  assert smax(1, 5, 3) == 5 and smin(x, 9) is x and resolve(smax(x, 9) == 9)


def test_text_and_pickle():
  x = Variable("x", 0, 7)
  y = (x + UOp.range(3, 0)) % 4 < 2
  assert parse_text(str(y)) is y and pickle.loads(pickle.dumps(y)) is y
  scope: dict = {"UOp": UOp, "Ops": Ops, "dtypes": dtypes, "AxisType": AxisType}
  exec(y.pyrender(), scope)
  assert scope["c" + str(len(y.toposort()) - 1)] is y
  with pytest.raises(TypeError, match="does not travel"): pickle.dumps(Tensor([1.0]).uop)
  with pytest.raises(ValueError): parse_text("%0 = NOTHING")


def test_a_kernel_graph():
  a, b = UOp.placeholder((4, 3), dtypes.float32, 0), UOp.placeholder((4, 3), dtypes.float32, 1)
  i, j = UOp.range(4, 0), UOp.range(3, 1)
  k = a.index(i, j).store(b.index(i, j).load() * 2).end(i, j).sink(arg=KernelInfo("double"))
  assert k.find_illegal("kernel") == "" and k.arg == ("double",)
  with pytest.raises(ValueError, match="1 indices for shape"): a.index(i)
  assert "the SINK of a kernel has ENDs" in UOp.sink(UOp.const(1)).find_illegal("kernel")


def test_groups_and_python_arithmetic():
  assert Ops.RECIPROCAL is Ops.RECIP and Ops.MUL in GroupOp.ALU and Ops.CAST not in GroupOp.ALU and Ops["ADD"] is Ops.ADD
  assert exec_alu(Ops.ADD, dtypes.uint8, [250, 10]) == 4 and exec_alu(Ops.CMPLT, dtypes.bool, [1, 2]) is True
  assert python_alu[Ops.WHERE](True, 1, 2) == 1 and exec_alu(Ops.CAST, dtypes.int8, [300]) == 44
  with pytest.raises(TypeError, match="ADD of 1 operands"): exec_alu(Ops.ADD, dtypes.int32, [1])


def rewritten(u, *rules, **kw): return graph_rewrite(u, PatternMatcher(list(rules)), **kw)


def test_rules_in_python():
  x, y, z = (Variable(n, 0, 7) for n in "xyz")
  double = (UPat.var("a") * UPat.cvar("c", arg=2), lambda a, c: a + a)
  assert rewritten((x * 2).maximum(y * 2) + y * 3, double) is (x + x).maximum(y + y) + y * 3
  # any order, alternatives, all sources, names that must be the same node, dtypes, any sources
  assert rewritten(y + x, (UPat(Ops.ADD, src=[UPat(Ops.VARIABLE, arg=("x", 0, 7)), UPat.var("o")]), lambda o: o)) is y
  neg = UPat.any(UPat(Ops.NEG, name="n"), UPat(Ops.MUL, src=(UPat.var(), UPat.cvar(arg=-1)), name="n"))
  assert rewritten(-x + y * -1, (neg, lambda n: n.src[0])) is x + y
  assert rewritten((x + y) * z, (UPat(Ops.ADD, src=UPat(Ops.VARIABLE), name="s"), lambda s: s.src[0])) is x * z
  assert rewritten((x < x) & (x < y), (UPat.var("a") < UPat.var("a"), lambda a: UOp.const(False))).src == (UOp.const(False), x < y)
  one_more = (UPat(Ops.CONST, dtypes.int32, name="c"), lambda c: c.replace(arg=9) if c.arg == 1 else None)
  assert rewritten(x.cast(dtypes.int32) + 1, one_more).src[1].arg == 9 and rewritten(x + 1, one_more) is x + 1
  assert rewritten(UOp.sink(x, y), (UPat(Ops.SINK, name="s"), lambda s: None if len(s.src) == 1 else UOp.sink(s.src[0]))) is UOp.sink(x)
  # order of rules, declining, context
  seen = []
  rules = PatternMatcher([(UPat(GroupOp.ALU, name="u"), lambda ctx, u: ctx.append(u.op)), (UPat(Ops.SUB, src=(UPat.var("a"), UPat.var())), lambda a: a)])
  assert graph_rewrite((x - y) + z, rules, ctx=seen) is x + z and seen == [Ops.SUB, Ops.ADD]
  assert rules.rewrite(x + y, ctx=seen) is None


def test_python_rules_beside_the_core_ones():
  x = Variable("x", 0, 7)
  both = symbolic + PatternMatcher([(UPat(Ops.VARIABLE, name="v"), lambda v: UOp.const(3) if v.expr == "x" else None)])
  assert graph_rewrite(x * 4 // 2 + 1, both) is UOp.const(7)
  assert any(n.startswith("algebra/") for n in symbolic.names) and len(both.names) == len(symbolic.names) + 1
  result, events = track_rewrites(lambda: graph_rewrite(x + 1, both, name="mine"))
  assert result is UOp.const(4) and events[0][0] == "mine" and events[0][2] is x
  assert UPat(Ops.ADD, src=[UPat.var("a"), UPat.var("b")]).match(x + 1, {}) == [{"a": x, "b": UOp.const(1)}, {"a": UOp.const(1), "b": x}]


def test_bottom_up_and_gates():
  x, y = Variable("x", 0, 7), Variable("y", 0, 7)
  order = []

  def visit(u):
    order.append(u.op)
    if u.op is Ops.MUL: raise BottomUpGate
  rewritten((x * 2) + y, (UPat(GroupOp.All, name="u"), visit), bottom_up=True)
  assert order == [Ops.ADD, Ops.MUL, Ops.VARIABLE]


def test_errors_of_python_rules():
  x = Variable("x", 0, 7)

  def bad(a): raise KeyError("mine")
  with pytest.raises(KeyError, match="mine"): rewritten(x + 1, (UPat.var("a") + 1, bad))
  with pytest.raises(TypeError, match="rule bad-0 returned a int|rule-0 returned a int"): rewritten(x + 1, (UPat.var("a") + 1, lambda a: 5))
  with pytest.raises(RuntimeError, match="pass 'python' does not end after"): rewritten(x * 2, (UPat.var("a") * UPat.cvar("c"), lambda a, c: a * (c + 1)))
  deep = UPat.var("a")
  for _ in range(13): deep = UPat(Ops.NEG, src=(deep,))
  with pytest.raises(ValueError, match="more than 12 nodes"): PatternMatcher([(deep, lambda a: a)])
  with pytest.raises(ValueError, match="all sources has no names"): PatternMatcher([(UPat(Ops.ADD, src=UPat.var("a")), lambda a: a)])
  with pytest.raises(NotImplementedError, match="bpm"): graph_rewrite(x, symbolic, bpm=symbolic)
  with pytest.raises(KeyError, match="there is no table nothing"): _whit.core_rules("nothing")


def test_the_steps_from_a_tensor_to_a_kernel():
  a, b = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize(), Tensor([[1.0, 0.0], [0.0, 2.0]]).realize()
  schedule = create_schedule(a @ b)
  assert len(schedule) == 1 and schedule.stats["n_kernels"] == 1 and schedule.linear.op is Ops.LINEAR and "r_2_2_2" in repr(schedule)
  sink, device, args = schedule.kernels[0]
  assert sink.find_illegal("kernel") == "" and len(args) == 3 and device == Device.DEFAULT
  best = codegen.optimize(sink)
  assert {u.arg[1] for u in sink.toposort() if u.op is Ops.RANGE} == {AxisType.WEAK, AxisType.REDUCE}
  assert AxisType.WEAK not in {u.arg[1] for u in best.toposort() if u.op is Ops.RANGE}
  program = codegen.lower(sink, "c")
  # It is named by its loops after optimising: the short rows of the result are one axis.
  assert [s.op for s in program.src] == [Ops.SINK, Ops.LINEAR] and program.arg[0] == "r_2_4" and "void r_2_4(" in codegen.render(program, "c")
  out = Buffer("CPU", 4, dtypes.float32)
  kernel = codegen.compile(sink, "CPU")
  ins = [_whit.buffer_of((x).uop) for x in (a, b)]
  slots: list = [None] * 3
  slots[0], slots[1:] = out, ins
  kernel(slots)
  assert out.copyout(memoryview(bytearray(16))).cast("f").tolist() == [1, 4, 3, 8] and kernel.name == "r_2_2_2" and kernel.n_ops > 0
  with pytest.raises(ValueError, match=r"2 buffers given, it has 3"): kernel(slots[:2])
  with pytest.raises(ValueError, match="buffer 0 has 4 bytes on CPU, it needs 16"): kernel([Buffer("CPU", 1, dtypes.float32)] + ins)
  with pytest.raises(RuntimeError, match="not in memory of its own; realize it first"): kernel([a + b] + ins)


def test_a_kernel_written_by_hand():
  out, x = UOp.placeholder((8,), dtypes.float32, 0), UOp.placeholder((8,), dtypes.float32, 1)
  i, n = UOp.range(8, 0), Variable("n", 0, 7)
  kernel = codegen.compile(out.index(i).store(x.index((i + n) % 8).load() * 2).end(i).sink(arg=KernelInfo("rolled")))
  a, b = Tensor.arange(8).cast("float32").contiguous().clone().realize(), Tensor.empty(8).realize()
  kernel([b, a], {"n": 3})
  assert b.tolist() == [6, 8, 10, 12, 14, 0, 2, 4] and kernel.variables == ["n"]
  with pytest.raises(KeyError, match="no value for the variable n"): kernel([b, a])
  with pytest.raises(ValueError, match="expected a SINK"): codegen.compile(out)


def test_buffers():
  b = Buffer("CPU", 4, dtypes.int32, initial_value=bytes(range(16)))
  assert (b.size, b.nbytes, b.dtype, b.device, b.is_allocated()) == (4, 16, dtypes.int32, "CPU", True)
  v = b.view(1, dtypes.int32, 4)
  assert bytes(v.copyout(bytearray(4))) == bytes([4, 5, 6, 7]) and v.offset == 4
  v.copyin(bytes(4))
  assert bytes(b.copyout(bytearray(16)))[4:8] == bytes(4)
  with pytest.raises(ValueError): b.copyin(bytes(3))
  with pytest.raises(IndexError): b.view(9, dtypes.int32, 0)
  with pytest.raises(ValueError, match="-1 elements"): Buffer("CPU", -1, dtypes.int32)


@pytest.mark.parametrize("op,want", [(Ops.FLOORDIV, [0] + [1] * 7), (Ops.CDIV, [0] + [1] * 7), (Ops.FLOORMOD, [0] * 8), (Ops.CMOD, [0] * 8)])
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint32, dtypes.int64])
def test_a_quotient_of_lanes_some_of_which_are_zero(op, want, dtype):
  """A find of the compiler fuzzer: LLVM took the arm of a select for all lanes."""
  lanes, kept = Tensor.arange(8, dtype=dtype), Tensor([True] * 8).realize()
  by = Tensor.full((8,), 40, dtype=dtype)
  x = kept.where(lanes, Tensor(UOp(Ops.SHL, dtype, (lanes.uop, by.uop)))) if dtype != dtypes.int64 else kept.where(lanes, lanes * 0)
  assert Tensor(UOp(op, dtype, (x.uop, x.uop))).tolist() == want
