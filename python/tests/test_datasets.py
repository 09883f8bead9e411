"""CIFAR-10 from small files that are made here."""
import io
import tarfile

import pytest

from whit.nn.datasets import _CIFAR, cifar


def content(name: str) -> bytes:
  """Two images; the label and every pixel say which."""
  i = _CIFAR.index(name)
  return b"".join(bytes([label]) + bytes([10 * i + label]) * 3072 for label in (i, 9))


def write(folder, change=lambda name, data: data):
  with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as t:
    for name in (*_CIFAR, "readme.html"):
      data = change(name, content(name)) if name in _CIFAR else b"text"
      if data is None: continue
      info = tarfile.TarInfo("cifar-10-batches-bin/" + name)
      info.size = len(data)
      t.addfile(info, io.BytesIO(data))


def test_archive(tmp_path):
  write(tmp_path)
  x, y, xt, yt = cifar(folder=tmp_path)
  assert (x.shape, y.tolist(), yt.tolist()) == ((10, 3, 32, 32), [0, 9, 1, 9, 2, 9, 3, 9, 4, 9], [5, 9])
  assert (x[2:4, 2, 31, 31].tolist(), xt[1, 0, 0, :2].tolist()) == ([11, 19], [59, 59])


@pytest.mark.parametrize("reason,change", [
  ("data_batch_2.bin is missing", lambda n, d: None if n == "data_batch_2.bin" else d),
  ("test_batch.bin has 6145 bytes", lambda n, d: d[:-1] if n == "test_batch.bin" else d),
  ("data_batch_1.bin has the label 10", lambda n, d: b"\x0a" + d[1:] if n == "data_batch_1.bin" else d)])
def test_files_that_are_wrong(reason, change, tmp_path):
  write(tmp_path, change)
  with pytest.raises(ValueError, match=reason): cifar(folder=tmp_path)


def test_says_where_it_looked(tmp_path):
  with pytest.raises(FileNotFoundError, match=f"is in {tmp_path}"): cifar(folder=tmp_path)
