"""ONNX models, written here field by field: what they compute, and what is said of files that are broken or ask for what is not there."""
import struct

import numpy as np
import pytest

from whit import Tensor, TinyJit
from whit.nn.onnx import OnnxRunner, onnx_ops

FLOAT, INT64 = 1, 7
CODES = {np.dtype(np.float32): FLOAT, np.dtype(np.int64): INT64, np.dtype(np.uint8): 2, np.dtype(np.bool_): 9}


def varint(n):
  n &= (1 << 64) - 1
  out = b""
  while n > 127: out, n = out + bytes([n & 127 | 128]), n >> 7
  return out + bytes([n])

def field(number, value):
  if isinstance(value, int): return varint(number << 3) + varint(value)
  if isinstance(value, float): return varint(number << 3 | 5) + struct.pack("<f", value)
  value = value.encode() if isinstance(value, str) else value
  return varint(number << 3 | 2) + varint(len(value)) + value

def tensor(name, x, location=None):
  x = np.asarray(x)
  head = b"".join(field(1, d) for d in x.shape) + field(2, CODES[x.dtype]) + field(8, name)
  if location is None: return head + field(9, x.tobytes())
  return head + b"".join(field(13, field(1, k) + field(2, v)) for k, v in location.items()) + field(14, 1)

def attribute(name, value):
  if isinstance(value, (list, tuple)):
    return field(1, name) + b"".join(field(8, v) for v in value) + field(20, 7)
  if isinstance(value, np.ndarray): return field(1, name) + field(5, tensor("", value)) + field(20, 4)
  kind, number = {int: (2, 3), float: (1, 2), str: (3, 4), bytes: (5, 6)}[type(value)]
  return field(1, name) + field(number, value) + field(20, kind)

def node(op, inputs, outputs, **attributes):
  return b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(4, op) + b"".join(
    field(5, attribute(k, v)) for k, v in attributes.items())

def value(name, shape, code=FLOAT):
  dims = b"".join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in shape)
  return field(1, name) + field(2, field(1, field(1, code) + field(2, dims)))

def graph(nodes, inputs, outputs, weights=()):
  return b"".join([*(field(1, n) for n in nodes), *(field(5, w) for w in weights), *(field(11, i) for i in inputs), *(field(12, o) for o in outputs)])

def model(*args, opset=17): return field(1, 8) + field(7, graph(*args)) + field(8, field(2, opset))


def network():
  r = np.random.default_rng(1)
  f = lambda *s: r.standard_normal(s).astype(np.float32)  # noqa: E731
  weights = {"w": f(4, 3, 3, 3), "scale": f(4), "b": f(4), "mean": f(4), "var": f(4) ** 2 + 1, "fc": f(64, 5), "bias": f(5)}
  nodes = [node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], strides=[1, 1], auto_pad="SAME_UPPER"),
           node("BatchNormalization", ["a", "scale", "b", "mean", "var"], ["n"]), node("Relu", ["n"], ["r"]),
           node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]), node("Flatten", ["p"], ["f"]),
           node("Gemm", ["f", "fc", "bias"], ["g"], alpha=0.5), node("Softmax", ["g"], ["y"])]
  return nodes, weights


def test_a_network():
  from whit import nn
  nodes, w = network()
  run = OnnxRunner(model(nodes, [value("x", ["batch", 3, 8, 8])], [value("y", ["batch", 5])], [tensor(k, v) for k, v in w.items()]))
  assert run.graph_inputs["x"].shape == ("batch", 3, 8, 8) and list(run.graph_outputs) == ["y"]
  x = np.random.default_rng(2).standard_normal((2, 3, 8, 8)).astype(np.float32)
  t = {k: Tensor(v) for k, v in w.items()}
  h = Tensor(x).conv2d(t["w"], padding=1).batchnorm(t["scale"], t["b"], t["mean"], (t["var"] + 1e-5).rsqrt()).relu().max_pool2d()
  want = ((h.flatten(1) @ t["fc"]) * 0.5 + t["bias"]).softmax()
  np.testing.assert_allclose(run({"x": x})["y"].numpy(), want.numpy(), rtol=1e-5)
  jitted = TinyJit(lambda x: run({"x": x})["y"].realize())
  for _ in range(3): np.testing.assert_allclose(jitted(Tensor(x).realize()).numpy(), want.numpy(), rtol=1e-5)
  w0 = run.graph_values["w"]
  assert run({"x": Tensor(x)})["y"][:, 0].sum().gradient(w0)[0].shape == w0.shape
  assert nn.state.get_state_dict(run)["graph_values.fc"].shape == (64, 5)


def one(op, inputs, n_out=1, opset=17, **attributes):
  """An op alone, its inputs as weights: what it gives."""
  names = [f"i{k}" for k in range(len(inputs))]
  outs = [f"o{k}" for k in range(n_out)]
  run = OnnxRunner(model([node(op, names, outs, **attributes)], [], [value(o, []) for o in outs], [tensor(n, x) for n, x in zip(names, inputs)], opset=opset))
  got = run({})
  return [got[o].numpy() for o in outs]


