"""GGUF files: every format of blocks, metadata, models in parts, and what is refused."""
import hashlib
import random
import struct

import pytest

from whit import Tensor, dtypes
from whit.nn.state import ggml_data_to_tensor, gguf_load

# Elements and bytes of a block, and the digest of what three blocks of random bytes hold as llama.cpp decodes it.
QUANTISED = {
  2: (32, 18, "efffa12c4c7f66d0"),
  3: (32, 20, "b2f6438676b11f8e"),
  6: (32, 22, "1e712e0857899951"),
  7: (32, 24, "2f62a82aa979728d"),
  8: (32, 34, "cf29f88421ea08ce"),
  12: (256, 144, "42a10c9d07d6dadf"),
  13: (256, 176, "5338dc20a0da362c"),
  14: (256, 210, "6b54b9680f481481"),
  18: (256, 98, "8f81542bb92327a5"),
  21: (256, 110, "7b4ff51ae97fb648"),
  22: (256, 82, "9fb361554e795d57"),
  23: (256, 136, "1e197e87ddb7b6b7"),
  39: (32, 17, "f86365540e0551ac"),
  41: (128, 18, "9283e860c3882866"),
}
NATIVE = {0: (dtypes.float32, "f"), 1: (dtypes.float16, "e"), 24: (dtypes.int8, "b"), 25: (dtypes.int16, "h"), 26: (dtypes.int32, "i"),
          27: (dtypes.int64, "q"), 28: (dtypes.float64, "d")}


def text(s): return struct.pack("<Q", len(s := s if isinstance(s, bytes) else s.encode())) + s


def key(name, kind, data): return text(name) + struct.pack("<I", kind) + data


def tensor(name, dims, kind, offset): return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf(keys=(), tensors=(), data=b"", version=3, align=32, n_keys=None, n_tensors=None) -> bytes:
  head = b"GGUF" + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors, len(keys) if n_keys is None else n_keys)
  head += b"".join(keys) + b"".join(tensors)
  return head + bytes(-len(head) % align) + data


def load(data: bytes): return gguf_load(Tensor(data))


@pytest.mark.parametrize("kind", QUANTISED)
def test_blocks(kind):
  n, n_bytes, digest = QUANTISED[kind]
  data = random.Random(100 + kind).randbytes(3 * n_bytes)
  got = ggml_data_to_tensor(Tensor(data), 3 * n, kind)
  assert got.shape == (3 * n,) and got.dtype == (dtypes.float16 if kind == 41 else dtypes.float32)
  assert hashlib.sha256(bytes(got.data().cast("B"))).hexdigest()[:16] == digest
  kv, sd = load(gguf(tensors=[tensor("pad", (8,), 24, 0), tensor("w", (n, 3), kind, 32)], data=bytes(32) + data))
  assert kv == {} and list(sd) == ["pad", "w"] and sd["w"].shape == (3, n) and sd["w"].flatten().tolist() == got.tolist()


@pytest.mark.parametrize("kind", NATIVE)
def test_native(kind):
  dtype, fmt = NATIVE[kind]
  w = load(gguf(tensors=[tensor("w", (2, 3), kind, 0)], data=struct.pack(f"<6{fmt}", 1, 2, 3, 4, 5, -6)))[1]["w"]
  assert (w.dtype, w.tolist()) == (dtype, [[1, 2], [3, 4], [5, -6]])


def test_bfloat16_scalars_and_empty():
  sd = load(gguf(tensors=[tensor("b", (), 30, 0), tensor("none", (32, 0), 2, 0)], data=b"\xc0\x3f"))[1]
  assert (sd["b"].dtype, sd["b"].item(), sd["none"].shape) == (dtypes.bfloat16, 1.5, (0, 32))


