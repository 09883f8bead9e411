"""Data sets as four uint8 tensors: train images, train labels, test images, test labels."""
from __future__ import annotations

import pathlib

from whit import _whit
from whit.helpers import cache_dir
from whit.nn.state import tar_extract
from whit.tensor import Tensor

_CIFAR = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")


def mnist(device=None, fashion=False, folder: str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
  """MNIST or Fashion-MNIST: (60000, 1, 28, 28), (60000,), (10000, 1, 28, 28), (10000,).

  The idx.gz files are looked for in `folder`, in the folder of Debian's package dataset-fashion-mnist, and in the download cache; they are checked
  before they are used.

  >>> x_train, y_train, x_test, y_test = mnist(fashion=True)
  >>> x_train.shape, y_test.dtype
  ((60000, 1, 28, 28), dtypes.uchar)
  """
  out = _whit.mnist(bool(fashion), folder or "")
  return tuple(t.to(device) for t in out) if device is not None else out  # type: ignore


def cifar(device=None, folder: str | pathlib.Path | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
  """CIFAR-10, its binary version: (50000, 3, 32, 32), (50000,), (10000, 3, 32, 32), (10000,).

  `cifar-10-binary.tar.gz`, or the folder `cifar-10-batches-bin` out of it, is looked for in `folder`, in DATASETS/cifar-10 and in the cache. Nothing is
  downloaded: FileNotFoundError says where it was looked for, ValueError what is wrong with a file.

  >>> import tempfile
  >>> folder = pathlib.Path(tempfile.mkdtemp(), "cifar-10-batches-bin")
  >>> folder.mkdir()
  >>> for name in _CIFAR: _ = (folder / name).write_bytes(b"\\3" + bytes(3072))  # one image of class 3
  >>> [t.shape for t in cifar(folder=folder.parent)]
  [(5, 3, 32, 32), (5,), (1, 3, 32, 32), (1,)]
  """
  if folder is not None: places = [pathlib.Path(folder)]
  else: places = [pathlib.Path(p) / "cifar-10" for p in (str(_whit.flag("DATASETS")), cache_dir() / "datasets") if p]
  for place in places:
    if (bin_ := place / "cifar-10-batches-bin").is_dir(): files = {n: (bin_ / n).read_bytes() for n in _CIFAR if (bin_ / n).exists()}
    elif (tar := place / "cifar-10-binary.tar.gz").exists():
      files = {k.rsplit("/", 1)[-1]: bytes(v.data()) for k, v in tar_extract(tar).items() if k.startswith("cifar-10-batches-bin/")}
    else: continue
    if missing := [n for n in _CIFAR if n not in files]: raise ValueError(f"[cifar] {place}: {missing[0]} is missing")
    for n in _CIFAR:
      if not files[n] or len(files[n]) % 3073: raise ValueError(f"[cifar] {place}: {n} has {len(files[n])} bytes; expected images of 3073")
      if (worst := max(files[n][::3073])) > 9: raise ValueError(f"[cifar] {place}: {n} has the label {worst}; labels are 0..9")
    sets = (Tensor(b"".join(files[n] for n in names), device=device).reshape(-1, 3073) for names in (_CIFAR[:-1], _CIFAR[-1:]))
    return tuple(t for rows in sets for t in (rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]))  # type: ignore
  raise FileNotFoundError(f"[cifar] neither cifar-10-batches-bin nor cifar-10-binary.tar.gz is in {', '.join(map(str, places))}")
