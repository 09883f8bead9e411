"""The Python surface: what a user types, from construction to training."""
import copy
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import whit
from whit import Context, Device, GlobalCounters, Tensor, TinyJit, dtypes, function, nn


def test_exports():
  assert set(whit.__all__) <= set(dir(whit))


def test_construction_and_reading():
  assert Tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
  assert Tensor([1]).dtype is dtypes.int32 and Tensor([1.0]).dtype is dtypes.float32 and Tensor([]).shape == (0,)
  assert Tensor(3).dtype is dtypes.weakint and Tensor(2.5).dtype is dtypes.weakfloat and Tensor(True).dtype is dtypes.bool
  assert Tensor(b"abc").tolist() == [97, 98, 99]
  a = np.arange(6, dtype=np.float32).reshape(2, 3)
  t = Tensor(a)
  a[0, 0] = 100  # the tensor is a snapshot
  np.testing.assert_array_equal(t.numpy(), np.arange(6, dtype=np.float32).reshape(2, 3))
  with pytest.raises(ValueError): Tensor([[1], [1, 2]])
  with pytest.raises(RuntimeError): Tensor(object())


def test_broadcast_and_promotion():
  x = Tensor([1, 2, 3]) + Tensor([[1.0], [2.0]])
  assert x.shape == (2, 3) and x.dtype is dtypes.float32
  assert (Tensor([1, 2]) * 2).dtype is dtypes.int32
  assert (2 - Tensor([1.0])).tolist() == [1.0]


def test_matmul_matches_numpy():
  rng = np.random.default_rng(0)
  a, b = rng.standard_normal((33, 17), dtype=np.float32), rng.standard_normal((17, 65), dtype=np.float32)
  np.testing.assert_allclose((Tensor(a) @ Tensor(b)).numpy(), a @ b, rtol=1e-4, atol=1e-5)


def test_gradient():
  x = Tensor([1.0, 2.0, 3.0])
  (x * x).sum().backward()
  assert x.grad.tolist() == [2.0, 4.0, 6.0]
  y = Tensor([2.0])
  (g,) = (y ** 3).sum().gradient(y)
  (h,) = g.sum().gradient(y)
  assert g.tolist() == [12.0] and h.tolist() == [12.0]


def test_program_order():
  x = Tensor([1.0, 2.0]).realize()
  y = x * 10
  x.assign(Tensor([5.0, 6.0]))
  assert y.tolist() == [10.0, 20.0] and x.tolist() == [5.0, 6.0]
  x[0] = 9
  assert x.tolist() == [9.0, 6.0] and y.tolist() == [10.0, 20.0]


def test_function_is_differentiable():
  class Model:
    def __init__(self): self.w = Tensor([3.0])
    @function
    def __call__(self, x): return (x * self.w).sum()
  m, x = Model(), Tensor([2.0])
  m(x).backward()
  assert m.w.grad.tolist() == [2.0]


def test_context():
  from whit.helpers import TRAINING
  assert not TRAINING
  with Context(TRAINING=1): assert TRAINING
  assert not TRAINING
  with pytest.raises(KeyError):
    with Context(NO_SUCH_FLAG=1): pass

  @Context(TRAINING=1)
  def f(): return bool(TRAINING)
  assert f() and not TRAINING


def test_jit_replays_and_refuses():
  calls = []

  @TinyJit
  def f(x, y):
    calls.append(1)
    return (x * y + 1).realize()
  for i in range(5):
    a, b = Tensor([float(i), 2.0]).realize(), Tensor([3.0, float(i)]).realize()
    assert f(a, b).tolist() == [3.0 * i + 1, 2.0 * i + 1]
  assert len(calls) == 2
  from whit.engine.jit import JitError
  with pytest.raises(JitError): f(Tensor([1.0, 2.0, 3.0]).realize(), Tensor([1.0, 2.0, 3.0]).realize())


def test_training_lowers_the_loss():
  Tensor.manual_seed(1)
  l1, l2 = nn.Linear(8, 16), nn.Linear(16, 1)
  opt = nn.optim.Adam(nn.state.get_parameters([l1, l2]), lr=0.01)
  x = Tensor.rand(64, 8).realize()
  y = x.sum(1, keepdim=True).realize()

  @TinyJit
  @Context(TRAINING=1)
  def step():
    opt.zero_grad()
    loss = ((l2(l1(x).relu()) - y) ** 2).mean().backward()
    return loss.realize(*opt.schedule_step())
  losses = [step().item() for _ in range(40)]
  assert losses[-1] < losses[0] * 0.2


