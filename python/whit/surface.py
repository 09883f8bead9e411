"""What Tensor has on the Python side alone: names that take functions or node graphs, and the helpers with one underscore."""
from __future__ import annotations

import functools, math, sys

from whit import _whit
from whit.dtype import dtypes, strong_dtype, to_dtype
from whit.uop import Ops

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any, Callable
  from whit._whit import Tensor as _Base
else: _Base = object

Tensor = _whit.Tensor
UOp = _whit.UOp

_MONOIDS = {Ops.ADD: "sum", Ops.MUL: "prod", Ops.MAX: "max", Ops.MIN: "min"}


def _monoid(op: Ops) -> str:
  if op not in _MONOIDS: raise ValueError(f"[reduce] {op} folds nothing; expected ADD, MUL, MAX or MIN")
  return _MONOIDS[op]


def _tuple(x: Any, n: int) -> tuple[Any, ...]: return tuple(x) if isinstance(x, (tuple, list)) else (x,) * n


def _gradient_id(grad_fxn: Callable[..., Any] | None) -> int: return 0 if grad_fxn is None else _whit.register_gradient(grad_fxn)


class _Methods(_Base):
  def data(self) -> memoryview:
    """The elements as a memoryview. A dtype that Python has no format for (bfloat16, fp8) is an AssertionError.

    >>> Tensor([[1, 2], [3, 4]]).data()[1, 0]
    3
    """
    x = self.cast(strong_dtype(self.dtype))
    if x.dtype.fmt is None: raise AssertionError(f"[data] Python has no format for {x.dtype}; cast it first")
    if x.dtype.fmt == "e" and sys.version_info < (3, 12): return memoryview(x.numpy())  # whose format memoryview.cast does not know yet
    fmt: Any = x.dtype.fmt
    flat: memoryview = memoryview(bytearray(_whit.tensor_bytes(x)))
    return flat.cast(fmt) if x.numel() == 0 else flat.cast(fmt, x.shape)

  # nodes
  def alu(self, op: Any, *src: Tensor) -> Tensor:
    """The node of an elementwise op over this tensor and others of the same shape and dtype.

    >>> from whit.uop import Ops
    >>> Tensor([1, 5]).alu(Ops.MAX, Tensor([3, 4])).tolist()
    [3, 5]
    """
    return Tensor(self.uop.alu(op, *(t.uop for t in src)))

  def as_param(self, slot: int) -> Tensor:
    """A placeholder like this tensor: argument number `slot` of the body that `call` takes.

    >>> Tensor([1.0, 2.0]).as_param(0).shape
    (2,)
    """
    return _whit.as_param(self, slot)

  def call(self, *lst: Tensor, fxn: Any, grad_fxn: Callable[..., Any] | None = None) -> Tensor:
    """The value of `fxn` (a tensor made of `as_param` placeholders) for these arguments, as one node. `grad_fxn(gradient, call=)` gives the
    gradients of the arguments, which are `call.src[1:]`.

    >>> a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    >>> a.call(b, fxn=a.as_param(0) * b.as_param(1) + 1).tolist()
    [4.0, 9.0]
    """
    body = Tensor(fxn) if isinstance(fxn, UOp) else fxn
    return _whit.call_body([self, *lst], [body], _gradient_id(grad_fxn))[0]

  def custom_kernel(self, *lst: Tensor, fxn: Any, grad_fxn: Callable[..., Any] | None = None) -> list[Tensor]:
    """Loops of one's own: `fxn` gets a placeholder a tensor and returns the SINK of a kernel; the result holds each tensor after it. Loads see
    what was there before. Differentiable, by `grad_fxn(*gradients, call=)` if given.

    >>> from whit import UOp
    >>> def double(out, x):
    ...   i = UOp.range(3, 0)
    ...   return out.index(i).store(x.index(i).load() * 2).end(i).sink()
    >>> Tensor.empty(3, dtype=dtypes.int).custom_kernel(Tensor([1, 2, 3]), fxn=double)[0].tolist()
    [2, 4, 6]
    """
    return list(_whit.custom_kernel([self, *lst], fxn, _gradient_id(grad_fxn)))

  def callify(self, *lst: Tensor) -> Tensor:
    """What these tensors wait to compute becomes one CALL node; nothing runs.

    >>> (Tensor([1.0, 2.0]) * 2 + 1).callify().tolist()
    [3.0, 5.0]
    """
    _whit.callify([self, *lst])
    return self

  def linear_with_vars(self, *lst: Tensor) -> tuple[UOp, dict[str, int]]:
    """`schedule_linear`, and the values of the variables by name.

    >>> linear, values = (Tensor([1.0]) + 1).linear_with_vars()
    >>> len(linear.src), values
    (1, {})
    """
    return _whit.schedule_linear([self, *lst]), {}

  def schedule_linear(self, *lst: Tensor) -> UOp:
    """The kernels that `realize` would run now, in order: a LINEAR node with a CALL a kernel. Nothing runs, nothing changes.

    >>> len((Tensor.ones(4, 4).realize() @ Tensor.ones(4, 4).realize()).relu().schedule_linear().src)
    1
    """
    return _whit.schedule_linear([self, *lst])

  @staticmethod
  def from_url(url: str, gunzip: bool = False, **kwargs: Any) -> Tensor:
    """The bytes behind a URL (or of a file), kept in the cache for files: a tensor on DISK unless `device` is given.

    >>> import pathlib, tempfile
    >>> p = pathlib.Path(tempfile.mkdtemp()) / "x"
    >>> p.write_bytes(b"abc")
    3
    >>> Tensor.from_url(str(p)).tolist()
    [97, 98, 99]
    """
    from whit.helpers import fetch
    return Tensor(fetch(url, gunzip=gunzip), **kwargs)

  def decode_hevc_frame(self, frame_pos: Any, shape: Any, state: Any, ref_frames: Any = None) -> Tensor:
    """Frames of a video, on devices that decode them; whit has none.

    >>> Tensor([1.0]).decode_hevc_frame(0, (1,), Tensor([1.0]))
    Traceback (most recent call last):
    NotImplementedError: [decode_hevc_frame] no device of whit decodes video; expected frames as tensors, decoded elsewhere
    """
    raise NotImplementedError("[decode_hevc_frame] no device of whit decodes video; expected frames as tensors, decoded elsewhere")

  # helpers
  @property
  def _uop(self) -> Any: return self.uop
  @classmethod
  def _wrap_uop(cls, u: Any) -> Any: return cls(u)
  def _apply_uop(self, fxn: Any, *x: Any, **kwargs: Any) -> Any: return Tensor(fxn(self.uop, *(t.uop for t in x), **kwargs))
  def _buffer(self) -> Any: return _whit.buffer_of(self.contiguous().realize().uop)
  def _data(self) -> Any: return memoryview(_whit.tensor_bytes(self))

  def _resolve_dim(self, dim: Any, *, extra: bool = False) -> Any:
    n = self.ndim + int(extra)
    if not -max(1, n) <= dim < max(1, n): raise IndexError(f"[dim] {dim} is out of range; valid axes are {-max(1, n)}..{max(1, n) - 1}")
    return dim + n if dim < 0 else dim

  def _normalize_indices(self, indices: Any) -> Any:
    dots = [i for i, x in enumerate(indices) if x is Ellipsis]
    if len(dots) > 1: raise IndexError("[getitem] indices can only have a single ellipsis")
    n = sum(x is not None and x is not Ellipsis for x in indices)
    if n > self.ndim: raise IndexError(f"[getitem] too many indices: {n} for {self.ndim} axes")
    at = dots[0] if dots else len(indices)
    return [*indices[:at], *[slice(None)] * (self.ndim - n), *indices[at + 1:]]

  def _parse_view_index(self, index: Any, size: Any) -> Any:
    if index is None: return {"size": 1, "boundary": (0, 1), "stride": 1, "collapse_dim": False}
    if not isinstance(index, slice):
      if not -size <= index < size: raise IndexError(f"[getitem] index {index} is out of bounds for size {size}")
      at = index + size if index < 0 else index
      return {"size": size, "boundary": (at, at + 1), "stride": 1, "collapse_dim": True}
    if index.step == 0: raise ValueError("[getitem] the slice step is 0; expected a positive or negative one")
    r = range(*index.indices(size))
    low, high = (0, 0) if len(r) == 0 else (r[0], r[-1] + 1) if r.step > 0 else (r[-1], r[0] + 1)
    return {"size": len(r), "boundary": (low, high), "stride": r.step, "collapse_dim": False}

  def _apply_view_ops(self, mops: Any) -> Any:
    x = self.shrink(tuple(m["boundary"] for m in mops))
    return x[tuple(slice(None, None, m["stride"]) for m in mops)]

  def _getitem(self, indices: Any, v: Any = None) -> Any:
    if v is None: return self[tuple(indices) if isinstance(indices, list) and any(not isinstance(i, int) for i in indices) else indices]
    out = self.clone()
    out[indices] = v
    return out

  def _broadcast_to(self, new_shape: Any) -> Any:
    if self.ndim > len(new_shape): raise ValueError(f"[broadcast] shape {self.shape} has more axes than {tuple(new_shape)}")
    return self.expand(new_shape)

  def _broadcasted(self, y: Any, reverse: bool = False) -> Any:
    y = self.ufix(y)
    x: Any = y if reverse else self
    if reverse: y = self
    shape = (x + y).shape if x.dtype is not dtypes.bool else (x.cast(dtypes.int) + y.cast(dtypes.int)).shape
    dt = _whit.least_upper_dtype(x.dtype, y.dtype)
    return x.cast(dt)._broadcast_to(shape), y.cast(dt)._broadcast_to(shape)

  def _binop(self, op: Any, x: Any, reverse: Any) -> Any: return (lambda a, b: a.alu(op, b))(*self._broadcasted(x, reverse))
  def _inverse(self) -> Any: return -self if self.is_floating_point() else ~self

  def _mop(self, op: Any, arg: Any) -> Any:
    names = {Ops.RESHAPE: "reshape", Ops.EXPAND: "expand", Ops.PERMUTE: "permute", Ops.SHRINK: "shrink", Ops.PAD: "pad"}
    if op is Ops.FLIP: return self.flip(tuple(i for i, f in enumerate(arg) if f) if all(isinstance(f, bool) for f in arg) else arg)
    if op not in names: raise ValueError(f"[_mop] {op} is no movement; expected {', '.join(str(o) for o in names)} or FLIP")
    return getattr(self, names[op])(arg)

  def _rop(self, op: Any, axis: Any) -> Any: return getattr(self, _monoid(op))(axis) if op is not Ops.ADD else self.sum(axis, dtype=strong_dtype(self.dtype))
  def _reduce(self, op: Any, axis: Any = None, keepdim: bool = False) -> Any:
    x = self.cast(strong_dtype(self.dtype))
    return x.sum(axis, keepdim, x.dtype) if op is Ops.ADD else getattr(x, _monoid(op))(axis, keepdim)

  def _multi_like(self, fxn: Any) -> Any:
    if not isinstance(self.device, tuple): raise AssertionError(f"[_multi_like] the tensor is on {self.device}; expected several devices")
    return fxn(self.shape, None).shard_like(self)

  @classmethod
  def _tri(cls, r: Any, c: Any, diagonal: int = 0) -> Any: return cls.arange(r).unsqueeze(-1) + diagonal <= cls.arange(c)
  def _pad_constant(self, pX: Any, value: Any) -> Any: return self.pad(tuple(pX), value=value)
  def _pad_circular(self, pX: Any) -> Any: return self.pad(tuple(pX), mode="circular")
  def _pad_reflect_replicate(self, pX: Any, mode: Any) -> Any: return self.pad(tuple(pX), mode=mode)

  def _softmax(self, axis: Any, dtype: Any = None) -> Any:
    m = self - self.max(axis, keepdim=True).detach()
    if dtype is not None: m = m.cast(to_dtype(dtype))
    e = m.exp()
    return m, e, e.sum(axis, keepdim=True)

  def _cumalu(self, axis: Any, op: Any) -> Any:
    scans = {Ops.ADD: lambda x: x.cumsum(axis), Ops.MUL: lambda x: x.cumprod(axis), Ops.MAX: lambda x: x.cummax(axis)[0], Ops.MIN: lambda x: x.cummin(axis)[0]}
    if op not in scans: raise AssertionError(f"[_cumalu] {op}; expected ADD, MUL, MAX or MIN")
    return scans[op](self)

  def _split_cumalu(self, axis: Any, op: Any) -> Any: return self._cumalu(self._resolve_dim(axis), op)

  def _one_hot_along_dim(self, num_classes: Any, dim: int = -1) -> Any:
    if not dtypes.is_int(self.dtype): raise RuntimeError(f"[one_hot] the tensor is {self.dtype}; expected an integer dtype")
    return self.eq(Tensor.arange(num_classes).reshape((num_classes,) + (1,) * (self.ndim - self._resolve_dim(dim) - 1)))

  def _pre_scatter(self, dim: Any, index: Any, src: Any) -> Any:
    dim = self._resolve_dim(dim)
    if not index.ndim == self.ndim == src.ndim: raise AssertionError(f"[scatter] {self.ndim}, {index.ndim} and {src.ndim} axes; expected as many")
    src = src.shrink_to(index.shape).unsqueeze(-1).expand(*index.shape, self.shape[dim]).transpose(-1, dim)
    mask = index.unsqueeze(-1)._one_hot_along_dim(self.shape[dim]).transpose(-1, dim)
    widen = tuple(s if i != dim else None for i, s in enumerate(self.shape)) + (None,)
    return src.pad_to(widen), mask.pad_to(widen)

  def _masked_merge(self, values: Any, mask: Any, axes: Any) -> Any:
    for dim in sorted((a % mask.ndim for a in axes), reverse=True):  # where several write, the last one stays
      at = Tensor.arange(mask.shape[dim]).reshape((-1,) + (1,) * (mask.ndim - dim - 1))
      last = mask.where(at, -1).max(dim, keepdim=True)
      values, mask = (at == last).where(values, values.const_like(0)).sum(dim, dtype=values.dtype), mask.any(dim)
    return mask.where(values, self)

  def _pool(self, k_: Any, stride: int = 1, dilation: int = 1) -> Any:
    n = len(k_)
    s_, d_ = _tuple(stride, n), _tuple(dilation, n)
    if not n <= self.ndim or not len(s_) == len(d_) == n: raise AssertionError(f"[pool] kernel {k_}, stride {s_}, dilation {d_} for shape {self.shape}")
    x: Tensor = self
    first = self.ndim - n
    for i, (k, s, d) in enumerate(zip(k_, s_, d_)):
      size = self.shape[first + i]
      if d * (k - 1) + 1 > size: raise AssertionError(f"[pool] kernel {k} with dilation {d} is larger than the size {size}")
      x = x.unfold(first + i, d * (k - 1) + 1, s)[..., ::d]
    return x

  def _apply_ceil_mode(self, pads: Any, k_: Any, s_: Any, d_: Any) -> Any:
    n = len(k_)
    out, s_, d_ = list(pads), _tuple(s_, n), _tuple(d_, n)
    for i, (size, k, s, d) in enumerate(zip(self.shape[-n:], k_, s_, d_)):
      at = 2 * (n - 1 - i)
      padded, reach = size + pads[at] + pads[at + 1], d * (k - 1) + 1
      o = -(-(padded - reach) // s) + 1
      if s * (o - 1) >= size + pads[at]: o -= 1  # no window starts in the padding behind
      out[at + 1] += max(0, s * (o - 1) + reach - padded)
    return out

  def _apply_winograd_matrix(self, mat: Any, dims: Any) -> Any:
    x: Tensor = self
    for dim in range(dims):
      x = x.transpose(0, dim)
      x = functools.reduce(lambda a, b: a + b, (Tensor([float(m[k]) for m in mat], dtype=x.dtype).reshape((-1,) + (1,) * (x.ndim - 1)) * x[k] for k in range(len(mat[0]))))
      x = x.transpose(0, dim)
    return x

  def _conv2d_winograd(self, weight: Any, bias: Any, groups: Any, padding: Any, dtype: Any) -> Any: return self.conv2d(weight, bias, groups=groups, padding=padding, dtype=dtype)

  def _do_reduction(self, reduction: str = "mean") -> Any:
    if reduction not in ("none", "sum", "mean"): raise ValueError(f"[loss] reduction '{reduction}'; expected mean, sum or none")
    return self if reduction == "none" else getattr(self, reduction)()

  def _hash_1mb(self) -> Any:
    if self.dtype is not dtypes.uint8 or self.ndim != 2 or self.shape[1] != 1 << 20: raise AssertionError(f"[hash] {self.dtype} of {self.shape}; expected uint8 of (n, {1 << 20})")
    return self.reshape(-1, 4096).keccak("shake_128").reshape(self.shape[0], -1).keccak("shake_128")

  @staticmethod
  def _threefry_random_bits(key: Any, counts0: Any, counts1: Any) -> Any:
    def join(high: Any, low: Any) -> Any: return (high.cast(dtypes.uint64) << 32) | low.cast(dtypes.uint64)
    x = join(counts1, counts0).threefry(join(key[1], key[0]))
    return x.cast(dtypes.uint32).cat((x >> 32).cast(dtypes.uint32))

  @staticmethod
  def _bits_to_rand(bits: Any, shape: Any, dtype: Any) -> Any:
    dtype = to_dtype(dtype)
    u = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}[dtype.itemsize]
    one = Tensor(1.0, dtype=dtype).bitcast(u)
    b = bits.bitcast(u).rshift(8 * dtype.itemsize - dtypes.finfo(dtype)[1]).bitwise_or(one).bitcast(dtype)
    return (b[:math.prod(shape)] - 1).reshape(shape)

  @classmethod
  def _rand(cls, key: Any, counter: Any, shape: Any, dtype: Any, contiguous: bool = True) -> Any:
    out = cls._bits_to_rand(cls.random_bits(key, counter, -(-math.prod(shape) * to_dtype(dtype).itemsize // 4)), shape, dtype)
    return out.contiguous() if contiguous else out


setattr(Tensor, "__array_priority__", 1000)  # `array * tensor` is a tensor: NumPy leaves it to Tensor.__rmul__

EXTENDED = Tensor
added = [n for n in vars(_Methods) if not n.startswith("_")]
for _name in [n for n in vars(_Methods) if not n.startswith("__")]: setattr(Tensor, _name, vars(_Methods)[_name])
