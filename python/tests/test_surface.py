"""The whole surface of Tensor: each name is there, takes the parameters that programs give, and computes what it should."""
import ast
import hashlib
import pathlib
import re

import numpy as np
import pytest

import whit
from whit import Context, Tensor, TinyJit, UOp, dtypes, function
from whit.uop import Ops
from whit.uop.ops import KernelInfo

ROWS = [r for r in (pathlib.Path(__file__).parent / "tensor_surface.txt").read_text().splitlines() if not r.startswith("#")]
EXCEPTIONS = {
  "__del__": "the memory of a tensor goes with its C++ handle; there is nothing to do for Python",
  "_next_counter": "the counters of the random streams belong to C++ and move with rand alone",
}
REQUIRES_GRAD = ("kw", "requires_grad", None)


def split(row: str):
  kind, name, sig = re.fullmatch(r"(?:@(\w+) )?(\w+)(?:\((.*)\))?", row).groups()
  return kind or "method", name, sig


def parameters(header: str, defaults=()) -> list:
  """(kind, name, default) of each parameter of `def f(..): pass`; `__d3` stands for defaults[3]."""
  a = ast.parse(header).body[0].args

  def value(n):
    if n is None: return "required"
    if isinstance(n, ast.Name) and n.id.startswith("__d"): return defaults[int(n.id[3:])]
    return eval(ast.unparse(n), {"dtypes": dtypes})
  positional = a.posonlyargs + a.args
  values = [None] * (len(positional) - len(a.defaults)) + a.defaults
  out = [("arg", p.arg, value(v)) for p, v in zip(positional, values)]
  if a.vararg: out.append(("*", a.vararg.arg, "required"))
  out += [("kw", p.arg, value(v)) for p, v in zip(a.kwonlyargs, a.kw_defaults)]
  if a.kwarg: out.append(("**", a.kwarg.arg, "required"))
  return out


def actual_parameters(f) -> list:
  if hasattr(f, "__nb_signature__"):
    (text, _, *defaults), = f.__nb_signature__
    got = parameters(re.sub(r"\\(\d+)", r"__d\1", text) + ": pass", defaults[0] if defaults and defaults[0] else ())
  else:
    import inspect
    kinds = {0: "arg", 1: "arg", 2: "*", 3: "kw", 4: "**"}
    got = [(kinds[int(p.kind)], p.name, "required" if p.default is p.empty else p.default) for p in inspect.signature(f).parameters.values()]
  return [p for p in got if p[1] not in ("self", "cls")]


def test_the_list_is_whole():
  names = [split(r) for r in ROWS]
  assert sum(k not in ("dunder", "helper") for k, _, _ in names) == 248
  assert sum(k == "dunder" for k, _, _ in names) == 55 and sum(k == "helper" for k, _, _ in names) == 38


@pytest.mark.parametrize("row", ROWS)
def test_name_and_parameters(row):
  kind, name, sig = split(row)
  if name in EXCEPTIONS:
    assert not hasattr(Tensor, name), f"{name} is there: take it off the exceptions"
    return
  assert hasattr(Tensor, name), f"Tensor.{name} is missing"
  if sig is None: return
  want, got = parameters(f"def f({sig}): pass"), actual_parameters(getattr(Tensor, name))
  open_ended = any(k == "**" and n == "kwargs" for k, n, _ in want)
  keywords = {p for p in want if p[0] == "kw"}
  assert [p for p in got if p[0] in ("arg", "*")] == [p for p in want if p[0] in ("arg", "*")]
  more = {p for p in got if p[0] == "kw"} - keywords
  assert keywords <= set(got) and (open_ended or more <= {REQUIRES_GRAD}), f"{got} instead of {want}"


def test_every_name_is_executed():
  """By its example in the documentation (test_docs.py runs them all), or here."""
  here = pathlib.Path(__file__).read_text()
  for row in ROWS:
    kind, name, _ = split(row)
    if kind in ("dunder", "helper"):
      shown = name in EXCEPTIONS or name in here
    else:
      doc = getattr(Tensor, name).__doc__ or ""
      shown = ">>>" in doc and re.search(rf"\b{name}\b", doc)
    assert shown, f"no test executes Tensor.{name}"