def test_safetensors_round_trip(tmp_path):
  fn = str(tmp_path / "x.safetensors")
  d = {"a": Tensor([[1.0, 2.0]]), "b": Tensor([1, 2, 3])}
  nn.state.safe_save(d, fn, {"k": "v"})
  back = nn.state.safe_load(fn)
  assert back["a"].tolist() == [[1.0, 2.0]] and back["b"].tolist() == [1, 2, 3] and back["b"].dtype is dtypes.int32
  assert nn.state.safe_load_metadata(fn)[2]["__metadata__"] == {"k": "v"}
  data = pathlib.Path(fn).read_bytes()
  pathlib.Path(fn).write_bytes(data[:-1])
  with pytest.raises((OSError, ValueError), match="x.safetensors"): nn.state.safe_load(fn)


def test_errors_name_the_operation():
  with pytest.raises(IndexError, match=r"axis 3"): Tensor([[1.0]]).sum(3)
  with pytest.raises(ValueError): Tensor([1, 2, 3]).reshape(2, 2)


def test_dtypes():
  assert repr(dtypes.float32) == "dtypes.float" and pickle.loads(pickle.dumps(dtypes.int8)) is dtypes.int8
  assert dtypes.default_float is dtypes.float32 and dtypes.finfo(dtypes.float16) == (5, 10)
  assert dtypes.int8.min == -128 and dtypes.uint64.max == 2**64 - 1


def test_counters_and_devices():
  GlobalCounters.reset()
  (Tensor([1.0, 2.0]) + 1).realize()
  assert GlobalCounters.kernel_count >= 1
  assert Device.DEFAULT in ("CPU", "REF", "NULL")
  Device[Device.DEFAULT].synchronize()


def test_a_path_is_read_as_bytes(tmp_path):
  file = tmp_path / "data.bin"
  file.write_bytes(bytes(range(8)))
  t = Tensor(file)
  assert t.dtype is dtypes.uint8 and t.shape == (8,) and t.device == f"DISK:{file}"
  assert t.tolist() == list(range(8)) and t.to("CPU").tolist() == list(range(8))
  assert Tensor(file, dtype=dtypes.int32).tolist() == [0x03020100, 0x07060504]
  assert (t.to("CPU")[2:4] + 1).tolist() == [3, 4]
  with pytest.raises(OSError, match="no_such_file"): Tensor(tmp_path / "no_such_file")
  file.write_bytes(b"abc")
  with pytest.raises(RuntimeError, match="3 bytes are no whole number of int32"): Tensor(file, dtype=dtypes.int32)


def test_views_of_a_file_are_read(tmp_path):
  import numpy as np
  data = np.random.RandomState(0).randint(0, 256, 960).astype(np.uint8)
  file = tmp_path / "data.bin"
  file.write_bytes(data.tobytes())
  t = Tensor(file)
  for f in (lambda x: x[10:20], lambda x: x[-5:], lambda x: x[950:2000], lambda x: x[2000:], lambda x: x[5], lambda x: x[5:5],
            lambda x: x[::2], lambda x: x[7:50:3], lambda x: x[20:10:-1], lambda x: x.reshape(30, 32)[3:7, 4:9],
            lambda x: x.reshape(30, 32)[3, 4:9], lambda x: x.reshape(30, 32)[4].reshape(4, 8)[1],
            lambda x: x.reshape(30, 32).T[3:5], lambda x: x.reshape(30, 1, 32)[:, 0][2:4, ::3]):
    assert f(t).to("CPU").tolist() == f(data).tolist()
  assert t[4:12].bitcast(dtypes.int32).to("CPU").tolist() == data[4:12].view(np.int32).tolist()
  assert t[:16].bitcast(dtypes.int32)[::2].to("CPU").tolist() == data[:16].view(np.int32)[::2].tolist()
  assert (t[4:8].to("CPU").cast(dtypes.int32) + 1).sum().item() == int(data[4:8].sum()) + 4
  assert t[3:6].contiguous().to("CPU").tolist() == data[3:6].tolist()
  with pytest.raises(IndexError): t[960]
  with pytest.raises(RuntimeError, match="no multiple of the 4 of float32"): t[:6].bitcast(dtypes.float32)


def test_a_file_that_was_cut_says_so(tmp_path):
  file = tmp_path / "data.bin"
  file.write_bytes(bytes(range(100)))
  t = Tensor(file)
  assert t[90:].to("CPU").tolist() == list(range(90, 100))
  file.write_bytes(bytes(range(50)))
  assert t[40:50].to("CPU").tolist() == list(range(40, 50))  # only these are read
  with pytest.raises(OSError, match="ends at 50, 10 bytes early"): t[40:60].to("CPU").realize()
  late = tmp_path / "late.bin"
  late.write_bytes(bytes(100))
  t = Tensor(late)
  late.write_bytes(bytes(8))
  with pytest.raises(OSError, match="100 bytes are asked for, the file has 8"): t[2:4].to("CPU").realize()


