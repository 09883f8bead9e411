"""CIFAR-10 from small files that are made here, in both of its versions, and downloads."""
import gzip
import hashlib
import io
import pickle
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from whit.nn import datasets
from whit.nn.datasets import cifar, download, mnist

NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def python2(pixels: bytes, labels: list) -> bytes:
  """As the original was pickled: by Python 2, whose strings are bytes, with NumPy's array inside."""
  array = (b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R(K\1K" + bytes([len(labels)]) + b"M\0\x0c\x86"
           b"cnumpy\ndtype\nU\2u1K\0K\1\x87R(K\3U\1|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89T" + struct.pack("<I", len(pixels)) + pixels + b"tb")
  return b"\x80\2}(U\4data" + array + b"U\6labels](" + b"".join(b"K" + bytes([v]) for v in labels) + b"eu."


def python3(pixels: bytes, labels: list) -> bytes:
  return pickle.dumps({b"batch_label": b"x", b"labels": labels, b"data": np.frombuffer(pixels, np.uint8).reshape(-1, 3072)}, protocol=2)


def binary(pixels: bytes, labels: list) -> bytes:
  return b"".join(bytes([v]) + pixels[3072 * i:3072 * (i + 1)] for i, v in enumerate(labels))


VERSIONS = {"binary": (binary, "cifar-10-batches-bin", "cifar-10-binary.tar.gz", ".bin"), "python2": (python2, "cifar-10-batches-py", "cifar-10-python.tar.gz", ""),
            "python3": (python3, "cifar-10-batches-py", "cifar-10-python.tar.gz", "")}


def write(folder, version, change=lambda name, data: data, packed=True):
  """Two images a batch; the label and every pixel say which."""
  make, inner, archive, suffix = VERSIONS[version]
  files = {"readme.html": b"text"}
  for i, name in enumerate(NAMES):
    files[name + suffix] = change(name, make(b"".join(bytes([10 * i + label]) * 3072 for label in (i, 9)), [i, 9]))
  if not packed:
    (folder / inner).mkdir()
    for name, data in files.items():
      if data is not None: (folder / inner / name).write_bytes(data)
    return
  with tarfile.open(folder / archive, "w:gz") as t:
    for name, data in files.items():
      if data is None: continue
      info = tarfile.TarInfo(f"{inner}/{name}")
      info.size = len(data)
      t.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_archive(version, packed, tmp_path):
  write(tmp_path, version, packed=packed)
  x, y, xt, yt = cifar(folder=tmp_path)
  assert (x.shape, y.tolist(), yt.tolist()) == ((10, 3, 32, 32), [0, 9, 1, 9, 2, 9, 3, 9, 4, 9], [5, 9])
  assert (x[2:4, 2, 31, 31].tolist(), xt[1, 0, 0, :2].tolist()) == ([11, 19], [59, 59])


@pytest.mark.parametrize("version,reason,change", [
  ("binary", "data_batch_2.bin is missing", lambda n, d: None if n == "data_batch_2" else d),
  ("binary", "test_batch.bin: it has 6145 bytes", lambda n, d: d[:-1] if n == "test_batch" else d),
  ("binary", "data_batch_1.bin: image 0 has the label 10", lambda n, d: b"\x0a" + d[1:] if n == "data_batch_1" else d),
  ("python2", "data_batch_3 is missing", lambda n, d: None if n == "data_batch_3" else d),
  ("python2", "test_batch: image 1 has the label 10", lambda n, d: python2(bytes(6144), [0, 10]) if n == "test_batch" else d),
  ("python2", "its data has another shape", lambda n, d: python2(bytes(6144), [0, 1, 2]).replace(b"K\3M\0\x0c", b"K\2M\0\x0c") if n == "test_batch" else d),
  ("python2", "its data is of another length", lambda n, d: python2(bytes(6000), [0, 1]) if n == "test_batch" else d),
  ("python2", "its data is not row-major of uint8", lambda n, d: d.replace(b"U\2u1", b"U\2i1")),
  ("python3", "it is no dict", lambda n, d: pickle.dumps([1, 2])), ("python3", "it has no list of labels", lambda n, d: pickle.dumps({"data": 1})),
  ("python3", "its data is no array", lambda n, d: pickle.dumps({"data": [1], "labels": [1]})),
  ("python3", "offset", lambda n, d: d[:-9]), ("python3", "wants", lambda n, d: b"cos\nsystem\n(S'true'\ntR.")])
def test_files_that_are_wrong(version, reason, change, tmp_path):
  write(tmp_path, version, change)
  with pytest.raises(OSError, match=reason): cifar(folder=tmp_path)


def test_says_where_it_looked(tmp_path):
  with pytest.raises(FileNotFoundError, match=f"is in none of: {tmp_path}; it needs"): cifar(folder=tmp_path)
  with pytest.raises(FileNotFoundError, match=f"mnist is in none of: {tmp_path}; it needs"): mnist(folder=tmp_path)


def idx(shape, data): return gzip.compress(bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + data)


def test_download(tmp_path, monkeypatch):
  """From a place of one's own; a file that is not the known one is refused and leaves nothing."""
  source, cache = tmp_path / "source", tmp_path / "cache"
  source.mkdir()
  files = {n: idx(*((2, 4, 4), bytes(range(32))) if "images" in n else ((2,), b"\1\2")) for n in datasets._IDX}
  for name, data in files.items(): (source / name).write_bytes(data)
  digests = {n: hashlib.sha256(d).hexdigest() for n, d in files.items()}
  monkeypatch.setattr(datasets, "cache_dir", lambda: cache)
  with pytest.raises(RuntimeError, match="sha256 is .* expected 440fcabf"): download("mnist", source.as_uri())
  assert not list((cache / "datasets/mnist").iterdir())
  assert download("mnist", source.as_uri(), digests) == cache / "datasets/mnist"
  (cache / "datasets/mnist" / datasets._IDX[1]).write_bytes(b"damaged")  # is fetched again
  (source / datasets._IDX[0]).unlink()  # it is in the cache
  x, y, _, _ = mnist(folder=download("mnist", source.as_uri(), digests))
  assert x.shape == (2, 1, 4, 4) and y.tolist() == [1, 2]


def test_loads_by_downloading(tmp_path):
  """A process without the files fetches them into the cache, once."""
  source = tmp_path / "source"
  source.mkdir()
  write(source, "binary")
  program = f"""
import hashlib, pathlib
from whit.nn import datasets
source = pathlib.Path({str(source)!r})
archive = source / "cifar-10-binary.tar.gz"
datasets._SOURCES["cifar-10"] = (source.as_uri(), {{archive.name: hashlib.sha256(archive.read_bytes()).hexdigest()}})
assert datasets.cifar()[0].shape == (10, 3, 32, 32)
archive.unlink()
assert datasets.cifar()[3].tolist() == [5, 9]
datasets._SOURCES["mnist"] = (source.as_uri(), {{"nothing": ""}})
try: datasets.mnist()
except FileNotFoundError as e: assert "is in none of" in str(e) and "nor could it be downloaded" in str(e), e
else: raise AssertionError("no error")
"""
  env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
  subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=120)
