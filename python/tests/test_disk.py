"""Tensors of a file: read when somebody wants them, by every op; written by assignment alone."""
import os

import numpy as np
import pytest

from whit import Context, Tensor, TinyJit, dtypes
from whit.nn.state import safe_load, safe_save

BYTES = np.random.default_rng(0).integers(0, 256, 4096).astype(np.uint8)
READS = {
  "slice": (lambda t: t[3:77], lambda a: a[3:77]), "step": (lambda t: t[3:77:5], lambda a: a[3:77:5]), "negative step": (lambda t: t[100:3:-3], lambda a: a[100:3:-3]),
  "flip": (lambda t: t.flip(0), lambda a: a[::-1]), "permute": (lambda t: t.reshape(4, 16, 64).permute(2, 0, 1)[1:5], lambda a: a.reshape(4, 16, 64).transpose(2, 0, 1)[1:5]),
  "expand": (lambda t: t[:8].reshape(1, 8).expand(3, 8), lambda a: np.broadcast_to(a[:8], (3, 8))), "pad": (lambda t: t[:9].pad((2, 3)), lambda a: np.pad(a[:9], (2, 3))),
  "shrink": (lambda t: t.reshape(64, 64).shrink(((1, 5), (7, 9))), lambda a: a.reshape(64, 64)[1:5, 7:9]), "cast": (lambda t: t[:9].float(), lambda a: a[:9].astype(np.float32)),
  "bitcast": (lambda t: t.bitcast("int32"), lambda a: a.view(np.int32)), "bitcast off": (lambda t: t[3:403].bitcast("int16")[::3], lambda a: np.frombuffer(a[3:403].tobytes(), np.int16)[::3]),
  "bitcast back": (lambda t: t.bitcast("int64")[1:3].bitcast("uint8"), lambda a: a[8:24]), "to": (lambda t: t[5:9].to("CPU:1"), lambda a: a[5:9]),
  "shard": (lambda t: t.reshape(64, 64)[2:10].shard(("CPU:0", "CPU:1"), axis=1), lambda a: a.reshape(64, 64)[2:10]),
  "mixed": (lambda t: Tensor(BYTES[:9]) + t[:9], lambda a: a[:9] + a[:9]), "mixed, file first": (lambda t: t[:9] + Tensor(BYTES[:9], device="CPU:1"), lambda a: a[:9] + a[:9]),
  "index": (lambda t: t[7], lambda a: a[7]), "index tensor": (lambda t: t[Tensor([3, 1, 7])], lambda a: a[[3, 1, 7]]), "list": (lambda t: t[[3, 1]], lambda a: a[[3, 1]]),
  "cat": (lambda t: t[:3].cat(t[5:8]), lambda a: np.concatenate([a[:3], a[5:8]])), "stack": (lambda t: t[:3].stack(t[5:8]), lambda a: np.stack([a[:3], a[5:8]])),
  "sort": (lambda t: t[3:9].sort()[0], lambda a: np.sort(a[3:9])), "sum": (lambda t: t.sum(), lambda a: a.sum()), "realize": (lambda t: t[3:9].realize(), lambda a: a[3:9]),
  "clone": (lambda t: t[3:9].clone(), lambda a: a[3:9]), "zeros_like": (lambda t: t[:3].zeros_like() + t[:3].ones_like(), lambda a: np.ones(3, np.uint8)),
  "matmul": (lambda t: t[:9].reshape(3, 3).float() @ t[:9].reshape(3, 3).float(), lambda a: a[:9].reshape(3, 3).astype(np.float32) @ a[:9].reshape(3, 3).astype(np.float32)),
  "hash": (lambda t: t.hash(), lambda a: Tensor(a).hash().numpy()),
}
WRITES = {
  "all": (lambda t: t.assign(Tensor(BYTES[::-1].copy())), lambda a: a.__setitem__(slice(None), BYTES[::-1])), "slice": (lambda t: t[3:6].assign(Tensor([1, 2, 3], dtype="uint8")), lambda a: a.__setitem__(slice(3, 6), [1, 2, 3])),
  "scalar": (lambda t: t.__setitem__(slice(3, 6), 7), lambda a: a.__setitem__(slice(3, 6), 7)), "step": (lambda t: t.__setitem__(slice(3, 60, 3), 7), lambda a: a.__setitem__(slice(3, 60, 3), 7)),
  "flip": (lambda t: t[::-1].assign(Tensor(BYTES)), lambda a: a.__setitem__(slice(None), BYTES[::-1])), "index tensor": (lambda t: t.__setitem__(Tensor([1, 5]), 7), lambda a: a.__setitem__([1, 5], 7)),
  "columns": (lambda t: t.reshape(64, 64)[2:4, 3:5].assign(9), lambda a: a.reshape(64, 64).__setitem__((slice(2, 4), slice(3, 5)), 9)), "+=": (lambda t: t.__iadd__(1), lambda a: a.__iadd__(1)),
  "of itself": (lambda t: t[:8].assign(t[8:16] + t[:8]), lambda a: a.__setitem__(slice(0, 8), a[8:16] + a[:8])),
}


