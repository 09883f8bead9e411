"""Layers: plain classes whose parameters are attributes; call them like functions."""
from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any

from whit._typing import Ints
from whit.arguments import check_all
from whit.dtype import dtypes
from whit.helpers import TRAINING, prod
from whit.hints import missing
from whit.tensor import Tensor
from whit.nn import datasets, lr_scheduler, optim, state, utils  # noqa: F401

__all__ = ["BatchNorm", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d", "Embedding", "GroupNorm",
           "InstanceNorm", "LSTMCell", "LayerNorm", "LayerNorm2d", "Linear", "RMSNorm", "datasets", "lr_scheduler", "optim", "state", "utils"]


def _tuple(x: Ints, n: int) -> tuple[int, ...]:
  return (x,) * n if isinstance(x, int) else tuple(x)


class BatchNorm:
  """Normalises each channel (axis 1) over the batch (https://arxiv.org/abs/1502.03167).

  In training the batch's statistics are used and the running ones updated; otherwise the running ones are used.

  >>> from whit import Tensor
  >>> BatchNorm(3)(Tensor.ones(2, 3, 4, 4)).shape
  (2, 3, 4, 4)
  """

  def __init__(self, sz: int, eps: float = 1e-5, affine: bool = True, track_running_stats: bool = True, momentum: float = 0.1) -> None:
    self.eps, self.track_running_stats, self.momentum = eps, track_running_stats, momentum
    self.weight: Tensor | None = Tensor.ones(sz) if affine else None
    self.bias: Tensor | None = Tensor.zeros(sz) if affine else None
    self.num_batches_tracked = Tensor.zeros(dtype=dtypes.int64).is_param_(False)
    if track_running_stats:
      self.running_mean, self.running_var = Tensor.zeros(sz).is_param_(False), Tensor.ones(sz).is_param_(False)

  def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
    shape_mask = [1, -1, *([1] * (x.ndim - 2))]
    if self.track_running_stats and not TRAINING:
      return self.running_mean, self.running_var.reshape(shape_mask).expand(x.shape)
    axes = tuple(i for i in range(x.ndim) if i != 1)
    batch_mean = x.mean(axis=axes)
    y = x - batch_mean.detach().reshape(shape_mask)
    return batch_mean, (y * y).mean(axis=axes)

  def __call__(self, x: Tensor) -> Tensor:
    batch_mean, batch_var = self.calc_stats(x)
    if self.track_running_stats and TRAINING:
      n = x.numel() / x.shape[1]
      self.running_mean.assign((1 - self.momentum) * self.running_mean + self.momentum * batch_mean.detach())
      self.running_var.assign((1 - self.momentum) * self.running_var + self.momentum * n / (n - 1) * batch_var.detach())
      self.num_batches_tracked += 1
    if batch_var.ndim > 1: batch_var = batch_var[(0, slice(None), *((0,) * (x.ndim - 2)))]
    return x.batchnorm(self.weight, self.bias, batch_mean, batch_var.add(self.eps).rsqrt())


BatchNorm2d = BatchNorm3d = BatchNorm


def Conv1d(in_channels: int, out_channels: int, kernel_size: int, stride: Ints = 1, padding: int | str = 0, dilation: Ints = 1, groups: int = 1,
           bias: bool = True) -> Conv2d:
  """Convolution over one spatial axis: a Conv2d whose kernel has one axis.

  >>> Conv1d(1, 8, 3)(Tensor.ones(2, 1, 5)).shape
  (2, 8, 3)
  """
  return Conv2d(in_channels, out_channels, (kernel_size,), stride, padding, dilation, groups, bias)


