"""Memory shared with other libraries, copies, pickles, threads, Ctrl-C."""
import copy
import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest

from whit import Context, Tensor, UOp, dtypes

np = pytest.importorskip("numpy")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def test_dlpack_in_shares_memory_and_keeps_it():
  a = np.arange(6, dtype=np.float32).reshape(2, 3)
  t = Tensor.from_dlpack(a)
  assert t.shape == (2, 3) and t.dtype is dtypes.float32 and t.device == "CPU"
  a[0, 0] = 40
  assert t.tolist() == [[40, 1, 2], [3, 4, 5]]
  del a
  gc.collect()
  assert (t * 2).tolist() == [[80, 2, 4], [6, 8, 10]]
  odd = Tensor.from_dlpack(np.arange(9, dtype=np.float32)[1:])  # not aligned to a vector
  assert (odd + 1).tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
  for dt in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"):
    assert Tensor.from_dlpack(np.ones((2, 2), dtype=dt)).dtype is getattr(dtypes, dt)
  assert Tensor.from_dlpack(np.empty((0, 3), dtype=np.int32)).shape == (0, 3)
  with pytest.raises(TypeError, match="a str gives no array"): Tensor.from_dlpack("x")
  with pytest.raises(TypeError, match="have no dtype here"): Tensor.from_dlpack(np.ones(2, dtype=np.complex64))


def test_dlpack_out_shares_memory_and_keeps_it():
  t = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
  a, b = np.from_dlpack(t), np.from_dlpack(t)
  assert a.tolist() == [[1, 2], [3, 4]] and np.shares_memory(a, b)
  t2 = t.T.contiguous()
  c = np.from_dlpack(t2)
  del t, t2, b
  gc.collect()
  assert a.tolist() == [[1, 2], [3, 4]] and c.tolist() == [[1, 3], [2, 4]]
  # what is not in memory yet, is a view, or has a weak dtype is computed first
  assert np.from_dlpack(Tensor([1, 2, 3]) + 1).tolist() == [2, 3, 4]
  assert np.from_dlpack(Tensor([[1, 2], [3, 4]]).realize().T).tolist() == [[1, 3], [2, 4]]
  assert np.from_dlpack(Tensor([[1, 2], [3, 4]]).realize()[:, 1]).tolist() == [2, 4]
  assert np.from_dlpack(Tensor.arange(3)).tolist() == [0, 1, 2] and np.from_dlpack(Tensor(2.5)).item() == 2.5
  assert np.from_dlpack(Tensor.empty(0, 2)).shape == (0, 2)
  with pytest.raises(TypeError, match="fp8e4m3 has no type there"): np.from_dlpack(Tensor([1.0], dtype="fp8e4m3"))


def test_asarray_copies_when_numpy_says_so():
  """As NumPy 2: `asarray` shares memory, copy=True does not, copy=False is an error where a copy is needed."""
  t = Tensor([1.0, 2.0]).realize()
  shared, copied, never = np.asarray(t), np.array(t, copy=True), np.asarray(t, copy=False)
  t[0] = 5
  t.realize()
  assert (shared.tolist(), copied.tolist(), never.tolist()) == ([5, 2], [1, 2], [5, 2])
  with pytest.raises(ValueError, match="copy"): np.asarray(t, dtype=np.float64, copy=False)


def test_buffer_protocol():
  t = Tensor([[1, 2], [3, 4]], dtype=dtypes.int16)
  m = memoryview(t)
  assert (m.shape, m.format, m.itemsize, m[1, 0], m.tolist()) == ((2, 2), "h", 2, 3, [[1, 2], [3, 4]])
  assert bytes(Tensor([1, 2], dtype=dtypes.uint8)) == b"\x01\x02"
  assert np.asarray(Tensor([True, False])).tolist() == [True, False]
  assert np.asarray(Tensor([1.0, 2.0], dtype=dtypes.bfloat16)).tolist() == [1.0, 2.0]  # by __array__
  with pytest.raises((BufferError, TypeError)): memoryview(Tensor([1.0], dtype=dtypes.fp8e5m2))


def test_array_and_numbers_of_numpy():
  t = Tensor([[1.0, 2.0]])
  assert np.array(t).dtype == np.float32 and np.add(t.numpy(), 1).tolist() == [[2, 3]] and np.array(t, dtype=np.int64).tolist() == [[1, 2]]
  assert (t + np.float32(1)).tolist() == [[2, 3]] and Tensor(np.arange(3)).dtype is dtypes.int64


def test_copies_and_pickles():
  t = Tensor([[1.0, 2.0], [3.0, 4.0]])
  for same in (copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t)), pickle.loads(pickle.dumps(t.realize().T)).T):
    assert same.tolist() == [[1, 2], [3, 4]] and same is not t and same.dtype is t.dtype
  other = copy.deepcopy({"a": [t]})["a"][0]
  other += 1
  assert t.tolist() == [[1, 2], [3, 4]] and other.tolist() == [[2, 3], [4, 5]]
  x = UOp.variable("x", 0, 3)
  assert copy.deepcopy(x + 1) is x + 1


