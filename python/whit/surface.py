"""What Tensor has on the Python side alone: names that take functions or node graphs, and the helpers with one underscore."""
from __future__ import annotations

import functools, math, sys

from whit import _whit
from whit.dtype import dtypes, strong_dtype, to_dtype
from whit.uop import Ops

Tensor, UOp = _whit.Tensor, _whit.UOp

_MONOIDS = {Ops.ADD: "sum", Ops.MUL: "prod", Ops.MAX: "max", Ops.MIN: "min"}


def _monoid(op) -> str:
  if op not in _MONOIDS: raise ValueError(f"[reduce] {op} folds nothing; expected ADD, MUL, MAX or MIN")
  return _MONOIDS[op]


def _tuple(x, n: int) -> tuple: return tuple(x) if isinstance(x, (tuple, list)) else (x,) * n


def _gradient_id(grad_fxn) -> int: return 0 if grad_fxn is None else _whit.register_gradient(grad_fxn)


class _Methods:
  def data(self) -> memoryview:
    """The elements as a memoryview. A dtype that Python has no format for (bfloat16, fp8) is an AssertionError.

    >>> Tensor([[1, 2], [3, 4]]).data()[1, 0]
    3
    """
    x = self.cast(strong_dtype(self.dtype))
    if x.dtype.fmt is None: raise AssertionError(f"[data] Python has no format for {x.dtype}; cast it first")
    if x.dtype.fmt == "e" and sys.version_info < (3, 12): return memoryview(x.numpy())  # whose format memoryview.cast does not know yet
    flat = memoryview(bytearray(_whit.tensor_bytes(x))).cast(x.dtype.fmt)
    return flat if x.numel() == 0 else flat.cast("B").cast(x.dtype.fmt, x.shape)

  # nodes
  def alu(self, op, *src: Tensor) -> Tensor:
    """The node of an elementwise op over this tensor and others of the same shape and dtype.

    >>> from whit.uop import Ops
    >>> Tensor([1, 5]).alu(Ops.MAX, Tensor([3, 4])).tolist()
    [3, 5]
    """
    return self._apply_uop(lambda x, *more: x.alu(op, *more), *src)

  def as_param(self, slot: int) -> Tensor:
    """A placeholder like this tensor: argument number `slot` of the body that `call` takes.

    >>> Tensor([1.0, 2.0]).as_param(0).shape
    (2,)
    """
    return _whit.as_param(self, slot)

  def call(self, *lst: Tensor, fxn, grad_fxn=None) -> Tensor:
    """The value of `fxn` (a tensor made of `as_param` placeholders) for these arguments, as one node. `grad_fxn(gradient, call=)` gives the
    gradients of the arguments, which are `call.src[1:]`.

    >>> a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    >>> a.call(b, fxn=a.as_param(0) * b.as_param(1) + 1).tolist()
    [4.0, 9.0]
    """
    body = Tensor(fxn) if isinstance(fxn, UOp) else fxn
    return _whit.call_body([self, *lst], [body], _gradient_id(grad_fxn))[0]

  def custom_kernel(self, *lst: Tensor, fxn, grad_fxn=None) -> list:
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

  def linear_with_vars(self, *lst: Tensor) -> tuple:
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
  def from_url(url: str, gunzip=False, **kwargs) -> Tensor:
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

  def decode_hevc_frame(self, frame_pos, shape, state, ref_frames=None) -> Tensor:
    """Frames of a video, on devices that decode them; whit has none.

    >>> Tensor([1.0]).decode_hevc_frame(0, (1,), Tensor([1.0]))
    Traceback (most recent call last):
    NotImplementedError: [decode_hevc_frame] no device of whit decodes video; expected frames as tensors, decoded elsewhere
    """
    raise NotImplementedError("[decode_hevc_frame] no device of whit decodes video; expected frames as tensors, decoded elsewhere")

  # helpers
  @property
  def _uop(self): return self.uop
  @classmethod
  def _wrap_uop(cls, u): return cls(u)
  def _apply_uop(self, fxn, *x, **kwargs): return Tensor(fxn(self.uop, *(t.uop for t in x), **kwargs))
  def _buffer(self): return _whit.buffer_of(self.contiguous().realize().uop)
  def _data(self): return memoryview(_whit.tensor_bytes(self))

  def _resolve_dim(self, dim, *, extra=False):
    n = self.ndim + int(extra)
    if not -max(1, n) <= dim < max(1, n): raise IndexError(f"[dim] {dim} is out of range; valid axes are {-max(1, n)}..{max(1, n) - 1}")
    return dim + n if dim < 0 else dim

  def _normalize_indices(self, indices):
    dots = [i for i, x in enumerate(indices) if x is Ellipsis]
    if len(dots) > 1: raise IndexError("[getitem] indices can only have a single ellipsis")
    n = sum(x is not None and x is not Ellipsis for x in indices)
    if n > self.ndim: raise IndexError(f"[getitem] too many indices: {n} for {self.ndim} axes")
    at = dots[0] if dots else len(indices)
    return [*indices[:at], *[slice(None)] * (self.ndim - n), *indices[at + 1:]]

  def _parse_view_index(self, index, size):
    if index is None: return {"size": 1, "boundary": (0, 1), "stride": 1, "collapse_dim": False}
    if not isinstance(index, slice):
      if not -size <= index < size: raise IndexError(f"[getitem] index {index} is out of bounds for size {size}")
      at = index + size if index < 0 else index
      return {"size": size, "boundary": (at, at + 1), "stride": 1, "collapse_dim": True}
    if index.step == 0: raise ValueError("[getitem] the slice step is 0; expected a positive or negative one")
    r = range(*index.indices(size))
    low, high = (0, 0) if len(r) == 0 else (r[0], r[-1] + 1) if r.step > 0 else (r[-1], r[0] + 1)
    return {"size": len(r), "boundary": (low, high), "stride": r.step, "collapse_dim": False}

  def _apply_view_ops(self, mops):
    x = self.shrink(tuple(m["boundary"] for m in mops))
    return x[tuple(slice(None, None, m["stride"]) for m in mops)]

  def _getitem(self, indices, v=None):
    if v is None: return self[tuple(indices) if isinstance(indices, list) and any(not isinstance(i, int) for i in indices) else indices]
    out = self.clone()
    out[indices] = v
    return out

  def _broadcast_to(self, new_shape):
    if self.ndim > len(new_shape): raise ValueError(f"[broadcast] shape {self.shape} has more axes than {tuple(new_shape)}")
    return self.expand(new_shape)

  def _broadcasted(self, y, reverse=False):
    y = self.ufix(y)
    x, y = (y, self) if reverse else (self, y)
    shape = (x + y).shape if x.dtype is not dtypes.bool else (x.cast(dtypes.int) + y.cast(dtypes.int)).shape
    dt = _whit.least_upper_dtype(x.dtype, y.dtype)
    return x.cast(dt)._broadcast_to(shape), y.cast(dt)._broadcast_to(shape)

  def _binop(self, op, x, reverse): return (lambda a, b: a.alu(op, b))(*self._broadcasted(x, reverse))
  def _inverse(self): return -self if self.is_floating_point() else ~self

  def _mop(self, op, arg):
    names = {Ops.RESHAPE: "reshape", Ops.EXPAND: "expand", Ops.PERMUTE: "permute", Ops.SHRINK: "shrink", Ops.PAD: "pad"}
    if op is Ops.FLIP: return self.flip(tuple(i for i, f in enumerate(arg) if f) if all(isinstance(f, bool) for f in arg) else arg)
    if op not in names: raise ValueError(f"[_mop] {op} is no movement; expected {', '.join(str(o) for o in names)} or FLIP")
    return getattr(self, names[op])(arg)

  def _rop(self, op, axis): return getattr(self, _monoid(op))(axis) if op is not Ops.ADD else self.sum(axis, dtype=strong_dtype(self.dtype))
  def _reduce(self, op, axis=None, keepdim=False):
    x = self.cast(strong_dtype(self.dtype))
    return x.sum(axis, keepdim, x.dtype) if op is Ops.ADD else getattr(x, _monoid(op))(axis, keepdim)

  def _multi_like(self, fxn):
    if not isinstance(self.device, tuple): raise AssertionError(f"[_multi_like] the tensor is on {self.device}; expected several devices")
    return fxn(self.shape, None).shard_like(self)

  @classmethod
  def _tri(cls, r, c, diagonal=0): return cls.arange(r).unsqueeze(-1) + diagonal <= cls.arange(c)
  def _pad_constant(self, pX, value): return self.pad(tuple(pX), value=value)
  def _pad_circular(self, pX): return self.pad(tuple(pX), mode="circular")
  def _pad_reflect_replicate(self, pX, mode): return self.pad(tuple(pX), mode=mode)

  def _softmax(self, axis, dtype=None):
    m = self - self.max(axis, keepdim=True).detach()
    if dtype is not None: m = m.cast(to_dtype(dtype))
    e = m.exp()
    return m, e, e.sum(axis, keepdim=True)

  def _cumalu(self, axis, op):
    scans = {Ops.ADD: lambda x: x.cumsum(axis), Ops.MUL: lambda x: x.cumprod(axis), Ops.MAX: lambda x: x.cummax(axis)[0], Ops.MIN: lambda x: x.cummin(axis)[0]}
    if op not in scans: raise AssertionError(f"[_cumalu] {op}; expected ADD, MUL, MAX or MIN")
    return scans[op](self)

  def _split_cumalu(self, axis, op): return self._cumalu(self._resolve_dim(axis), op)

  def _one_hot_along_dim(self, num_classes, dim=-1):
    if not dtypes.is_int(self.dtype): raise RuntimeError(f"[one_hot] the tensor is {self.dtype}; expected an integer dtype")
    return self.eq(Tensor.arange(num_classes).reshape((num_classes,) + (1,) * (self.ndim - self._resolve_dim(dim) - 1)))

  def _pre_scatter(self, dim, index, src):
    dim = self._resolve_dim(dim)
    if not index.ndim == self.ndim == src.ndim: raise AssertionError(f"[scatter] {self.ndim}, {index.ndim} and {src.ndim} axes; expected as many")
    src = src.shrink_to(index.shape).unsqueeze(-1).expand(*index.shape, self.shape[dim]).transpose(-1, dim)
    mask = index.unsqueeze(-1)._one_hot_along_dim(self.shape[dim]).transpose(-1, dim)
    widen = tuple(s if i != dim else None for i, s in enumerate(self.shape)) + (None,)
    return src.pad_to(widen), mask.pad_to(widen)

  def _masked_merge(self, values, mask, axes):
    for dim in sorted((a % mask.ndim for a in axes), reverse=True):  # where several write, the last one stays
      at = Tensor.arange(mask.shape[dim]).reshape((-1,) + (1,) * (mask.ndim - dim - 1))
      last = mask.where(at, -1).max(dim, keepdim=True)
      values, mask = (at == last).where(values, values.const_like(0)).sum(dim, dtype=values.dtype), mask.any(dim)
    return mask.where(values, self)

  def _pool(self, k_, stride=1, dilation=1):
    n = len(k_)
    s_, d_ = _tuple(stride, n), _tuple(dilation, n)
    if not n <= self.ndim or not len(s_) == len(d_) == n: raise AssertionError(f"[pool] kernel {k_}, stride {s_}, dilation {d_} for shape {self.shape}")
    x, first = self, self.ndim - n
    for i, (k, s, d) in enumerate(zip(k_, s_, d_)):
      size = self.shape[first + i]
      if d * (k - 1) + 1 > size: raise AssertionError(f"[pool] kernel {k} with dilation {d} is larger than the size {size}")
      x = x.unfold(first + i, d * (k - 1) + 1, s)[..., ::d]
    return x

  def _apply_ceil_mode(self, pads, k_, s_, d_):
    n = len(k_)
    out, s_, d_ = list(pads), _tuple(s_, n), _tuple(d_, n)
    for i, (size, k, s, d) in enumerate(zip(self.shape[-n:], k_, s_, d_)):
      at = 2 * (n - 1 - i)
      padded, reach = size + pads[at] + pads[at + 1], d * (k - 1) + 1
      o = -(-(padded - reach) // s) + 1
      if s * (o - 1) >= size + pads[at]: o -= 1  # no window starts in the padding behind
      out[at + 1] += max(0, s * (o - 1) + reach - padded)
    return out

  def _apply_winograd_matrix(self, mat, dims):
    x = self
    for dim in range(dims):
      x = x.transpose(0, dim)
      x = functools.reduce(lambda a, b: a + b, (Tensor([float(m[k]) for m in mat], dtype=x.dtype).reshape((-1,) + (1,) * (x.ndim - 1)) * x[k] for k in range(len(mat[0]))))
      x = x.transpose(0, dim)
    return x

  def _conv2d_winograd(self, weight, bias, groups, padding, dtype): return self.conv2d(weight, bias, groups=groups, padding=padding, dtype=dtype)

  def _do_reduction(self, reduction="mean"):
    if reduction not in ("none", "sum", "mean"): raise ValueError(f"[loss] reduction '{reduction}'; expected mean, sum or none")
    return self if reduction == "none" else getattr(self, reduction)()

  def _hash_1mb(self):
    if self.dtype is not dtypes.uint8 or self.ndim != 2 or self.shape[1] != 1 << 20: raise AssertionError(f"[hash] {self.dtype} of {self.shape}; expected uint8 of (n, {1 << 20})")
    return self.reshape(-1, 4096).keccak("shake_128").reshape(self.shape[0], -1).keccak("shake_128")

  @staticmethod
  def _threefry_random_bits(key, counts0, counts1):
    join = lambda high, low: (high.cast(dtypes.uint64) << 32) | low.cast(dtypes.uint64)
    x = join(counts1, counts0).threefry(join(key[1], key[0]))
    return x.cast(dtypes.uint32).cat((x >> 32).cast(dtypes.uint32))

  @staticmethod
  def _bits_to_rand(bits, shape, dtype):
    dtype = to_dtype(dtype)
    u = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}[dtype.itemsize]
    one = Tensor(1.0, dtype=dtype).bitcast(u)
    b = bits.bitcast(u).rshift(8 * dtype.itemsize - dtypes.finfo(dtype)[1]).bitwise_or(one).bitcast(dtype)
    return (b[:math.prod(shape)] - 1).reshape(shape)

  @classmethod
  def _rand(cls, key, counter, shape, dtype, contiguous=True):
    out = cls._bits_to_rand(cls.random_bits(key, counter, -(-math.prod(shape) * to_dtype(dtype).itemsize // 4)), shape, dtype)
    return out.contiguous() if contiguous else out


EXTENDED = Tensor
added = [n for n in vars(_Methods) if not n.startswith("_")]
for _name in [n for n in vars(_Methods) if not n.startswith("__")]: setattr(Tensor, _name, vars(_Methods)[_name])