def test_metadata(tmp_path):
  values = {"u8": (0, "<B", 200), "i8": (1, "<b", -3), "u16": (2, "<H", 60000), "i16": (3, "<h", -300), "u32": (4, "<I", 2**32 - 1), "i32": (5, "<i", -7),
            "f32": (6, "<f", 0.5), "yes": (7, "<?", True), "u64": (10, "<Q", 2**64 - 1), "i64": (11, "<q", -2**63), "f64": (12, "<d", 0.1)}
  keys = [key(k, kind, struct.pack(fmt, v)) for k, (kind, fmt, v) in values.items()]
  keys += [key("name", 8, text("größe")), key("tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("")),
           key("nested", 9, struct.pack("<IQ", 9, 2) + struct.pack("<IQ2i", 5, 2, 1, -2) + struct.pack("<IQ", 6, 0)), key("general.alignment", 4, struct.pack("<I", 64))]
  (tmp_path / "m.gguf").write_bytes(gguf(keys, [tensor("w", (2,), 0, 64)], bytes(64) + struct.pack("<2f", 1, 2), version=2, align=64))
  kv, sd = gguf_load(tmp_path / "m.gguf")
  assert kv == {**{k: v for k, (_, _, v) in values.items()}, "name": "größe", "tokens": ["a", ""], "nested": [[1, -2], []], "general.alignment": 64}
  assert kv["yes"] is True and sd["w"].tolist() == [1, 2]


def split(no, count): return [key("split.no", 2, struct.pack("<H", no)), key("split.count", 2, struct.pack("<H", count))]


def test_parts(tmp_path):
  for i in range(3):
    data = gguf(split(i, 3), [tensor(f"w{i}", (2,), 0, 0)], struct.pack("<2f", i, 9))
    (tmp_path / f"m-{i + 1:05}-of-00003.gguf").write_bytes(data)
  assert {k: v.tolist() for k, v in gguf_load(str(tmp_path / "m-00001-of-00003.gguf"))[1].items()} == {f"w{i}": [i, 9] for i in range(3)}
  with pytest.raises(ValueError, match="part 2 of 3; expected the first"): gguf_load(tmp_path / "m-00002-of-00003.gguf")
  (tmp_path / "m-00003-of-00003.gguf").unlink()
  with pytest.raises(OSError, match="m-00003-of-00003.gguf"): gguf_load(tmp_path / "m-00001-of-00003.gguf")
  with pytest.raises(ValueError, match="one of 3 parts; give the path of the first"): load(gguf(split(0, 3)))
  (tmp_path / "x.gguf").write_bytes(gguf(split(0, 3)))
  with pytest.raises(ValueError, match="expected a name ending in -00001-of-00003.gguf"): gguf_load(tmp_path / "x.gguf")
  for i in (1, 2): (tmp_path / f"d-0000{i}-of-00002.gguf").write_bytes(gguf(split(i - 1, 2), [tensor("w", (2,), 0, 0)], bytes(8)))
  with pytest.raises(OSError, match="'w' is there twice"): gguf_load(tmp_path / "d-00001-of-00002.gguf")


F32 = struct.pack("<8f", *range(8))
HOSTILE = [
  (ValueError, "does not begin with GGUF", b"GGML" + bytes(60)), (OSError, "ends inside the magic number", b"GG"),
  (ValueError, "version 1; expected 2 or 3", gguf(version=1)), (ValueError, "version 50331648", b"GGUF\0\0\0\3" + bytes(60)),
  (OSError, "4611686018427387904 tensors need 24 bytes each", gguf(n_tensors=2**62)), (OSError, "keys need 13", gguf(n_keys=2**63)),
  (OSError, "characters need 1", gguf([struct.pack("<Q", 2**64 - 1) + bytes(8)])), (OSError, "a key is not UTF-8", gguf([key(b"\xc0\xaf", 0, b"\1")])),
  (OSError, "a string is not UTF-8", gguf([key("k", 8, text(b"\xed\xa0\x80"))])), (OSError, "the key 'k' is there twice", gguf([key("k", 0, b"\1")] * 2)),
  (OSError, "a value has the type 13", gguf([key("k", 13, bytes(8))])), (OSError, "an array holds values of type 99", gguf([key("k", 9, struct.pack("<IQ", 99, 1))])),
  (OSError, "values of an array need 8 bytes", gguf([key("k", 9, struct.pack("<IQ", 10, 2**60))])),
  (OSError, "nested over 8 deep", gguf([key("k", 9, struct.pack("<IQ", 9, 1) * 40)])), (OSError, "general.alignment is 0", gguf([key("general.alignment", 4, bytes(4))])),
  (OSError, "general.alignment is no count", gguf([key("general.alignment", 8, text("32"))])),
  (OSError, "'w' is there twice", gguf(tensors=[tensor("w", (2,), 0, 0), tensor("w", (2,), 0, 8)], data=F32)),
  (OSError, "'w' has 9 axes", gguf(tensors=[tensor("w", (1,) * 9, 0, 0)], data=F32)), (OSError, "more elements than there can be", gguf(tensors=[tensor("w", (2**40, 2**40), 0, 0)], data=F32)),
  (OSError, "more elements", gguf(tensors=[tensor("w", (2**64 - 1,), 24, 0)], data=F32)), (ValueError, "ggml type 16; expected one of 0 F32", gguf(tensors=[tensor("w", (256,), 16, 0)], data=F32)),
  (OSError, "rows of 33; blocks of Q4_0 hold 32", gguf(tensors=[tensor("w", (33, 32), 2, 0)], data=bytes(2000))),
  (OSError, "'w' has 36 bytes; the file ends", gguf(tensors=[tensor("w", (9,), 0, 0)], data=F32)), (OSError, "begins at byte", gguf(tensors=[tensor("w", (2,), 0, 2**63)], data=F32)),
  (OSError, "the file ends", gguf(tensors=[tensor("w", (2,), 0, 2**60)], data=F32)),
  (OSError, "tensor 'b' overlaps 'a'", gguf(tensors=[tensor("b", (4,), 0, 8), tensor("a", (4,), 0, 0)], data=F32)),
  (OSError, "split.count is no count", gguf([key("split.count", 5, struct.pack("<i", -1))])),
]


@pytest.mark.parametrize("error,reason,data", HOSTILE, ids=[r for _, r, _ in HOSTILE])
def test_refused(error, reason, data):
  with pytest.raises(error, match=reason) as e: load(data)
  assert str(e.value).startswith("[gguf_load] <tensor>: ")


def test_damage_is_an_error_or_nothing():
  """Every truncation, and thousands of changed bytes: an error of the reader or a result, never anything else."""
  keys = [key("general.alignment", 4, struct.pack("<I", 32)), key("tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("bc"))]
  data = gguf(keys, [tensor("w", (2, 2), 0, 0), tensor("q", (32,), 2, 32)], F32 + bytes(18))
  for n in range(len(data)):
    with pytest.raises((OSError, ValueError)): load(data[:n])
  r, n_fine = random.Random(1), 0
  for _ in range(3000):
    bad = bytearray(data)
    for _ in range(r.randint(1, 4)): bad[r.randrange(len(bad))] = r.choice([0, 1, 255, r.randrange(256)])
    try: load(bytes(bad))
    except (OSError, ValueError): continue
    n_fine += 1
  assert 0 < n_fine < 2900


def test_bad_data_of_blocks():
  with pytest.raises(ValueError, match="has 33 elements; blocks of Q4_0 hold 32"): ggml_data_to_tensor(Tensor(bytes(36)), 33, 2)
  with pytest.raises(ValueError, match="has 17 bytes; 32 elements of Q4_0 need 18"): ggml_data_to_tensor(Tensor(bytes(17)), 32, 2)
  for n in (-32, 2**62, -2**63):
    with pytest.raises(ValueError): ggml_data_to_tensor(Tensor(bytes(18)), n, 2)
  with pytest.raises(ValueError, match="ggml type 16; expected one of"): ggml_data_to_tensor(Tensor(bytes(18)), 32, 16)
  with pytest.raises(ValueError, match="expected bytes"): ggml_data_to_tensor(Tensor([1.0]), 1, 0)