# Each operator: the value of an expression over a, b (floats) and i, j (ints), beside NumPy's.
OPERATORS = {
  "__neg__": "-a", "__invert__": "~i", "__add__": "a + b", "__sub__": "a - b", "__mul__": "a * b", "__truediv__": "a / b", "__floordiv__": "i // j",
  "__mod__": "i % j", "__and__": "i & j", "__or__": "i | j", "__xor__": "i ^ j", "__radd__": "2.0 + a", "__rsub__": "2.0 - a", "__rmul__": "2.0 * a",
  "__rtruediv__": "2.0 / a", "__rfloordiv__": "7 // j", "__rand__": "6 & i", "__ror__": "6 | i", "__rxor__": "6 ^ i", "__rmod__": "7 % j",
  "__lt__": "a < b", "__gt__": "a > b", "__ge__": "a >= b", "__le__": "a <= b", "__ne__": "a != b", "__eq__": "a == b", "__lshift__": "j << 2",
  "__rshift__": "j >> 1", "__rlshift__": "3 << j", "__rrshift__": "4096 >> j", "__pow__": "a ** 2", "__rpow__": "2.0 ** a", "__getitem__": "a[1:, ::2]",
  "__matmul__": "a @ b.T", "__rmatmul__": "[[1.0, 2.0]] @ a",
}
STATEMENTS = {
  "__iadd__": "a += b", "__isub__": "a -= b", "__imul__": "a *= b", "__itruediv__": "a /= b", "__ifloordiv__": "i //= j", "__ipow__": "a **= 2",
  "__iand__": "i &= j", "__ior__": "i |= j", "__ixor__": "i ^= j", "__ilshift__": "i <<= 2", "__irshift__": "i >>= 1", "__imatmul__": "s @= s",
  "__setitem__": "a[0] = 7.0",
}


def operands() -> dict:
  return {"a": np.array([[1.0, -2.0, 3.5], [0.5, 4.0, -1.5]], np.float32), "b": np.array([[2.0, -2.0, 1.0], [3.0, -4.0, 0.25]], np.float32),
          "i": np.array([[5, -7, 12], [3, 100, -9]], np.int32), "j": np.array([[3, 2, 5], [7, 3, 4]], np.int32),
          "s": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)}


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name):
  arrays = operands()
  got = eval(OPERATORS[name], {k: Tensor(v) for k, v in arrays.items()})
  np.testing.assert_allclose(got.numpy(), eval(OPERATORS[name], arrays), rtol=1e-6)


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement(name):
  arrays = operands()
  tensors = {k: Tensor(v) for k, v in arrays.items()}
  ids = {k: id(v) for k, v in tensors.items()}
  target = STATEMENTS[name][0]
  exec(STATEMENTS[name], {}, arrays)
  exec(STATEMENTS[name], {}, tensors)
  assert id(tensors[target]) == ids[target]
  np.testing.assert_allclose(tensors[target].numpy(), arrays[target], rtol=1e-6)


def test_object_protocol():
  t = Tensor([[1.0, 2.0]])  # __init__
  assert repr(t).startswith("<Tensor <UOp ") and len(t) == 1 and hash(t) == hash(t) and len({t, Tensor([1.0])}) == 2  # __repr__ __len__ __hash__
  with pytest.raises(TypeError): bool(t)  # __bool__
  with pytest.raises(TypeError): del t[0]  # __delitem__
  with pytest.raises(TypeError): len(Tensor(1.0))


def test_nodes():
  t = Tensor([1.0, 2.0])
  assert t._uop is t.uop and Tensor._wrap_uop(t.uop).tolist() == [1.0, 2.0]
  assert t._apply_uop(lambda x, y: x.alu(Ops.ADD, y), Tensor([3.0, 4.0])).tolist() == [4.0, 6.0]
  assert bytes(t._data()) == np.array([1, 2], np.float32).tobytes()
  for x, want in ((t, [1, 2]), (t + 1, [2, 3])):
    content = bytearray(8)
    x._buffer().copyout(content)
    assert content == np.array(want, np.float32).tobytes()
  x = Tensor([[1, 2, 3], [4, 5, 6]])
  assert x._mop(Ops.PERMUTE, (1, 0)).shape == (3, 2) and x._mop(Ops.FLIP, (False, True)).tolist() == [[3, 2, 1], [6, 5, 4]]
  assert x._rop(Ops.ADD, (0,)).tolist() == [5, 7, 9] and x._reduce(Ops.MAX, 1, True).tolist() == [[3], [6]]
  assert x._binop(Ops.ADD, 1, False).tolist() == [[2, 3, 4], [5, 6, 7]]
  a, b = x._broadcasted(2.5)
  assert a.shape == b.shape == (2, 3) and a.dtype is b.dtype
  assert t._inverse().tolist() == [-1.0, -2.0] and Tensor([True])._inverse().tolist() == [False]
  with pytest.raises(AssertionError): x._multi_like(lambda shape, device: x)


