"""Files of weights: what torch_load, the archives and safetensors read, and what they refuse."""
import gzip
import io
import pickle
import random
import struct
import tarfile
import zipfile

import pytest
from test_gguf import gguf, tensor as gguf_tensor
from torch_files import FILES

from whit import Context, GlobalCounters, Tensor, dtypes, nn
from whit.nn.state import Dummy, TensorIO, get_state_dict, gguf_load, safe_load, safe_load_metadata, safe_save, tar_extract, torch_load, zip_extract


def load(data: bytes): return torch_load(Tensor(data))


@pytest.mark.parametrize("name", ["new", "old"])
def test_torch_load(name, tmp_path):
  (tmp_path / "w.pt").write_bytes(FILES[name])
  got = torch_load(tmp_path / "w.pt")
  base = [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]
  expected = {
    "w": (dtypes.float32, base), "perm": (dtypes.float32, [list(c) for c in zip(*base)]), "tail": (dtypes.float32, base[1:]),
    "cols": (dtypes.float32, [r[::2] for r in base]), "half": (dtypes.float16, [1.5, -2.0]), "bf": (dtypes.bfloat16, [[1.5], [-2.0]]),
    "d": (dtypes.float64, 0.1), "u8": (dtypes.uint8, [1, 255]), "i8": (dtypes.int8, [1, -1]), "i16": (dtypes.int16, [-300]),
    "i32": (dtypes.int32, [-70000]), "i64": (dtypes.int64, [-2**40]), "b": (dtypes.bool, [True, False]), "u16": (dtypes.uint16, [40000]),
    "f8": (dtypes.fp8e4m3, [1.5]), "exp": (dtypes.float32, [[1.0] * 2] * 3), "empty": (dtypes.float32, [])}
  assert {k: (v.dtype, v.tolist()) for k, v in got.items() if isinstance(v, Tensor)} == expected
  assert list(got)[0] == "w" and got["empty"].shape == (0, 3)
  assert got["meta"] == {"step": 7, "lr": 0.5, "name": "x", "list": [1, (2, None, True)], "size": (2, 3), "dt": dtypes.float16, "dev": "cpu"}
  got["perm"].assign(got["perm"] + 100).realize()  # one storage: a view sees what is written through another
  assert got["tail"].tolist() == [[104.0, 105.0, 106.0, 107.0], [108.0, 109.0, 110.0, 111.0]]


def test_unknown_class_is_inert():
  got = load(FILES["module"])
  assert repr(got) == "<Dummy of torch.nn.modules.linear.Linear>" and isinstance(got, Dummy) and not callable(got)
  assert {k: v.shape for k, v in get_state_dict(got).items()} == {"_parameters.weight": (2, 2), "_parameters.bias": (2,)}


def test_loads_into_a_model():
  model = nn.Linear(4, 3, bias=False)
  nn.state.load_state_dict(model, {"weight": load(FILES["new"])["w"]}, verbose=False)
  assert model(Tensor([[1.0, 0, 0, 0]])).tolist() == [[0.0, 4.0, 8.0]]


def make_zip(pkl: bytes, data=(), method=zipfile.ZIP_STORED) -> bytes:
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w", method) as z:
    z.writestr("a/data.pkl", pkl)
    for key, content in data: z.writestr(f"a/data/{key}", content)
  return out.getvalue()


def storage(key=b"0", kind=b"FloatStorage", n=2):
  return b"(X\x07\0\0\0storagectorch\n" + kind + b"\nX" + struct.pack("<I", len(key)) + key + b"X\x03\0\0\0cpuJ" + struct.pack("<i", n) + b"tQ"


def tensor(store, offset=0, size=(2,), stride=(1,)):
  ints = lambda xs: b"(" + b"".join(b"J" + struct.pack("<i", x) for x in xs) + b"t"  # noqa: E731
  return b"ctorch._utils\n_rebuild_tensor_v2\n(" + store + b"J" + struct.pack("<i", offset) + ints(size) + ints(stride) + b"\x89}tR"