A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("op, inputs, attributes, want", [
  ("Slice", [A, np.array([-1, 3]), np.array([-9, 0]), np.array([1, 2]), np.array([-1, -2])], {}, A[:, ::-1, 3:0:-2]),
  ("Reshape", [A, np.array([0, -1])], {}, A.reshape(2, 12)),
  ("Transpose", [A], {"perm": [2, 0, 1]}, A.transpose(2, 0, 1)),
  ("Concat", [A, A], {"axis": -1}, np.concatenate([A, A], -1)),
  ("Gather", [A, np.array([2, -1])], {"axis": 1}, A[:, [2, -1]]),
  ("GatherND", [A, np.array([[0, 1], [1, -1]])], {}, A[[0, 1], [1, -1]]),
  ("Pad", [A[0], np.array([0, 1, 0, 2])], {"mode": "reflect"}, np.pad(A[0], ((0, 0), (1, 2)), "reflect")),
  ("ReduceMean", [A], {"axes": [1], "keepdims": 0}, A.mean(1)),
  ("ReduceSum", [A, np.array([0, 2])], {}, A.sum((0, 2), keepdims=True)),
  ("Mod", [np.array([-7, 7]), np.array([3, -3])], {"fmod": 1}, np.fmod([-7, 7], [3, -3])),
  ("Div", [np.array([-7, 7]), np.array([2, 2])], {}, np.array([-3, 3])),
  ("OneHot", [np.array([1, -1]), np.array(3), np.array([0, 5])], {}, np.array([[0, 5, 0], [0, 0, 5]])),
  ("Expand", [A[:, :1], np.array([3, 1])], {}, np.broadcast_to(A[:, :1], (2, 3, 4))),
  ("CumSum", [A, np.array(1)], {"exclusive": 1, "reverse": 1}, np.stack([A[:, 1] + A[:, 2], A[:, 2], 0 * A[:, 2]], 1)),
  ("Where", [A > 4, A, -A], {}, np.where(A > 4, A, -A)),
  ("QuantizeLinear", [A, np.float32(2), np.uint8(3)], {}, np.clip(np.rint(A / 2) + 3, 0, 255).astype(np.uint8)),
  ("Shape", [A], {"start": 1}, np.array([3, 4])),
  ("Resize", [A[None], np.zeros(0, np.float32), np.array([1, 1, 2, 1], np.float32)], {"mode": "nearest"}, A[None].repeat(2, 2)),
])
def test_ops(op, inputs, attributes, want):
  got, = one(op, inputs, **attributes)
  assert got.dtype == want.dtype and got.shape == want.shape
  np.testing.assert_allclose(got, want, rtol=1e-6)


def test_several_outputs_and_branches():
  a, b = one("Split", [A], 2, axis=2, opset=13)
  np.testing.assert_array_equal(np.concatenate([a, b], 2), A)
  values, at = one("TopK", [A, np.array([2])], 2, axis=1)
  np.testing.assert_array_equal(values, A[:, :0:-1])
  assert at.dtype == np.int64
  branch = lambda op: graph([node(op, ["i1"], ["z"])], [], [value("z", [])])  # noqa: E731
  for flag, want in ((True, -A), (False, np.exp(A))):
    run = OnnxRunner(model([node("If", ["i0"], ["y"], then_branch=branch("Neg"), else_branch=branch("Exp"))], [], [value("y", [])],
                           [tensor("i0", np.array(flag)), tensor("i1", A)]))
    np.testing.assert_allclose(run({})["y"].numpy(), want, rtol=1e-6)


def test_data_beside_the_model(tmp_path):
  (tmp_path / "data.bin").write_bytes(b"skip" + A.tobytes())
  def write(where): (tmp_path / "m.onnx").write_bytes(model([node("Neg", ["w"], ["y"])], [], [value("y", A.shape)], [tensor("w", A, where)]))
  write({"location": "data.bin", "offset": "4", "length": str(A.nbytes)})
  np.testing.assert_array_equal(OnnxRunner(tmp_path / "m.onnx")({})["y"].numpy(), -A)
  with pytest.raises(ValueError, match="is in the file data.bin: give OnnxRunner the model's path"): OnnxRunner((tmp_path / "m.onnx").read_bytes())
  write({"location": "../data.bin"})
  with pytest.raises(ValueError, match="outside of the model's folder: ../data.bin"): OnnxRunner(str(tmp_path / "m.onnx"))


def test_bad_input():
  nodes, w = network()
  whole = model(nodes, [value("x", ["batch", 3, 8, 8]), value("z", ["batch"])], [value("y", ["batch", 5])], [tensor(k, v) for k, v in w.items()])
  for n in (0, 1, 3, 10, 200, len(whole) - 3):
    with pytest.raises(ValueError, match=r"\[onnx\]"): OnnxRunner(whole[:n])
  run, x = OnnxRunner(whole), np.zeros((2, 3, 8, 8), np.float32)
  with pytest.raises(RuntimeError, match=r"input 'z' \('batch',\) of .*float.* is missing"): run({"x": x})
  with pytest.raises(RuntimeError, match=r"no input 'q'; the model takes x, z"): run({"x": x, "q": x})
  with pytest.raises(RuntimeError, match=r"input 'z' has shape \(3,\), expected \('batch',\) with batch = 2"): run({"x": x, "z": np.zeros(3, np.float32)})
  with pytest.raises(RuntimeError, match=r"input 'x' has shape \(2, 8\), expected"): run({"x": x[:, 0, 0], "z": np.zeros(2, np.float32)})
  with pytest.raises(RuntimeError, match="input 'x' is .*int.*, expected .*float"): run({"x": Tensor([1, 2]), "z": np.zeros(2, np.float32)})
  with pytest.raises(NotImplementedError, match="ops that whit does not have: Loop, NoSuchOp"):
    OnnxRunner(model([node("NoSuchOp", ["x"], ["y"]), node("Loop", ["y"], ["z"])], [value("x", [1])], [value("z", [1])]))
  no_node = OnnxRunner(model([], [value("x", [2])], [value("y", [2])]))
  with pytest.raises(ValueError, match="output y is given by no node"): no_node({"x": np.ones(2, np.float32)})
  with pytest.raises(RuntimeError, match=r"MatMul of i0 \(2, 3\), i1 \(2, 3\)"): one("MatMul", [A[0, :2, :3], A[0, :2, :3]])
  assert "Conv" in onnx_ops