def test_threads():
  """Tensors of their own in each thread, shared ones only read: values are right."""
  shared = Tensor.arange(64).cast("float32").contiguous().realize()
  failed: list = []

  def work(k):
    try:
      for i in range(8):
        u = UOp.variable(f"v{i % 3}", 0, 9) * 4 // 2
        assert u.simplify().op.name == "MUL"
        got = (shared * (k + 1) + i).sum().item()
        assert got == (k + 1) * 2016 + 64 * i, got
    except BaseException as e:
      failed.append(e)
  threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
  for th in threads: th.start()
  for th in threads: th.join()
  assert failed == []


LONG = """
import sys
from whit import Tensor
x = Tensor([1.0]).realize()
print("go", flush=True)
try:
  for n in range(10 ** 9): (x + n).contiguous().pad(((0, n % 977 + 1),)).realize()
except KeyboardInterrupt:
  print("interrupted", (x + 1).tolist(), flush=True)
"""
ONE_CALL = LONG.replace("for n in range(10 ** 9): (x + n).contiguous().pad(((0, n % 977 + 1),)).realize()",
                        """ts = [(x + n).contiguous().pad(((0, n + 1),)).contiguous() for n in range(3000)]
  Tensor.realize(*ts)
  print("finished")""").replace("interrupted\"", "interrupted\", any(t.uop.is_realized for t in ts)")


@pytest.mark.parametrize("program", [LONG, ONE_CALL], ids=["loop", "one-call"])
def test_ctrl_c_interrupts(program):
  env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "CCACHE": "0"}
  def default(): signal.signal(signal.SIGINT, signal.SIG_DFL)  # shells start what runs in the background without it
  with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True, preexec_fn=default) as p:
    assert p.stdout is not None and p.stdout.readline() == "go\n"
    time.sleep(1)
    p.send_signal(signal.SIGINT)
    out, _ = p.communicate(timeout=120)
  assert out in ("interrupted [2.0]\n", "interrupted False [2.0]\n") and p.returncode == 0


def test_numbers_and_arrays_of_numpy_in_lists():
  rows = [np.array([1.0, 2.0], dtype=np.float32), np.array([3.0, 4.0], dtype=np.float32)]
  assert (t := Tensor(rows)).shape == (2, 2) and t.dtype is dtypes.float32 and t.tolist() == [[1.0, 2.0], [3.0, 4.0]]
  assert Tensor([np.float32(1.5), 2]).tolist() == [1.5, 2.0] and Tensor([[np.int64(3), 4]], dtype=dtypes.int8).dtype is dtypes.int8
  assert Tensor([np.bool_(True), np.bool_(False)]).dtype is dtypes.bool and Tensor([np.float32(2)], dtype="half").tolist() == [2.0]
  with pytest.raises(ValueError): Tensor([rows[0], rows[0][:1]])


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "//", "%", "**", "<", ">=", "==", "!="])
def test_an_array_on_the_left_gives_a_tensor(op):
  a, b = np.array([3.0, 5.0], dtype=np.float32), np.array([2.0, 5.0], dtype=np.float32)
  for left in (a, a[0], np.float64(3)):
    got = eval(f"left {op} t", {"left": left, "t": Tensor(b)})
    assert isinstance(got, Tensor)
    np.testing.assert_allclose(got.numpy(), eval(f"left {op} b", {"left": left, "b": b}), rtol=1e-6)
  if op == "*":
    w = Tensor(b)
    assert (a * w).sum().gradient(w)[0].tolist() == a.tolist() and isinstance(np.ones((2, 2), dtype=np.float32) @ Tensor.ones(2, 3), Tensor)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int64", "uint8", "bfloat16"])
def test_what_is_no_tensor_is_assigned_in_the_targets_dtype(dtype):
  t = Tensor([0, 1, 2, 3], dtype=dtype).realize()
  t[1:3] = [7, 8]
  assert t.tolist() == [0, 7, 8, 3]
  t[[0, 3]] = np.array([5, 6])
  assert t.tolist() == [5, 7, 8, 6]
  t[0] = 1.5
  whole = not t.is_floating_point()
  assert t.tolist() == [1 if whole else 1.5, 7, 8, 6]
  assert t.assign([4, 3, 2, 1]).tolist() == [4, 3, 2, 1]
  assert t.assign(np.arange(4) + 0.5).tolist() == ([0, 1, 2, 3] if whole else [0.5, 1.5, 2.5, 3.5])
  assert t.assign(2.5).tolist() == [2 if whole else 2.5] * 4 and t.assign(True).tolist() == [1] * 4
  assert t.dtype == getattr(dtypes, dtype)


def test_a_long_number_is_assigned_whole():
  assert Tensor([0], dtype="int64").realize().assign([2**40 + 1]).tolist() == [2**40 + 1]
  assert Tensor([0], dtype="float64").realize().assign([0.1]).tolist() == [0.1]


def test_a_flag_takes_a_dtype():
  with Context(DEFAULT_FLOAT=dtypes.half): assert Tensor([1.0]).dtype is dtypes.half and Tensor.rand(2).dtype is dtypes.half