class Conv2d:
  """Convolution (cross-correlation) over the axes after the second; `padding="same"` keeps the size at stride 1.

  >>> from whit import Tensor
  >>> Conv2d(1, 8, 3)(Tensor.ones(2, 1, 5, 5)).shape
  (2, 8, 3, 3)
  """

  def __init__(self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints | str = 0,
               dilation: Ints = 1, groups: int = 1, bias: bool = True) -> None:
    self.kernel_size: tuple[int, ...] = _tuple(kernel_size, 2)
    if isinstance(padding, str):
      if padding.lower() != "same": raise ValueError(f"[Conv2d] padding {padding!r} is not supported; expected 'same' or numbers")
      if stride != 1: raise ValueError(f"[Conv2d] padding 'same' needs stride 1, got {stride}")
      pad = [(d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2)
             for d, k in zip(_tuple(dilation, len(self.kernel_size))[::-1], self.kernel_size[::-1])]
      padding = tuple(x for p in pad for x in p)
    self.stride, self.dilation, self.groups, self.padding = stride, dilation, groups, padding
    scale = 1 / math.sqrt(in_channels * prod(self.kernel_size))
    self.weight = Tensor.uniform(out_channels, in_channels // groups, *self.kernel_size, low=-scale, high=scale)
    self.bias: Tensor | None = Tensor.uniform(out_channels, low=-scale, high=scale) if bias else None

  def __call__(self, x: Tensor) -> Tensor: return x.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding)


def ConvTranspose1d(in_channels: int, out_channels: int, kernel_size: int, stride: Ints = 1, padding: Ints = 0, output_padding: Ints = 0,
                    dilation: Ints = 1, groups: int = 1,
                    bias: bool = True) -> ConvTranspose2d:
  """Transposed convolution over one spatial axis.

  >>> ConvTranspose1d(1, 8, 3)(Tensor.ones(2, 1, 5)).shape
  (2, 8, 7)
  """
  return ConvTranspose2d(in_channels, out_channels, (kernel_size,), stride, padding, output_padding, dilation, groups, bias)


class ConvTranspose2d(Conv2d):
  """Transposed convolution: the gradient of a convolution as a layer; weight (in, out // groups, *kernel).

  >>> ConvTranspose2d(1, 8, 3)(Tensor.ones(2, 1, 5, 5)).shape
  (2, 8, 7, 7)
  """

  def __init__(self, in_channels: int, out_channels: int, kernel_size: Ints, stride: Ints = 1, padding: Ints = 0, output_padding: Ints = 0, dilation: Ints = 1,
               groups: int = 1, bias: bool = True) -> None:
    super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
    scale = 1 / math.sqrt(in_channels * prod(self.kernel_size))
    self.weight = Tensor.uniform(in_channels, out_channels // groups, *self.kernel_size, low=-scale, high=scale)
    self.output_padding = output_padding

  def __call__(self, x: Tensor) -> Tensor:
    return x.conv_transpose2d(self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding, self.output_padding)


class Linear:
  """`x @ weight.T + bias`; weight (out, in).

  >>> from whit import Tensor
  >>> Linear(3, 4)(Tensor.ones(2, 3)).shape
  (2, 4)
  """

  def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
    bound = 1 / math.sqrt(in_features)
    self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound)
    self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

  def __call__(self, x: Tensor) -> Tensor: return x.linear(self.weight.transpose(), self.bias)


class GroupNorm:
  """Normalises groups of channels of each sample (https://arxiv.org/abs/1803.08494).

  >>> GroupNorm(2, 6)(Tensor.ones(2, 6, 4)).shape
  (2, 6, 4)
  """

  def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
    self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
    self.weight: Tensor | None = Tensor.ones(num_channels) if affine else None
    self.bias: Tensor | None = Tensor.zeros(num_channels) if affine else None

  def __call__(self, x: Tensor) -> Tensor:
    y = x.reshape(x.shape[0], self.num_groups, -1).layernorm(eps=self.eps).reshape(x.shape)
    if self.weight is None or self.bias is None: return y
    shape = (1, -1, *[1] * (x.ndim - 2))
    return y * self.weight.reshape(*shape) + self.bias.reshape(*shape)


class InstanceNorm:
  """Normalises each channel of each sample (https://arxiv.org/abs/1607.08022).

  >>> InstanceNorm(6)(Tensor.ones(2, 6, 4)).shape
  (2, 6, 4)
  """

  def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
    self.num_features, self.eps = num_features, eps
    self.weight: Tensor | None = Tensor.ones(num_features) if affine else None
    self.bias: Tensor | None = Tensor.zeros(num_features) if affine else None

  def __call__(self, x: Tensor) -> Tensor:
    y = x.reshape(x.shape[0], self.num_features, -1).layernorm(eps=self.eps).reshape(x.shape)
    if self.weight is None or self.bias is None: return y
    shape = (1, -1, *[1] * (x.ndim - 2))
    return y * self.weight.reshape(*shape) + self.bias.reshape(*shape)