def test_index_helpers():
  x = Tensor(np.arange(12, dtype=np.int32).reshape(3, 4))
  assert x._resolve_dim(-1) == 1 and x._resolve_dim(2, extra=True) == 2
  assert x._normalize_indices([..., 1]) == [slice(None), 1]
  ops = [x._parse_view_index(slice(None, None, -2), 3), x._parse_view_index(slice(1, 4), 4)]
  assert x._apply_view_ops(ops).tolist() == x[::-2, 1:4].tolist()
  assert x._getitem((slice(None), 2)).tolist() == [2, 6, 10] and x._getitem(0, 9).tolist()[0] == [9] * 4
  assert x[0]._broadcast_to((2, 4)).shape == (2, 4)
  assert Tensor._tri(2, 3).tolist() == [[True, True, True], [False, True, True]]
  assert Tensor([[0], [2]])._one_hot_along_dim(3).tolist() == [[True, False, False], [False, False, True]]
  base, index = Tensor([[0, 0, 0]]), Tensor([[2, 0]])
  src, mask = base._pre_scatter(1, index, Tensor([[7, 8]]))
  assert base._masked_merge(src, mask, (-1,)).tolist() == base.scatter(1, index, Tensor([[7, 8]])).tolist() == [[8, 0, 7]]


def test_shape_and_number_helpers():
  x = Tensor(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4))
  assert x._pool((2, 2), 2).sum((-1, -2)).tolist() == (x.avg_pool2d(2) * 4).tolist()
  assert x._pool((2,), 1, 2).shape == (1, 1, 4, 2, 2)
  assert x._pad_constant((None, None, (1, 0), (0, -1)), 5).shape == (1, 1, 5, 3)
  assert x._pad_circular((None, None, (1, 0), (0, 0)))[0, 0, 0].tolist() == [12, 13, 14, 15]
  assert x._pad_reflect_replicate((None, None, (0, 0), (1, 1)), "reflect")[0, 0, 0].tolist() == [1, 0, 1, 2, 3, 2]
  m, e, s = x._softmax(-1)
  np.testing.assert_allclose((e / s).numpy(), x.softmax(-1).numpy(), rtol=1e-6)
  assert x.flatten()._cumalu(0, Ops.ADD).tolist() == x.flatten()._split_cumalu(0, Ops.ADD).tolist() == np.arange(16).cumsum().tolist()
  assert x._apply_ceil_mode([0, 0, 0, 0], (3, 3), 2, 1) == [0, 1, 0, 1]
  assert x[0, 0]._apply_winograd_matrix([[1, 0, 0, 0], [0, 2, 0, 0]], 2).tolist() == [[0, 2], [8, 20]]
  np.testing.assert_allclose(x._conv2d_winograd(Tensor.ones(1, 1, 3, 3), None, 1, 1, None).numpy(), x.conv2d(Tensor.ones(1, 1, 3, 3), padding=1).numpy())
  assert x._do_reduction("sum").item() == 120 and x._do_reduction("none") is x
  key, counter = Tensor([1, 2], dtype=dtypes.uint32), Tensor([0], dtype=dtypes.uint64)
  bits = Tensor._threefry_random_bits(key, Tensor([0, 1], dtype=dtypes.uint32), Tensor([2, 3], dtype=dtypes.uint32))
  assert bits.tolist() == Tensor.random_bits(key, counter, 4).tolist()
  u = Tensor._bits_to_rand(bits, (2, 2), dtypes.float32).numpy()
  np.testing.assert_array_equal(u, Tensor._rand(key, counter, (2, 2), dtypes.float32).numpy())
  assert ((0 <= u) & (u < 1)).all()


def test_hash_1mb():
  data = np.zeros((1, 1 << 20), np.uint8)
  leaf = hashlib.shake_128(bytes(4096)).digest(16)
  assert bytes(Tensor(data)._hash_1mb().flatten().tolist()) == hashlib.shake_128(leaf * 256).digest(16)


@pytest.mark.parametrize("n", [0, 1, 135, 136, 167, 168, 300])
def test_keccak(n):
  data = bytes(i % 251 for i in range(n))
  assert bytes(Tensor(data).keccak().tolist()) == hashlib.sha3_256(data).digest()
  assert bytes(Tensor(data).keccak("sha3_224").tolist()) == hashlib.sha3_224(data).digest()
  assert bytes(Tensor(data).keccak("shake_128").tolist()) == hashlib.shake_128(data).digest(16)
  assert bytes(Tensor(data).keccak((72, 6)).tolist())[:64] == hashlib.sha3_512(data).digest()


def test_call_with_its_own_gradient():
  a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
  body = a.as_param(0) * b.as_param(1)
  ga, gb = a.call(b, fxn=body).sum().gradient(a, b)
  assert ga.tolist() == [3.0, 4.0] and gb.tolist() == [1.0, 2.0]
  ga, gb = a.call(b, fxn=body, grad_fxn=lambda g, call: (g * 10 + call.src[2], None)).sum().gradient(a, b)
  assert ga.tolist() == [13.0, 14.0] and gb.tolist() == [0.0, 0.0]
  with pytest.raises(RuntimeError, match="PARAM 1"): a.call(fxn=body)


