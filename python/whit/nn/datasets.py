"""Data sets as four uint8 tensors: train images, train labels, test images, test labels."""
from __future__ import annotations

import pathlib
from typing import Any, Callable

from whit._typing import Devices
from whit.arguments import check_all
from whit import _whit
from whit.hints import missing
from whit.helpers import cache_dir, fetch
from whit.tensor import Tensor

_IDX = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
# Where the files of each come from, and their SHA-256.
_SOURCES = {
  "mnist": ("https://storage.googleapis.com/cvdf-datasets/mnist/", dict(zip(_IDX, (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6")))),
  "fashion-mnist": ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/", dict(zip(_IDX, (
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5")))),
  "cifar-10": ("https://www.cs.toronto.edu/~kriz/", {
    "cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}),
}


def download(name: str, url: str | None = None, sha256: dict[str, str] | None = None) -> pathlib.Path:
  """Fetches the files of `mnist`, `fashion-mnist` or `cifar-10` into the cache, where `mnist` and `cifar` of both languages find them, and
  gives the folder. `url` is another place that has them. A file whose SHA-256 is not the known one is refused and not kept.

  >>> download("cifar-100")
  Traceback (most recent call last):
  ValueError: [download] cifar-100 is not known; expected one of mnist, fashion-mnist, cifar-10
  """
  if name not in _SOURCES: raise ValueError(f"[download] {name} is not known; expected one of {', '.join(_SOURCES)}")
  base, files = _SOURCES[name]
  folder = cache_dir() / "datasets" / name
  for file, digest in (sha256 or files).items(): fetch(f"{(url or base).rstrip('/')}/{file}", name=folder / file, sha256=digest)
  return folder


def _load(name: str, load: Callable[[str], Any], folder: str | pathlib.Path | None, device: Devices) -> tuple[Tensor, Tensor, Tensor, Tensor]:
  try: out = load(str(folder or ""))
  except FileNotFoundError as missing:
    if folder is not None: raise
    try: download(name)
    except (OSError, RuntimeError) as e: raise FileNotFoundError(f"{missing}; nor could it be downloaded: {e}") from None
    out = load("")
  return tuple(t.to(device) for t in out) if device is not None else out


def mnist(device: Devices = None, fashion: bool = False, folder: str | pathlib.Path | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
  """MNIST or Fashion-MNIST: (60000, 1, 28, 28), (60000,), (10000, 1, 28, 28), (10000,).

  The idx.gz files are looked for in `folder`; by default in the folder of Debian's package dataset-fashion-mnist, in DATASETS/NAME, and in the
  cache, into which they are downloaded when they are nowhere. They are checked before they are used.

  >>> x_train, y_train, x_test, y_test = mnist(fashion=True)
  >>> x_train.shape, y_test.dtype
  ((60000, 1, 28, 28), dtypes.uchar)
  """
  return _load("fashion-mnist" if fashion else "mnist", lambda where: _whit.mnist(bool(fashion), where), folder, device)


def cifar(device: Devices = None, folder: str | pathlib.Path | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
  """CIFAR-10: (50000, 3, 32, 32), (50000,), (10000, 3, 32, 32), (10000,).

  `cifar-10-binary.tar.gz` or `cifar-10-python.tar.gz` (whose pickles are read as data), or the folder in either, is looked for in `folder`; by
  default in DATASETS/cifar-10 and in the cache, into which the first is downloaded when it is nowhere.

  >>> import tempfile
  >>> folder = pathlib.Path(tempfile.mkdtemp(), "cifar-10-batches-bin")
  >>> folder.mkdir()
  >>> for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
  ...   _ = (folder / f"{name}.bin").write_bytes(b"\\3" + bytes(3072))  # one image of class 3
  >>> [t.shape for t in cifar(folder=folder.parent)]
  [(5, 3, 32, 32), (5,), (1, 3, 32, 32), (1,)]
  """
  return _load("cifar-10", _whit.cifar, folder, device)


check_all(globals())


def __getattr__(name: str) -> Any: raise missing(__name__, name)