def test_a_jit_reads_the_file_again(tmp_path):
  import whit
  given, own = tmp_path / "given.bin", tmp_path / "own.bin"
  for file in (given, own): file.write_bytes(bytes(range(16)))
  held = Tensor(own)

  @whit.TinyJit
  def f(t): return (t[4:6].to("CPU") + held[8:10].to("CPU")).realize()

  for i in range(5):
    with given.open("r+b") as file: file.write(bytes(range(i, i + 16)))
    with own.open("r+b") as file: file.write(bytes(range(2 * i, 2 * i + 16)))
    assert f(Tensor(given)).tolist() == [3 * i + 12, 3 * i + 14]


def test_a_tensor_moved_to_its_own_device_is_itself():
  t = Tensor([1.0, 2.0])
  assert t.to(t.device) is t and t.to(None) is t and t.to("REF") is not t and t.to("REF").tolist() == [1.0, 2.0]


def test_data_needs_a_format():
  assert Tensor([1.0, 2.0]).data().tolist() == [1.0, 2.0]
  for dtype in (dtypes.bfloat16, dtypes.fp8e4m3):
    with pytest.raises(AssertionError, match="no format for"): Tensor([1.0], dtype=dtype).data()


def test_devices_print_one_table():
  import subprocess, sys
  def lines(*arguments):  # of another process: this one may have registered devices of its own
    out = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout
    return [line.split()[:2] for line in out.splitlines()]
  table = lines("-c", "from whit import _whit; print(_whit.device_table(), end='')")
  assert {"CPU", "DISK"} <= {word for line in table for word in line}
  assert lines("-m", "whit.device") == table


def test_a_buffer_over_the_limit_is_refused():
  with Context(MAX_BUFFER_SIZE=10):
    with pytest.raises(RuntimeError, match=r"100 elements on .*MAX_BUFFER_SIZE allows 10"): Tensor.ones(100).contiguous().realize()
  assert Tensor.ones(100).sum().item() == 100


def test_pickling_and_copying():
  model = nn.Linear(2, 2)
  x = Tensor([[1.0, 2.0], [3.0, 4.0]])
  x.note = x  # a circle through an attribute
  for again in (lambda t: pickle.loads(pickle.dumps(t)), copy.copy, copy.deepcopy):
    y, view, value, const = again(x), again(x[:, ::-1]), again((x * 2).cast("bfloat16")), again(Tensor(3))
    y[0, 0] = 9
    assert x.tolist() == [[1, 2], [3, 4]] and y.tolist() == [[9, 2], [3, 4]] and view.tolist() == [[2, 1], [4, 3]]
    assert value.tolist() == [[2, 4], [6, 8]] and value.dtype is dtypes.bfloat16
    assert const.item() == 3 and const.dtype is dtypes.weakint and const.device is None
    assert again(Tensor.arange(3)).tolist() == [0, 1, 2] and again(Tensor.zeros(0, 3)).shape == (0, 3)
  other = copy.deepcopy(model)
  other.weight.assign(other.weight + 1).realize()
  np.testing.assert_allclose(other.weight.numpy(), model.weight.numpy() + 1)


def test_objects_that_hold_themselves():
  class Model:
    def __init__(self): self.w, self.me, self.tied = Tensor([2.0]), self, [self]
    @function
    def __call__(self, x): return x * self.w

  model = Model()
  model.again = model.w
  assert model(Tensor([3.0])).item() == 6
  assert list(nn.state.get_state_dict(model)) == ["w", "again"]


def test_slices_beyond_every_integer():
  x = Tensor([1, 2, 3])
  assert x[:10**30].tolist() == [1, 2, 3] and x[-10**30:].tolist() == [1, 2, 3] and x[10**30:].tolist() == []
  assert x[::-10**30].tolist() == [3] and x[::10**30].tolist() == [1]


def test_a_thread_that_runs_at_the_end():
  program = """
import threading, time
from whit import Tensor
def run():
  while True: (Tensor.rand(50, 50) @ Tensor.rand(50, 50)).realize()
threading.Thread(target=run, daemon=True).start()
time.sleep(0.3)
"""
  done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
  assert (done.returncode, done.stderr) == (0, "")


def test_a_message_with_bytes_that_are_no_text(tmp_path):
  (tmp_path / "x").write_bytes(b"\x03\0\0\0\0\0\0\0\xff\xfe{")
  with pytest.raises(OSError, match="the header is not JSON"): nn.state.safe_load(str(tmp_path / "x"))


