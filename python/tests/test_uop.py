"""The graph IR from Python."""
import pickle

import pytest

from whit import Tensor, UOp, Variable, dtypes
from whit.dtype import Invalid
from whit.uop.ops import AxisType, GroupOp, KernelInfo, Ops, exec_alu, parse_text, python_alu, resolve, smax, smin


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