ONE = make_zip(b"\x80\x02" + tensor(storage()) + b".", [("0", struct.pack("<2f", 1, 2))])


def test_the_smallest_file():
  assert load(ONE).tolist() == [1.0, 2.0]
  packed = make_zip(b"\x80\x02" + tensor(storage()) + b".", [("0", struct.pack("<2f", 1, 2))], zipfile.ZIP_DEFLATED)
  assert load(packed).tolist() == [1.0, 2.0]


class Evil:
  def __init__(self, f, *args): self.f, self.args = f, args
  def __reduce__(self): return self.f, self.args


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("what", [(eval, "1/0"), (__import__, "os"), (getattr, 1, "real"), (exec, "raise SystemExit")])
def test_a_pickle_that_calls_is_refused(protocol, what):
  data = pickle.dumps({"w": Evil(*what)}, protocol=protocol)
  with pytest.raises(OSError, match=rf"offset \d+: the file wants to call builtins\.{what[0].__name__} with \d arguments; nothing is called"):
    load(make_zip(data))


@pytest.mark.parametrize("code", [
  b"cos\nsystem\n(S'true'\ntR.", b"(S'true'\nios\nsystem\n.", b"(cos\nsystem\nS'true'\no.", b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R."])
def test_every_way_to_call_is_refused(code):
  with pytest.raises(OSError, match=r"the file wants to call os\.system with 1 arguments"): load(make_zip(code))


BAD_PICKLES = {
  "ends before": b"", "ends before its STOP": b"\x80\x02}", "no operation": b"\xff.", "extension code": b"\x82\x01.", "not in the file": b"\x97.",
  "is used before it is set": b"h\x05.", "bytes are claimed": b"X\xff\xff\xff\x7fa.", "a frame of": b"\x95" + b"\xff" * 8 + b".",
  "finds nothing": b"a.", "no mark": b"t.", "other than one value": b"NN.", "key without value": b"(Nd.", "protocol 9": b"\x80\x09N.",
  "is no number that fits": b"L99999999999999999999999L\n.", "what is called is no global": b"N)R.", "arguments of a call are no tuple": b"cx\ny\nNR.",
  "items are added to what holds none": b"N(Ne.", "nested over": b"]" * 600 + b"a" * 599 + b".",
}


@pytest.mark.parametrize("reason", BAD_PICKLES)
def test_damaged_pickles(reason):
  with pytest.raises(OSError, match=reason): load(make_zip(BAD_PICKLES[reason]))


def test_circles_and_the_million_laughs():
  got = load(make_zip(b"]q\x00h\x00a."))  # a list that holds itself
  assert got[0] is got
  laughs = b"]" + (b"q\x000](" + b"h\x00" * 10 + b"e") * 9 + b"."
  assert len(load(make_zip(laughs))) == 10  # shared, not copied 10^9 times


BAD_TENSORS = {
  "reaches outside of its storage of 2": tensor(storage(), size=(3,)), "strides \\[4611686018": None,
  "from element 1 on": tensor(storage(), offset=1), "storage '7' is not in the file": tensor(storage(key=b"7")),
  "claims 3 elements of FloatStorage; the file has 8 bytes": tensor(storage(n=3)), "unknown type 'OddStorage'": tensor(storage(kind=b"OddStorage")),
  "cannot be understood": tensor(b"N"), "shape or strides": tensor(storage(), size=(-1,)), "strides cannot": tensor(storage(), size=(2, 1)),
}


@pytest.mark.parametrize("reason", BAD_TENSORS)
def test_tensors_that_lie(reason):
  pkl = BAD_TENSORS[reason]
  if pkl is None:  # a product that does not fit into 64 bits
    big = b"\x8a\x08" + struct.pack("<q", 2**62)
    pkl = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage() + b"K\0(K\x05K\x05t(" + big * 2 + b"t\x89}tR"
  with pytest.raises(OSError, match=reason): load(make_zip(b"\x80\x02" + pkl + b".", [("0", struct.pack("<2f", 1, 2))]))


def test_many_copies_of_one_storage_are_refused_and_views_are_not():
  n = 1 << 16
  data = [("0", bytes(4 * n))]
  many = lambda t: make_zip(b"\x80\x02(" + t * 200 + b"t.", data)  # noqa: E731
  assert len(load(many(tensor(storage(n=n), size=(n,))))) == 200
  with pytest.raises(OSError, match="claims more elements than its storage"): load(many(tensor(storage(n=n), size=(n // 2,), stride=(2,))))


@pytest.mark.parametrize("name", ["new", "old"])
def test_every_truncation_is_refused(name):
  data = FILES[name]
  for n in random.Random(1).sample(range(len(data)), 300):
    with pytest.raises(OSError, match=r"<tensor>|\[pickle\]"): load(data[:n])


@pytest.mark.parametrize("data", [FILES["new"], FILES["old"], ONE])
def test_flipped_bytes_are_read_or_refused(data):
  rng = random.Random(2)
  for _ in range(600):
    bad = bytearray(data)
    for _ in range(rng.randint(1, 3)): bad[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    try: load(bytes(bad))
    except (OSError, ValueError, TypeError, NotImplementedError): pass  # TypeError: a key that Python cannot hash


# ---- the tar format of the first versions

def old_tar(members=("storages", "tensors", "pickle"), n_elements=4) -> bytes:
  dump = lambda x: pickle.dumps(x, 2)  # noqa: E731
  kind = b"\x80\x02(K\x01X\x03\0\0\0cpuctorch\nFloatStorage\nt."
  content = {
    "storages": dump(1) + kind + struct.pack("<q", n_elements) + struct.pack("<4f", 1, 2, 3, 4),
    "tensors": dump(1) + b"\x80\x02(K\x05K\x01ctorch\nFloatTensor\nt." + struct.pack("<iiqqqqq", 2, 0, 2, 2, 1, 2, 0),
    "pickle": b"\x80\x02}X\x01\0\0\0wK\x05Qs."}
  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode="w") as t:
    for name in members:
      info = tarfile.TarInfo(name)
      info.size = len(content[name])
      t.addfile(info, io.BytesIO(content[name]))
  return out.getvalue()


def test_old_tar_format():
  assert load(old_tar())["w"].tolist() == [[1.0, 3.0], [2.0, 4.0]]
  with pytest.raises(OSError, match="the tar file has no 'pickle'"): load(old_tar(members=("storages", "tensors")))
  with pytest.raises(OSError, match="claims 5 elements; 16 bytes are left"): load(old_tar(n_elements=5))


# ---- archives

def test_archives(tmp_path):
  files = {"a": b"x" * 3000, "d/" + "n" * 150: b"", "d/c": bytes(range(256))}
  for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", compression) as z:
      z.mkdir("d") if hasattr(z, "mkdir") else z.writestr("d/", b"")
      for k, v in files.items(): z.writestr(k, v)
    assert {k: bytes(v.tolist()) for k, v in zip_extract(tmp_path / "a.zip").items()} == files
  for mode, form in (("w", tarfile.PAX_FORMAT), ("w", tarfile.GNU_FORMAT), ("w:gz", tarfile.GNU_FORMAT)):
    with tarfile.open(tmp_path / "a.tar", mode, format=form) as t:
      t.addfile(_dir("d"))
      for k, v in files.items():
        info = tarfile.TarInfo(k)
        info.size = len(v)
        t.addfile(info, io.BytesIO(v))
    assert {k: bytes(v.tolist()) for k, v in tar_extract(tmp_path / "a.tar").items()} == files


def _dir(name):
  info = tarfile.TarInfo(name)
  info.type = tarfile.DIRTYPE
  return info


def zip_of(*files, patch=None):
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
    for k, v in files: z.writestr(zipfile.ZipInfo(k) if isinstance(k, str) else k, v, zipfile.ZIP_DEFLATED)
  data = bytearray(out.getvalue())
  if patch: patch(data)
  return Tensor(bytes(data))


def central(data): return data.index(b"PK\x01\x02")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("reason,make", [
  ("the name '../x' would leave", lambda: zip_of(("../x", b"1"))), ("the name 'a/../../x'", lambda: zip_of(("a/../../x", b"1"))),
  ("the name '/x' would leave", lambda: zip_of(("/x", b"1"))), ("there are two files 'x'", lambda: zip_of(("x", b"1"), ("x", b"2"))),
  ("no end of the directory", lambda: Tensor(b"PK\3\4 and nothing more, for longer than the end record")),
  ("is encrypted", lambda: zip_of(("x", b"1"), patch=lambda d: d.__setitem__(central(d) + 8, 1))),
  ("claims 2147483651 bytes", lambda: zip_of(("x", b"1"), patch=lambda d: d.__setitem__(central(d) + 23, 0x80))),
  ("claims to unpack 3 bytes to 2147483649", lambda: zip_of(("x", b"1"), patch=lambda d: d.__setitem__(central(d) + 27, 0x80))),
  ("unpacks to more than 10 bytes", lambda: zip_of(("x", b"1" * 99), patch=lambda d: d.__setitem__(central(d) + 24, 10))),
  ("unpacks to 99 bytes, the directory claims 100", lambda: zip_of(("x", b"1" * 99), patch=lambda d: d.__setitem__(central(d) + 24, 100))),
  ("the checksum is", lambda: zip_of(("x", b"1"), patch=lambda d: d.__setitem__(central(d) + 16, d[central(d) + 16] ^ 1))),
  ("claims 65535 files", lambda: zip_of(("x", b"1"), patch=lambda d: d.__setitem__(slice(-14, -10), b"\xff" * 4))),
])
def test_zips_that_lie(reason, make):
  with pytest.raises(OSError, match=reason): zip_extract(make())


def test_zip_entries_that_overlap():
  def patch(d):  # the second entry of the directory points to the first one's data
    second = d.index(b"PK\x01\x02", central(d) + 4)
    d[second + 42:second + 46] = struct.pack("<I", 0)
  with pytest.raises(OSError, match="the data of 'y' overlaps that of another file"): zip_extract(zip_of(("x", b"1"), ("y", b"1"), patch=patch))


def test_other_compression():
  with pytest.raises(NotImplementedError, match="'x' has compression 14"):
    zip_extract(zip_of(("x", b"1"), patch=lambda d: d.__setitem__(central(d) + 10, 14)))


def tar_of(name="x", patch=None, **attributes):
  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as t:
    info = tarfile.TarInfo(name)
    info.size = 3
    t.addfile(info, io.BytesIO(b"abc"))
  data = bytearray(out.getvalue())
  if patch:
    patch(data)
    data[148:156] = b"        "
    data[148:156] = b"%06o\0 " % sum(data[:512])
  return Tensor(bytes(data))


@pytest.mark.parametrize("reason,make", [
  ("the name '../x'", lambda: tar_of("../x")), ("an entry claims 8589934591 bytes", lambda: tar_of(patch=lambda d: d.__setitem__(slice(124, 136), b"77777777777\0"))),
  ("an entry claims -1 bytes", lambda: tar_of(patch=lambda d: d.__setitem__(slice(124, 136), b"-1         \0"))),
  ("checksum of the header is wrong", lambda: Tensor(b"x" * 1024)), ("ends inside a header", lambda: Tensor(bytes(tar_of().tolist())[:1024] + b"abc")),
  ("the packed data ends early", lambda: Tensor(gzip.compress(bytes(2000))[:-9])),
])
def test_tars_that_lie(reason, make):
  with pytest.raises(OSError, match=reason): tar_extract(make())


def test_tensor_io():
  f = io.BufferedReader(TensorIO(Tensor(bytes(range(100)))), 16)
  assert (f.read(3), f.tell(), f.seek(-2, 2), f.read(), f.read()) == (b"\0\1\2", 3, 98, b"bc", b"")
  assert f.seek(0) == 0
  with pytest.raises(ValueError, match="expected a tensor of bytes"): TensorIO(Tensor([1.0]))


def test_safetensors_from_bytes(tmp_path):
  safe_save({"w": Tensor([1.0, 2.0]), "i": Tensor([3])}, str(tmp_path / "w"), {"k": "v"})
  t = Tensor((tmp_path / "w").read_bytes())
  assert {k: v.tolist() for k, v in safe_load(t).items()} == {"w": [1.0, 2.0], "i": [3]}
  source, start, header = safe_load_metadata(t)
  assert source is t and header["__metadata__"] == {"k": "v"}
  begin, end = header["w"]["data_offsets"]
  assert struct.unpack("<2f", bytes(t[start + begin:start + end].tolist())) == (1.0, 2.0)
  assert safe_load_metadata(tmp_path / "w")[1:] == (start, header)


def test_loading_holds_one_copy(tmp_path):
  """Reading and loading a file takes its size once, besides what the process had."""
  import subprocess
  import sys
  program = f"""
import resource
from whit import Tensor, nn
from whit.nn.state import load_state_dict, safe_load, safe_save
fn = {str(tmp_path / "w.safetensors")!r}
import sys
class Model:
  def __init__(self): self.w = Tensor.rand(6000, 4000)
if sys.argv[1] == "save": safe_save({{"w": Tensor.ones(6000, 4000)}}, fn)
else:
  model = Model()
  peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
  before = peak()
  load_state_dict(model, safe_load(fn), verbose=False)
  assert peak() - before < 1.5 * 4 * 6000 * 4000, peak() - before
  assert model.w[5999, 3999].item() == 1
"""
  for what in ("save", "load"): subprocess.run([sys.executable, "-c", program, what], check=True, timeout=300)


def test_a_sharded_model_is_loaded_in_its_shards():
  ds = ("CPU:0", "CPU:1")
  model, other = nn.Linear(4, 4), nn.Linear(4, 4)
  model.weight.shard_(ds, axis=0)
  model.bias.shard_(ds)
  nn.state.load_state_dict(model, get_state_dict(other), verbose=False)
  assert (model.weight.uop.axis, model.bias.uop.axis, other.weight.uop.axis) == (0, None, None)
  assert model.weight.device == model.bias.device and model.weight.tolist() == other.weight.tolist()


@pytest.mark.parametrize("kind", ("safetensors", "gguf"))
@pytest.mark.parametrize("is_there", (True, False), ids=("in place", "new"))
def test_loading_holds_one_copy(kind, is_there, tmp_path):
  """What a file holds is no memory until it is asked for; then each weight is there once, and one of them twice while it is stored in place."""
  n, names = 1 << 18, [f"w{i}" for i in range(6)]
  want = {name: Tensor.rand(n).realize() for name in names}
  path = tmp_path / "weights"
  if kind == "safetensors": safe_save(want, str(path))
  else: path.write_bytes(gguf(tensors=[gguf_tensor(name, [n], 0, 4 * n * i) for i, name in enumerate(names)], data=b"".join(bytes(t.data()) for t in want.values())))
  sums = {name: t.sum().item() for name, t in want.items()}
  del want
  class Model: pass
  model = Model()
  for name in names: setattr(model, name, Tensor.zeros(n).contiguous().realize() if is_there else Tensor.rand(n))
  before = GlobalCounters.mem_used
  GlobalCounters.reset_peak()
  with Context(ASYNC=0):  # a queue may hold the next weight before the last one is freed
    nn.state.load_state_dict(model, safe_load(str(path)) if kind == "safetensors" else gguf_load(str(path))[1], verbose=False)
    assert {name: getattr(model, name).sum().item() for name in names} == sums
  assert GlobalCounters.mem_peak - before <= (n * 4 if is_there else len(names) * n * 4) + 4096