def test_function_with_its_own_gradient():
  @function(grad_fxn=lambda g, call: g * 100)
  def f(x): return x * 2
  x = Tensor([1.0, 2.0])
  assert f(x).tolist() == [2.0, 4.0]
  assert f(x).sum().gradient(x)[0].tolist() == [100.0, 100.0]
  f(x).sum().backward()
  assert x.grad.tolist() == [100.0, 100.0]


def matmul_kernel(c, a, b):
  i, j, k = UOp.range(2, 0), UOp.range(2, 1), UOp.range(3, 2, whit.uop.ops.AxisType.REDUCE)
  return c.index(i, j).store((a.index(i, k).load() * b.index(k, j).load()).reduce(k)).end(i, j).sink()


def test_custom_kernel():
  a, b = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), Tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
  c = Tensor.empty(2, 2).custom_kernel(a, b, fxn=matmul_kernel)[0]
  assert c.tolist() == (a @ b).tolist()
  assert [g.tolist() for g in c.square().sum().gradient(a, b)] == [g.tolist() for g in (a @ b).square().sum().gradient(a, b)]

  def every_second(out, x):
    i = UOp.range(2, 0)
    return out.index(i * 2).store(x.index(i).load()).end(i).sink()
  assert Tensor([9.0, 9.0, 9.0, 9.0]).custom_kernel(Tensor([1.0, 2.0]), fxn=every_second)[0].tolist() == [1.0, 9.0, 2.0, 9.0]
  out = Tensor.empty(2, 2).custom_kernel(a, b, fxn=matmul_kernel, grad_fxn=lambda gc, ga, gb, call: (None, call.src[2] * 0 + 5, None))[0]
  assert out.sum().gradient(a)[0].tolist() == [[5.0] * 3] * 2
  with pytest.raises(TypeError, match="SINK"): a.custom_kernel(fxn=lambda x: x)

  def twice(out, x):  # memory is indexed as tinygrad's programs do
    i, j = UOp.range(out.shape[0], 0), UOp.range(out.shape[1], 1)
    return out[i, j].store(x.flatten()[i * out.shape[1] + j] * 2).end(i, j).sink(arg=KernelInfo(name="twice"))
  assert Tensor.empty(2, 3).custom_kernel(a, fxn=twice)[0].tolist() == (a * 2).tolist()
  assert UOp.arange(5)[1:3].shape == (2,) and UOp.arange(5)[1].shape == ()
  with pytest.raises(TypeError, match="SINK"): a.custom_kernel(fxn=lambda x: 3)


def test_data_without_numpy():
  m = Tensor([[1, 2], [3, 4]]).data()
  assert isinstance(m, memoryview) and m.format == "i" and m.shape == (2, 2) and m.tolist() == [[1, 2], [3, 4]]
  assert Tensor(2.5).data().tolist() == 2.5 and Tensor.zeros(0, 3).data().nbytes == 0 and Tensor([True]).data().tolist() == [True]
  with pytest.raises(AssertionError): Tensor([1.0]).cast(dtypes.bfloat16).data()


def test_requires_grad():
  assert Tensor([1.0], requires_grad=True).is_param and not Tensor([1.0], requires_grad=False).is_param
  assert not Tensor.rand(2, requires_grad=False).is_param and not Tensor.zeros(2, requires_grad=False).requires_grad
  assert Tensor.zeros(2).is_param


def test_the_page_beside_cpp_is_up_to_date():
  import subprocess
  import sys
  tool = pathlib.Path(__file__).resolve().parents[2] / "tools/tensor_api.py"
  done = subprocess.run([sys.executable, tool, "--check"], capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr + "\ntools/tensor_api.py rewrites docs/tensor-api.md"


def test_boolean_masks_and_unique():
  x = np.array([[1.0, 0.0, 3.0], [0.0, 5.0, 1.0]], np.float32)
  t = Tensor(x)
  assert t[t > 0].tolist() == x[x > 0].tolist() and t.nonzero().tolist() == np.argwhere(x).tolist()
  assert t[Tensor([True, False])].tolist() == [[1.0, 0.0, 3.0]]
  y = Tensor(x).realize()
  y[y > 2] = Tensor([7.0, 8.0])
  assert y.tolist() == [[1.0, 0.0, 7.0], [0.0, 8.0, 1.0]]
  y[y > 2] = -1
  assert y.tolist() == [[1.0, 0.0, -1.0], [0.0, -1.0, 1.0]]
  for a in (x, np.array([4, 4, 2], np.uint8), np.zeros((0, 2), np.int32), np.array([True, True])):
    values, inverse, counts = Tensor(a).unique(return_inverse=True, return_counts=True)
    v, i, c = np.unique(a, return_inverse=True, return_counts=True)
    assert values.tolist() == v.tolist() and inverse.tolist() == i.reshape(a.shape).tolist() and counts.tolist() == c.tolist()