@pytest.fixture
def file(tmp_path):
  path = tmp_path / "data, with a comma"
  path.write_bytes(BYTES.tobytes())
  return path


@pytest.mark.parametrize("name", READS)
def test_ops_read_a_file(file, name):
  got, want = (f(x) for f, x in zip(READS[name], (Tensor(file), BYTES)))
  np.testing.assert_array_equal(got.numpy(), want)
  assert file.read_bytes() == BYTES.tobytes()


@pytest.mark.parametrize("name", WRITES)
def test_assignment_writes_a_file_at_once(file, name):
  t = Tensor(file)
  before, want = t[:16] + 0, BYTES.copy()
  WRITES[name][0](t)
  WRITES[name][1](want)
  assert file.read_bytes() == want.tobytes()
  np.testing.assert_array_equal(t.numpy(), want)
  np.testing.assert_array_equal(before.numpy(), BYTES[:16])  # a value keeps what it was computed from


def test_a_new_file(tmp_path):
  path = tmp_path / "new"
  t = Tensor.empty(4, dtype="int32", device=f"disk:{path}")
  with pytest.raises(FileNotFoundError): t.numpy()
  t = Tensor.empty(4, dtype="int32", device=f"disk:{path}").assign(Tensor([1, 2, 3, 4]))
  assert path.read_bytes() == np.arange(1, 5, dtype=np.int32).tobytes() and t.tolist() == [1, 2, 3, 4]
  assert Tensor([5.0, 6.0]).to(f"disk:{path}2").device == f"DISK:{path}2" and Tensor(tmp_path / "new2", dtype="float32").tolist() == [5.0, 6.0]


def test_nothing_else_writes_a_file(file):
  t = Tensor(file, dtype="float32")[:8]
  with Context(TRAINING=1): t.dropout(0.5).realize(), t.rand_like().realize(), t.zeros_like().realize(), t.full_like(3).realize()
  (t * t).sum().backward()
  assert len(t.grad.realize().tolist()) == 8
  for make in (lambda d: Tensor.zeros(3, device=d), lambda d: Tensor([1.0], device=d).realize(), lambda d: Tensor.rand(3, device=d).realize()):
    with pytest.raises(RuntimeError, match="no place for new values"): make(t.device)
  with pytest.raises(RuntimeError, match="the target was computed from DISK"): t.bitcast("int32").assign(Tensor([1] * 8, dtype="int32"))
  assert file.read_bytes() == BYTES.tobytes()


def test_a_file_inside_of_a_captured_function(file):
  f = TinyJit(lambda x: (x + Tensor(file)[:4]).realize())
  for i in range(4): np.testing.assert_array_equal(f(Tensor(BYTES[i:i + 4]).realize()).numpy(), BYTES[i:i + 4] + BYTES[:4])
  g, t = TinyJit(lambda x: t[:4].assign(x).realize()), Tensor(file)
  g(Tensor(BYTES[:4]))
  with pytest.raises(RuntimeError, match="written at once"): g(Tensor(BYTES[:4]))


@pytest.mark.parametrize("dtype", [d for d in dtypes.all if d not in (dtypes.void, *dtypes.weaks) and d.itemsize <= 8 and "fnuz" not in d.name and "uint1" not in d.name.replace("uint16", "")])
def test_safetensors_are_read_when_wanted(tmp_path, dtype):
  x = Tensor(np.random.default_rng(1).integers(0, 50, (7, 5))).cast(dtype).realize()
  want = x.float().numpy()
  safe_save({"odd": Tensor([1, 2, 3], dtype="uint8"), "x": x, "empty": Tensor.zeros(0, 3), "one": Tensor(2.5).cast("float32").clone()}, path := str(tmp_path / "w.safetensors"))
  state = safe_load(path)
  assert state["x"].device == f"DISK:{path}" and state["x"].dtype is dtype and state["empty"].shape == (0, 3) and state["one"].item() == 2.5
  for got, expected in ((state["x"].T[1:], want.T[1:]), (state["x"][1:5:2, ::-1].contiguous(), want[1:5:2, ::-1]), (state["x"][2:].to("CPU:1"), want[2:])):
    np.testing.assert_array_equal(got.float().numpy(), expected)


def test_safetensors_of_files_that_change(tmp_path):
  path = tmp_path / "w.safetensors"
  safe_save({"x": Tensor(BYTES)}, str(path))
  state = safe_load(path)
  safe_save({"x": Tensor(BYTES[::-1].copy())}, str(path))  # another file of this name
  np.testing.assert_array_equal(state["x"][3:9].numpy(), BYTES[3:9])
  np.testing.assert_array_equal(safe_load(path)["x"][3:9].numpy(), BYTES[::-1][3:9])
  safe_save(safe_load(path), str(path))
  state = safe_load(path)
  os.remove(path)
  np.testing.assert_array_equal(state["x"].numpy(), BYTES[::-1])
  safe_save({"x": Tensor(BYTES)}, str(path))
  state = safe_load(path)
  os.truncate(path, 1000)
  np.testing.assert_array_equal(state["x"][:9].numpy(), BYTES[:9])
  with pytest.raises(OSError, match="it ends at 1000"): state["x"].sum().item()