class LayerNorm:
  """Normalises the last axes (https://arxiv.org/abs/1607.06450).

  >>> LayerNorm(2)(Tensor([1.0, 3.0])).numpy().round(3).tolist()
  [-1.0, 1.0]
  """

  def __init__(self, normalized_shape: Ints, eps: float = 1e-5, elementwise_affine: bool = True) -> None:
    self.normalized_shape: tuple[int, ...] = _tuple(normalized_shape, 1)
    self.axis, self.eps, self.elementwise_affine = tuple(-1 - i for i in range(len(self.normalized_shape))), eps, elementwise_affine
    self.weight: Tensor | None = Tensor.ones(*self.normalized_shape) if elementwise_affine else None
    self.bias: Tensor | None = Tensor.zeros(*self.normalized_shape) if elementwise_affine else None

  def __call__(self, x: Tensor) -> Tensor:
    if self.normalized_shape != tuple(x.shape[-len(self.normalized_shape):]):
      raise AssertionError(f"[LayerNorm] last axes of {x.shape} are not {self.normalized_shape}")
    x = x.layernorm(eps=self.eps, axis=self.axis)
    if self.weight is None or self.bias is None: return x
    return x * self.weight + self.bias


class LayerNorm2d(LayerNorm):
  """LayerNorm over the channels of (N, C, H, W).

  >>> LayerNorm2d(6)(Tensor.ones(2, 6, 4, 4)).shape
  (2, 6, 4, 4)
  """

  def __call__(self, x: Tensor) -> Tensor: return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm:
  """Divides by the root of the mean square of the last axis (https://arxiv.org/abs/1910.07467), in at least float32.

  >>> RMSNorm(2)(Tensor([2.0, 2.0])).numpy().round(3).tolist()
  [1.0, 1.0]
  """

  def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True) -> None:
    self.eps = eps
    self.weight = Tensor.ones(dim) if elementwise_affine else None

  def _norm(self, x: Tensor) -> Tensor: return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()

  def __call__(self, x: Tensor) -> Tensor:
    x = self._norm(x.float()).cast(x.dtype)
    return x if self.weight is None else x * self.weight


class Embedding:
  """Rows of `weight` (vocab, size) by index; an index outside reads zeros.

  >>> Embedding(10, 4)(Tensor([[1, 2, 3]])).shape
  (1, 3, 4)
  """

  def __init__(self, vocab_size: int, embed_size: int) -> None:
    self.vocab_sz, self.embed_sz = vocab_size, embed_size
    self.weight = Tensor.glorot_uniform(vocab_size, embed_size)

  def __call__(self, idx: Tensor) -> Tensor:
    if not dtypes.is_int(idx.dtype): raise TypeError(f"[Embedding] expected an integer index, got {idx.dtype}")
    return self.weight[idx]


class LSTMCell:
  """One step of an LSTM; gates in the order i, f, g, o (Hochreiter and Schmidhuber, 1997).

  >>> h, c = LSTMCell(3, 5)(Tensor.ones(2, 3))
  >>> h.shape, c.shape
  ((2, 5), (2, 5))
  """

  def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
    stdv = 1.0 / math.sqrt(hidden_size)
    self.weight_ih = Tensor.uniform(hidden_size * 4, input_size, low=-stdv, high=stdv)
    self.weight_hh = Tensor.uniform(hidden_size * 4, hidden_size, low=-stdv, high=stdv)
    self.bias_ih: Tensor | None = Tensor.zeros(hidden_size * 4) if bias else None
    self.bias_hh: Tensor | None = Tensor.zeros(hidden_size * 4) if bias else None

  def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    if hc is None: hc = (Tensor.zeros(x.size(0), self.weight_hh.size(1), dtype=x.dtype, device=x.device),) * 2
    gates = x.linear(self.weight_ih.T, self.bias_ih) + hc[0].linear(self.weight_hh.T, self.bias_hh)
    i, f, g, o = gates.chunk(4, dim=1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new_c = f * hc[1] + i * g
    new_h = o * new_c.tanh()
    return new_h.contiguous(), new_c.contiguous()


check_all(globals())


def __getattr__(name: str) -> Any: raise missing(__name__, name)