def test_grad_behind_a_realised_value_says_why_there_is_none():
  import warnings
  w, v, data = Tensor([2.0, 3.0]), Tensor([1.0, 1.0]), Tensor([5.0, 7.0])
  h = (w * w).realize()
  (h * v).sum().backward()
  with pytest.warns(UserWarning, match=r"\[grad\] there is none: .* realised"): assert w.grad is None
  with pytest.warns(UserWarning), pytest.raises(AssertionError, match="has no gradient"), Context(TRAINING=1): nn.optim.SGD([w]).step()
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert v.grad.tolist() == [4.0, 9.0] and h.grad.tolist() == [1.0, 1.0]
    w.grad = None
    assert w.grad is None and data.grad is None and Tensor([1.0]).grad is None
    (w * w).detach().realize().mul(v).sum().backward()  # meant
    assert w.grad is None
    h = w * w
    h.numpy()  # reading cuts nothing
    h.sum().backward()
    assert w.grad.tolist() == [4.0, 6.0]
    x = (data / 2).realize()
    (x * w).sum().backward()  # w is reached directly
    assert w.grad.tolist() == [6.5, 9.5]


def test_a_gradient_that_is_asked_for_too_late():
  """What was realised is a leaf: no silent zeros, where a graph led before; zeros, where none did."""
  w, u = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
  with pytest.raises(RuntimeError, match="target 0 of shape \\(2,\\) only through a value that was realised before"): (w * w).sum().realize().gradient(w)
  with pytest.raises(RuntimeError, match="the result was realised before"): (w * w).sum().realize().backward()
  with pytest.warns(UserWarning, match="call backward before realize"): assert w.grad is None
  def inner(): return ((w * 2).realize() * 3).realize()  # whose tensors are gone
  with pytest.raises(RuntimeError, match="target 1 "): (inner() * u).sum().gradient(u, w)
  assert (inner() * u).sum().gradient(u)[0].tolist() == [6.0, 12.0]
  assert ((w * 2).detach().realize() * u).sum().gradient(w)[0].tolist() == [0.0, 0.0]
  assert u.sum().realize().gradient(w)[0].tolist() == [0.0, 0.0]
  x = (w * 2).realize()  # is a leaf of its own
  assert (x * u).sum().gradient(x)[0].tolist() == [3.0, 4.0]
  x.sum().backward()
  assert x.grad.tolist() == [1.0, 1.0]
  loss, g = (w * u).sum(), None
  g, = loss.gradient(w)
  Tensor.realize(loss, g)  # together is fine
  assert (loss.item(), g.tolist()) == (11.0, [3.0, 4.0])


def test_origins_do_not_grow():
  """A state that is realised at each step, and losses that are kept, hold no memory of the steps before."""
  from whit import GlobalCounters
  w, h, losses = Tensor([0.5]).realize(), Tensor([1.0]).realize(), []
  for i in range(200):
    h = (h * w + Tensor([float(i)])).realize()
    losses.append((h - 1).square().sum().realize())
    if i == 20: before = GlobalCounters.mem_used
  assert GlobalCounters.mem_used - before <= 180 * 64


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_floats_in_the_upper_half_of_uint64(dtype):
  want = [2**63, 2**63 + 2**60, 2**64 - 2**56, 2**62, 7, 2**64 - 1, 2**64 - 1, 0, 0]
  x = Tensor([float(v) for v in want[:5]] + [1e20, float("inf"), float("nan"), 0.5], dtype=dtype)
  assert x.cast("uint64").tolist() == want
  assert Tensor(2.0**63).cast("uint64").item() == 2**63 and Tensor([-1.5], dtype=dtype).cast("uint64").tolist() == [2**64 - 1]


@pytest.mark.parametrize("default", ["float16", "bfloat16", "float32", "float64"])
def test_statistics_of_integers_are_float32(default):
  with Context(DEFAULT_FLOAT=default):
    for t in (Tensor([[1, 2, 4]]), Tensor([[True, False, True]])):
      assert {x.dtype for x in (t.mean(), t.var(), t.std(), t.layernorm(), t.normalize(), *t.var_mean())} == {dtypes.float32}
      assert {x.dtype for x in (t.half().mean(), t.half().var(), t.half().layernorm(), t.half().normalize())} == {dtypes.half}


@pytest.mark.parametrize("device", ("CPU", "REF"))
def test_a_sum_of_negative_zeros_is_zero_everywhere(device):
  x = Tensor([[-0.0] * 9] * 4, dtype="float32").to(device).realize()
  assert (1 / x.sum(1).realize().to("CPU")).tolist() == [float("inf")] * 4  # as PyTorch has it
