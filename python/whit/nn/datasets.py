"""Data sets as four uint8 tensors: train images, train labels, test images, test labels."""
from __future__ import annotations

from whit import _whit
from whit.tensor import Tensor


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


def cifar(device=None):
  """CIFAR-10 is not there yet."""
  raise NotImplementedError("[datasets] whit does not load CIFAR-10 yet")
