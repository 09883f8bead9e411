"""ONNX models: `OnnxRunner(path)` reads a file and computes it as tensors, so that a model fuses, jits and trains like any other."""
from __future__ import annotations

# Attributes of nodes are of any type.
# mypy: disable-error-code="no-any-return"
import math, pathlib, struct
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from whit.dtype import DType, dtypes
from whit.helpers import DEBUG, prod
from whit.hints import missing
from whit.tensor import Tensor

# ---- the file: messages of onnx.proto, as far as they are read: field number -> (name, what). [..] is a repeated field.
_MESSAGES: dict[str, dict[int, tuple[str, Any]]] = {
  "Model": {7: ("graph", "Graph"), 8: ("opset_import", ["OpSet"]), 25: ("functions", [bytes])},
  "OpSet": {1: ("domain", str), 2: ("version", int)},
  "Graph": {1: ("node", ["Node"]), 2: ("name", str), 5: ("initializer", ["Tensor"]), 11: ("input", ["Value"]), 12: ("output", ["Value"]),
            15: ("sparse_initializer", [bytes])},
  "Node": {1: ("input", [str]), 2: ("output", [str]), 3: ("name", str), 4: ("op_type", str), 5: ("attribute", ["Attribute"]), 7: ("domain", str)},
  "Attribute": {1: ("name", str), 2: ("f", float), 3: ("i", int), 4: ("s", bytes), 5: ("t", "Tensor"), 6: ("g", "Graph"), 7: ("floats", [float]),
                8: ("ints", [int]), 9: ("strings", [bytes]), 20: ("type", int)},
  "Tensor": {1: ("dims", [int]), 2: ("data_type", int), 4: ("float_data", [float]), 5: ("int32_data", [int]), 7: ("int64_data", [int]), 8: ("name", str),
             9: ("raw_data", bytes), 10: ("double_data", ["double"]), 11: ("uint64_data", [int]), 13: ("external_data", ["Entry"]), 14: ("data_location", int)},
  "Entry": {1: ("key", str), 2: ("value", str)},
  "Value": {1: ("name", str), 2: ("type", "Type")},
  "Type": {1: ("tensor_type", "TensorType"), 4: ("sequence_type", "Elem"), 9: ("optional_type", "Elem")},
  "Elem": {1: ("elem_type", "Type")},
  "TensorType": {1: ("elem_type", int), 2: ("shape", "Shape")},
  "Shape": {1: ("dim", ["Dim"])},
  "Dim": {1: ("dim_value", int), 2: ("dim_param", str)},
}
_DTYPES = {1: dtypes.float32, 2: dtypes.uint8, 3: dtypes.int8, 4: dtypes.uint16, 5: dtypes.int16, 6: dtypes.int32, 7: dtypes.int64, 9: dtypes.bool,
           10: dtypes.float16, 11: dtypes.float64, 12: dtypes.uint32, 13: dtypes.uint64, 16: dtypes.bfloat16, 17: dtypes.fp8e4m3,
           18: dtypes.fp8e4m3fnuz, 19: dtypes.fp8e5m2, 20: dtypes.fp8e5m2fnuz}


def _varint(data: memoryview, at: int) -> tuple[int, int]:
  value = shift = 0
  while True:
    if at >= len(data) or shift > 63: raise ValueError(f"[onnx] a number at byte {at} does not end: this is no ONNX file, or it was cut")
    byte = data[at]
    value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
    if byte < 128: return value, at


def _signed(value: int) -> int: return value - (1 << 64) if value >> 63 else value


def _parse(data: memoryview, message: str) -> dict[str, Any]:
  fields, at = _MESSAGES[message], 0
  out: dict[str, Any] = {name: [] for name, what in fields.values() if isinstance(what, list)}
  while at < len(data):
    key, at = _varint(data, at)
    wire, size = key & 7, {1: 8, 5: 4}.get(key & 7, 0)
    value: Any = None
    if wire == 0: value, at = _varint(data, at)
    elif wire == 2: size, at = _varint(data, at)
    elif not size: raise ValueError(f"[onnx] wire type {wire} in a {message} at byte {at}: this is no ONNX file")
    if at + size > len(data): raise ValueError(f"[onnx] field {key >> 3} of a {message} has {size} bytes, but {len(data) - at} are left: the file was cut")
    if wire: value, at = data[at:at + size], at + size
    if key >> 3 not in fields: continue
    name, what = fields[key >> 3]
    many = isinstance(what, list)
    values = _values(value, wire, what[0] if many else what)
    if many: out[name] += values
    else: out[name] = values[-1]
  return out


def _values(value: Any, wire: int, what: Any) -> list[Any]:
  if what is int:
    if wire == 0: return [_signed(value)]
    out, at = [], 0
    while at < len(value):
      n, at = _varint(value, at)
      out.append(_signed(n))
    return out
  if what in (float, "double"): return list(struct.unpack(f"<{len(value) // (8 if what == 'double' else 4)}{'d' if what == 'double' else 'f'}", value))
  if what is str: return [bytes(value).decode()]
  return [value] if what is bytes else [_parse(value, what)]


def _tensor(t: dict[str, Any], folder: pathlib.Path | None) -> Tensor:
  shape, code, name = tuple(t["dims"]), t.get("data_type", 0), t.get("name", "")
  if code not in _DTYPES: raise NotImplementedError(f"[onnx] tensor '{name}' has data type {code}; whit reads {sorted(_DTYPES)} of TensorProto.DataType")
  dtype = _DTYPES[code]
  raw: Any = t.get("raw_data", b"")
  if t.get("data_location") == 1:
    where = {e["key"]: e["value"] for e in t["external_data"]}
    if folder is None: raise ValueError(f"[onnx] the data of tensor '{name}' is in the file {where['location']}: give OnnxRunner the model's path")
    file = (folder / where["location"]).resolve()
    if not file.is_relative_to(folder.resolve()): raise ValueError(f"[onnx] the data of tensor '{name}' is outside of the model's folder: {where['location']}")
    with file.open("rb") as f:
      f.seek(int(where.get("offset", 0)))
      raw = f.read(int(where["length"]) if "length" in where else -1)
  if prod(shape) == 0: return Tensor.zeros(*shape, dtype=dtype)
  if len(raw):
    if len(raw) != prod(shape) * dtype.itemsize: raise ValueError(f"[onnx] tensor '{name}' {shape} of {dtype} has {len(raw)} bytes of data")
    return Tensor(bytes(raw), dtype=dtype).reshape(shape)
  numbers = t["float_data"] or t["int64_data"] or t["double_data"] or t["uint64_data"] or t["int32_data"]
  if len(numbers) != prod(shape): raise ValueError(f"[onnx] tensor '{name}' {shape} has {len(numbers)} numbers")
  if dtype.itemsize < 4 and dtypes.is_float(dtype):  # int32_data holds their bits
    return Tensor(numbers, dtype={1: dtypes.uint8, 2: dtypes.uint16}[dtype.itemsize]).bitcast(dtype).reshape(shape)
  return Tensor(numbers, dtype=dtype).reshape(shape)


@dataclass(frozen=True)
class OnnxValue:
  """What a graph says of an input or output. Sizes that are names are the same wherever the name is.

  >>> OnnxValue(("batch", 3), dtypes.float32).shape
  ('batch', 3)
  """
  shape: tuple[str | int, ...]
  dtype: DType
  is_optional: bool = False
  is_sequence: bool = False


def _value(v: dict[str, Any]) -> OnnxValue:
  kind, optional, sequence = v["type"], False, False
  while "tensor_type" not in kind:
    optional, sequence = optional or "optional_type" in kind, sequence or "sequence_type" in kind
    elem = kind.get("optional_type") or kind.get("sequence_type")
    if not elem: raise NotImplementedError(f"[onnx] '{v['name']}' is neither a tensor nor an optional or a sequence of tensors")
    kind = elem["elem_type"]
  kind = kind["tensor_type"]
  dims = tuple(d.get("dim_param") or d.get("dim_value", "?") for d in kind.get("shape", {"dim": []})["dim"])
  if kind["elem_type"] not in _DTYPES: raise NotImplementedError(f"[onnx] '{v['name']}' has data type {kind['elem_type']}")
  return OnnxValue(dims, _DTYPES[kind["elem_type"]], optional, sequence)


# ---- ops: name -> function(node, inputs..) with the node's attributes as `node(name, default)`. An absent input is None.
class _Node:
  def __init__(self, proto: dict[str, Any], opset: int, folder: pathlib.Path | None):
    self.op, self.name, self.inputs, self.outputs, self.opset = proto.get("op_type", ""), proto.get("name", ""), proto["input"], proto["output"], opset
    self.folder = folder
    self.attributes: dict[str, Any] = {}
    for a in proto["attribute"]:
      field = {1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings"}.get(a.get("type", 0))
      if field is None: raise NotImplementedError(f"[onnx] attribute '{a['name']}' of {self} has type {a.get('type')}")
      value = a.get(field, {"f": 0.0, "i": 0, "s": b""}.get(field))
      if field == "t": value = _tensor(value, folder)
      if field == "s": value = bytes(value).decode()
      if field == "strings": value = [bytes(s).decode() for s in value]
      self.attributes[a["name"]] = value

  def __call__(self, name: str, default: Any = None) -> Any: return self.attributes.get(name, default)
  def __str__(self) -> str: return f"{self.op}{f' {self.name!r}' if self.name else ''}"


def _list(x: Any) -> list[Any]:
  """Numbers that decide shapes."""
  if x is None: return []
  if isinstance(x, Tensor): x = x.tolist()
  return list(x) if isinstance(x, (list, tuple)) else [x]


def _axes(n: _Node, axes: Tensor | None) -> list[int] | None:
  """`axes`: an input of newer versions, an attribute of older ones."""
  return _list(axes) if axes is not None else n("axes")


def _to(n: _Node, code: int) -> DType:
  if code not in _DTYPES: raise NotImplementedError(f"[onnx] {n} makes data type {code}")
  return _DTYPES[code]


def _cast(x: Tensor, dtype: DType) -> Tensor:
  return x.cast(dtype)


def _pads(n: _Node, x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
  """Padding in ONNX order: all begins, then all ends."""
  mode, rank = n("auto_pad", "NOTSET"), len(kernel)
  if mode == "NOTSET": return list(n("pads", [0] * 2 * rank))
  if mode == "VALID": return [0] * 2 * rank
  total = [max(0, (math.ceil(int(i) / s) - 1) * s + d * (k - 1) + 1 - int(i)) for i, k, s, d in zip(x.shape[2:], kernel, strides, dilations)]
  less, more = [t // 2 for t in total], [t - t // 2 for t in total]
  return less + more if mode == "SAME_UPPER" else more + less


def _flat(pads: Sequence[int]) -> list[int]:
  """ONNX order to that of Tensor.pad: pairs, last axis first."""
  half = len(pads) // 2
  return [p for i in reversed(range(half)) for p in (pads[i], pads[i + half])]


def _conv(n: _Node, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
  rank = x.ndim - 2
  strides, dilations = n("strides", [1] * rank), n("dilations", [1] * rank)
  pads = _pads(n, x, [int(k) for k in w.shape[2:]], strides, dilations)
  return x.pad(tuple(_flat(pads))).conv2d(w, b, groups=n("group", 1), stride=strides, dilation=dilations)


def _conv_transpose(n: _Node, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
  rank, kernel = x.ndim - 2, [int(k) for k in w.shape[2:]]
  strides, dilations, extra = n("strides", [1] * rank), n("dilations", [1] * rank), n("output_padding", [0] * rank)
  full = [(int(i) - 1) * s + d * (k - 1) + 1 + e for i, k, s, d, e in zip(x.shape[2:], kernel, strides, dilations, extra)]
  shape, mode = n("output_shape"), n("auto_pad", "NOTSET")
  if shape is None and mode in ("SAME_UPPER", "SAME_LOWER"): shape = [int(i) * s for i, s in zip(x.shape[2:], strides)]
  if shape is None: pads = n("pads", [0] * 2 * rank) if mode == "NOTSET" else [0] * 2 * rank
  else:
    total = [f - s for f, s in zip(full, shape[-rank:])]
    less, more = [t // 2 for t in total], [t - t // 2 for t in total]
    pads = less + more if mode == "SAME_UPPER" else more + less
  y = x.conv_transpose2d(w, None, groups=n("group", 1), stride=strides, dilation=dilations, padding=0, output_padding=extra)
  y = y.pad(tuple(-p for p in _flat(pads)))
  return y if b is None else y + b.reshape(1, -1, *[1] * rank)


def _pool(n: _Node, x: Tensor) -> Any:
  kernel = n("kernel_shape")
  rank = len(kernel)
  strides, dilations, ceil = n("strides", [1] * rank), n("dilations", [1] * rank), bool(n("ceil_mode", 0))
  pads = tuple(_flat(_pads(n, x, kernel, strides, dilations)))
  if n.op == "AveragePool":
    return x.avg_pool2d(kernel, strides, dilations, pads, ceil_mode=ceil, count_include_pad=bool(n("count_include_pad", 0)))
  if len(n.outputs) < 2: return x.max_pool2d(kernel, strides, dilations, pads, ceil_mode=ceil)
  y, places = x.max_pool2d(kernel, strides, dilations, pads, ceil_mode=ceil, return_indices=True)
  flat = Tensor.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * rank) * prod(x.shape[2:])
  if n("storage_order", 0): places = places % x.shape[-1] * x.shape[-2] + places // x.shape[-1]
  return y, (places + flat).cast(dtypes.int64)


def _reduce(method: Any) -> Callable[..., Tensor]:
  def run(n: _Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    over = _axes(n, axes)
    if not over and n("noop_with_empty_axes", 0): return method(x, axis=()) if n.op not in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd") else x
    return method(x, axis=tuple(over) if over else tuple(range(x.ndim)), keepdim=bool(n("keepdims", 1)))
  return run


def _prod(x: Tensor, axis: tuple[int, ...], keepdim: bool = False) -> Tensor: return x.prod(axis, keepdim=keepdim)
def _log_sum(x: Tensor, axis: tuple[int, ...], keepdim: bool = False) -> Tensor: return x.sum(axis, keepdim=keepdim).log()
def _l1(x: Tensor, axis: tuple[int, ...], keepdim: bool = False) -> Tensor: return x.abs().sum(axis, keepdim=keepdim)
def _l2(x: Tensor, axis: tuple[int, ...], keepdim: bool = False) -> Tensor: return x.square().sum(axis, keepdim=keepdim).sqrt()
def _sum_square(x: Tensor, axis: tuple[int, ...], keepdim: bool = False) -> Tensor: return x.square().sum(axis, keepdim=keepdim)


def _slice(n: _Node, x: Tensor, starts: Tensor | None = None, ends: Tensor | None = None, axes: Tensor | None = None, steps: Tensor | None = None) -> Tensor:
  begin, end = (_list(starts), _list(ends)) if starts is not None else (n("starts"), n("ends"))
  over = _axes(n, axes) or list(range(len(begin)))
  at = [slice(None)] * x.ndim
  for i, a in enumerate(over):
    step = _list(steps)[i] if steps is not None else 1
    size, b, e = int(x.shape[a]), begin[i], end[i]
    b, e = b + size * (b < 0), e + size * (e < 0)
    if step > 0: at[a] = slice(min(max(b, 0), size), min(max(e, 0), size), step)
    else: at[a] = slice(min(max(b, 0), size - 1), None if e < 0 else min(e, size - 1), step)
  return x[tuple(at)]


def _pad(n: _Node, x: Tensor, pads: Tensor | None = None, value: Tensor | None = None, axes: Tensor | None = None) -> Tensor:
  given = _list(pads) if pads is not None else n("pads") or n("paddings")
  over = [a % x.ndim for a in _list(axes)] if axes is not None else list(range(x.ndim))
  both = [(0, 0)] * x.ndim
  for i, a in enumerate(over): both[a] = (given[i], given[i + len(over)])
  fill = _list(value)[0] if value is not None and value.numel() else n("value", 0.0)
  mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[n("mode", "constant")]
  if mode == "constant": return x.pad(tuple(both), value=fill)
  # Cuts come after, and what is repeated comes by index: any number of axes, any width.
  for a, (before, after) in enumerate(both):
    size = int(x.shape[a])
    at = []
    for i in range(-before, size + after):
      if mode == "replicate": at.append(min(max(i, 0), size - 1))
      elif mode == "circular": at.append(i % size)
      else:
        period = max(1, 2 * (size - 1))
        at.append(min(i % period, period - i % period) if size > 1 else 0)
    if before or after: x = _take(x, a, at)
  return x


def _take(x: Tensor, axis: int, at: list[int]) -> Tensor:
  return x[tuple([slice(None)] * (axis % x.ndim) + [Tensor(at, dtype=dtypes.int32, device=x.device)])]


def _gather_nd(n: _Node, x: Tensor, indices: Tensor) -> Tensor:
  batch, k = n("batch_dims", 0), int(indices.shape[-1])
  lead = tuple(int(s) for s in x.shape[:batch])
  at: list[Any] = []
  for i, s in enumerate(lead): at.append(Tensor.arange(s).reshape(*[1] * i, s, *[1] * (indices.ndim - 2 - i)))
  for j in range(k): at.append(indices[..., j])
  return x[tuple(at)]


def _scatter_nd(n: _Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
  k = int(indices.shape[-1])
  head, rest = [int(s) for s in x.shape[:k]], [int(s) for s in x.shape[k:]]
  place = indices[..., 0] * 0
  for j, s in enumerate(head): place = place * s + (indices[..., j] < 0).where(indices[..., j] + s, indices[..., j])
  flat, width = x.reshape(prod(head), -1), prod(rest)
  at = place.reshape(-1, 1).expand(place.numel(), width)
  values = updates.reshape(place.numel(), width)
  mode = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}.get(n("reduction", "none"))
  return (flat.scatter_reduce(0, at, values, mode) if mode else flat.scatter(0, at, values)).reshape(x.shape)


def _scatter_elements(n: _Node, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
  axis = n("axis", 0)
  indices = (indices < 0).where(indices + x.shape[axis], indices)
  mode = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}.get(n("reduction", "none"))
  return x.scatter_reduce(axis, indices, updates, mode) if mode else x.scatter(axis, indices, updates)


def _norm(x: Tensor, axes: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
  wide = x.cast(dtypes.float32) if x.dtype in (dtypes.float16, dtypes.bfloat16) else x
  mean = wide.mean(axes, keepdim=True)
  inv = ((wide - mean).square().mean(axes, keepdim=True) + eps).rsqrt()
  return ((wide - mean) * inv).cast(x.dtype), mean, inv


def _layer_norm(n: _Node, x: Tensor, scale: Tensor, b: Tensor | None = None) -> Any:
  y, mean, inv = _norm(x, tuple(range(n("axis", -1) % x.ndim, x.ndim)), n("epsilon", 1e-5))
  y = y * scale if b is None else y * scale + b
  return (y, mean, inv)[:len(n.outputs)] if len(n.outputs) > 1 else y


def _rms_norm(n: _Node, x: Tensor, scale: Tensor) -> Tensor:
  axes = tuple(range(n("axis", -1) % x.ndim, x.ndim))
  return x * (x.square().mean(axes, keepdim=True) + n("epsilon", 1e-5)).rsqrt() * scale


def _per_channel(t: Tensor, x: Tensor) -> Tensor: return t.reshape(1, -1, *[1] * (x.ndim - 2))


def _instance_norm(n: _Node, x: Tensor, scale: Tensor, b: Tensor) -> Tensor:
  return _norm(x, tuple(range(2, x.ndim)), n("epsilon", 1e-5))[0] * _per_channel(scale, x) + _per_channel(b, x)


def _group_norm(n: _Node, x: Tensor, scale: Tensor, b: Tensor) -> Tensor:
  groups = n("num_groups")
  y = _norm(x.reshape(x.shape[0], groups, -1), (2,), n("epsilon", 1e-5))[0].reshape(x.shape)
  if scale.shape[0] == groups != x.shape[1]: scale, b = (t.repeat_interleave(int(x.shape[1]) // groups) for t in (scale, b))
  return y * _per_channel(scale, x) + _per_channel(b, x)


def _batch_norm(n: _Node, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
  eps, momentum = n("epsilon", 1e-5), n("momentum", 0.9)
  if not n("training_mode", 0): return x.batchnorm(scale, b, mean, (var + eps).rsqrt())
  axes = tuple(a for a in range(x.ndim) if a != 1)
  m, v = x.mean(axes), x.var(axes, correction=0)
  return x.batchnorm(scale, b, m, (v + eps).rsqrt()), mean * momentum + m * (1 - momentum), var * momentum + v * (1 - momentum)


def _softmax(n: _Node, x: Tensor) -> Tensor:
  method: Any = {"Softmax": Tensor.softmax, "LogSoftmax": Tensor.log_softmax, "Hardmax": _hardmax}[n.op]
  if n.opset >= 13: return method(x, n("axis", -1))
  axis = n("axis", 1) % max(x.ndim, 1)  # older versions see a matrix
  return method(x.reshape(prod(x.shape[:axis]), -1), 1).reshape(x.shape)


def _hardmax(x: Tensor, axis: int) -> Tensor:
  places = Tensor.arange(int(x.shape[axis])).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
  return (x.argmax(axis, keepdim=True) == places).cast(x.dtype)


def _resize(n: _Node, x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None, sizes: Tensor | None = None) -> Tensor:
  if n.op == "Upsample": roi, scales = None, roi
  over = [a % x.ndim for a in n("axes", list(range(x.ndim)))]
  given = [float(s) for s in _list(scales)] or [float(s) for s in n("scales", [])]
  old = [int(x.shape[a]) for a in over]
  if given: new = [int(math.floor(o * s)) for o, s in zip(old, given)]
  else:
    new = [int(s) for s in _list(sizes)]
    given = [s / o for s, o in zip(new, old)]
    policy = n("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
      scale = (min if policy == "not_larger" else max)(given)
      given, new = [scale] * len(old), [int(math.floor(o * scale + 0.5)) for o in old]
  mode, where = n("mode", "nearest"), n("coordinate_transformation_mode", "half_pixel" if n.op == "Resize" and n.opset > 10 else "asymmetric")
  if where == "tf_crop_and_resize" or n("antialias", 0): raise NotImplementedError(f"[onnx] {n} with {where}, antialias={n('antialias', 0)}")
  for a, o, m, s in zip(over, old, new, given):
    if o != m or s != 1: x = _resize_axis(n, x, a, o, m, s, mode, where)
  return x


def _resize_axis(n: _Node, x: Tensor, axis: int, old: int, new: int, scale: float, mode: str, where: str) -> Tensor:
  def source(i: int) -> float:
    if where == "align_corners": return i * (old - 1) / (old * scale - 1) if new > 1 else 0.0
    if where == "asymmetric": return i / scale
    if where == "pytorch_half_pixel" and new == 1: return 0.0
    if where == "half_pixel_symmetric": return old / 2 * (1 - new / (old * scale)) + (i + 0.5) / scale - 0.5
    return (i + 0.5) / scale - 0.5
  if mode == "nearest":
    rounding = n("nearest_mode", "round_prefer_floor" if n.op == "Resize" and n.opset > 10 else "floor")
    pick = {"floor": math.floor, "ceil": math.ceil, "round_prefer_floor": lambda v: math.ceil(v - 0.5), "round_prefer_ceil": lambda v: math.floor(v + 0.5)}[rounding]
    return _take(x, axis, [min(max(int(pick(source(i))), 0), old - 1) for i in range(new)])
  taps, a = (2, 0.0) if mode == "linear" else (4, n("cubic_coeff_a", -0.75))
  indices: list[list[int]] = [[] for _ in range(taps)]
  weights: list[list[float]] = [[] for _ in range(taps)]
  for i in range(new):
    at = source(i)
    first = math.floor(at) - (taps // 2 - 1)
    t = at - math.floor(at)
    if taps == 2: w = [1 - t, t]
    else: w = [((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a, ((a + 2) * t - (a + 3)) * t * t + 1,
               ((a + 2) * (1 - t) - (a + 3)) * (1 - t) ** 2 + 1, ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a]
    if n("exclude_outside", 0):
      w = [v if 0 <= first + k < old else 0.0 for k, v in enumerate(w)]
      w = [v / sum(w) for v in w]
    for k in range(taps):
      indices[k].append(min(max(first + k, 0), old - 1))
      weights[k].append(w[k])
  shape = [1] * x.ndim
  shape[axis] = new
  wide = x if dtypes.is_float(x.dtype) else x.cast(dtypes.float32)
  out = sum((_take(wide, axis, indices[k]) * Tensor(weights[k], dtype=wide.dtype).reshape(shape) for k in range(1, taps)),
            _take(wide, axis, indices[0]) * Tensor(weights[0], dtype=wide.dtype).reshape(shape))
  return out.cast(x.dtype)


def _gemm(n: _Node, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
  y = (a.T if n("transA", 0) else a) @ (b.T if n("transB", 0) else b)
  y = y * n("alpha", 1.0) if n("alpha", 1.0) != 1 else y
  return (y if c is None else y + (c * n("beta", 1.0) if n("beta", 1.0) != 1 else c)).cast(a.dtype)


def _scaled(x: Tensor, scale: Tensor, n: _Node) -> tuple[int, ...]:
  """The shape that spreads scales over x: of all, of an axis, or of blocks of one."""
  axis = n("axis", 1) % max(x.ndim, 1)
  return tuple(-1 if i == axis else 1 for i in range(x.ndim)) if scale.ndim == 1 and scale.numel() > 1 else tuple(scale.shape)


def _spread(t: Tensor, x: Tensor, n: _Node) -> Tensor:
  if t.ndim == x.ndim and n("block_size", 0): return t.repeat_interleave(n("block_size"), n("axis", 1))
  return t.reshape(_scaled(x, t, n)) if t.numel() > 1 else t.reshape(())


def _quantize(n: _Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
  out = zero.dtype if zero is not None else _to(n, n("output_dtype", 0) or 2)
  y = x / _spread(scale, x, n)
  if dtypes.is_float(out): return y.cast(out)
  y = y.round() + (_spread(zero, x, n).cast(y.dtype) if zero is not None else 0)
  return y.clamp(out.min, out.max).cast(out)


def _dequantize(n: _Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
  y = x.cast(dtypes.int32 if not dtypes.is_float(x.dtype) else scale.dtype)
  if zero is not None: y = y - _spread(zero, x, n).cast(y.dtype)
  return y.cast(scale.dtype) * _spread(scale, x, n)


def _dynamic_quantize(n: _Node, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
  least, most = x.min().minimum(0), x.max().maximum(0)
  scale = (most - least) / 255
  zero = (-least / scale).round().clamp(0, 255).cast(dtypes.uint8)
  return ((x / scale).round() + zero.cast(x.dtype)).clamp(0, 255).cast(dtypes.uint8), scale, zero


def _minus(x: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
  x = x.cast(dtypes.int32)
  if zero is None: return x
  zero = zero.cast(dtypes.int32)
  if axis is not None and zero.ndim == 1 and zero.numel() > 1: zero = zero.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
  return x - (zero if zero.numel() > 1 else zero.reshape(()))


def _matmul_integer(n: _Node, a: Tensor, b: Tensor, za: Tensor | None = None, zb: Tensor | None = None) -> Tensor:
  return _minus(a, za, -2).matmul(_minus(b, zb, -1), dtype=dtypes.int32)


def _requantize(y: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
  return (y / scale).round().add(zero.cast(y.dtype)).clamp(zero.dtype.min, zero.dtype.max).cast(zero.dtype)


def _qlinear_matmul(n: _Node, a: Tensor, sa: Tensor, za: Tensor, b: Tensor, sb: Tensor, zb: Tensor, sy: Tensor, zy: Tensor) -> Tensor:
  return _requantize(_matmul_integer(n, a, b, za, zb).cast(dtypes.float32) * (sa * sb).cast(dtypes.float32), sy.cast(dtypes.float32), zy)


def _qlinear_conv(n: _Node, x: Tensor, sx: Tensor, zx: Tensor, w: Tensor, sw: Tensor, zw: Tensor, sy: Tensor, zy: Tensor, b: Tensor | None = None) -> Tensor:
  y = _conv(n, _minus(x, zx), _minus(w, zw, 0), b)
  scale = sx * sw
  return _requantize(y.cast(dtypes.float32) * (_per_channel(scale, y) if scale.numel() > 1 else scale.reshape(())), sy, zy)


def _conv_integer(n: _Node, x: Tensor, w: Tensor, zx: Tensor | None = None, zw: Tensor | None = None) -> Tensor: return _conv(n, _minus(x, zx), _minus(w, zw, 0))


def _split(n: _Node, x: Tensor, split: Tensor | None = None) -> tuple[Tensor, ...]:
  axis, parts = n("axis", 0), _list(split) or n("split")
  if not parts:
    count = n("num_outputs", len(n.outputs))
    each = math.ceil(int(x.shape[axis]) / count)
    parts = [min(each, int(x.shape[axis]) - i * each) for i in range(count)]
  return tuple(x.split(parts, axis))


def _reshape(n: _Node, x: Tensor, shape: Tensor | None = None) -> Tensor:
  want = _list(shape) if shape is not None else n("shape")
  return x.reshape([int(s) if s or n("allowzero", 0) else x.shape[i] for i, s in enumerate(want)])


def _squeeze(n: _Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
  over = _axes(n, axes)
  gone = {a % x.ndim for a in over} if over else {i for i, s in enumerate(x.shape) if s == 1}
  return x.reshape([s for i, s in enumerate(x.shape) if i not in gone])


def _unsqueeze(n: _Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
  over = _axes(n, axes) or []
  for a in sorted(a % (x.ndim + len(over)) for a in over): x = x.unsqueeze(a)
  return x


def _topk(n: _Node, x: Tensor, k: Tensor | None = None) -> tuple[Tensor, Tensor]:
  values, at = x.topk(_list(k)[0] if k is not None else n("k"), n("axis", -1), largest=bool(n("largest", 1)), sorted_=bool(n("sorted", 1)))
  return values, at.cast(dtypes.int64)


def _arg(n: _Node, x: Tensor) -> Tensor:
  axis, keep = n("axis", 0), bool(n("keepdims", 1))
  pick = Tensor.argmax if n.op == "ArgMax" else Tensor.argmin
  if not n("select_last_index", 0): return pick(x, axis, keepdim=keep).cast(dtypes.int64)
  return (x.shape[axis] - 1 - pick(x.flip(axis), axis, keepdim=keep)).cast(dtypes.int64)


def _cumsum(n: _Node, x: Tensor, axis: Tensor) -> Tensor:
  a = _list(axis)[0] % x.ndim
  if n("reverse", 0): x = x.flip(a)
  if n("exclusive", 0): x = x.shrink(tuple((0, s - 1) if i == a else None for i, s in enumerate(x.shape))).pad(tuple((1, 0) if i == a else (0, 0) for i in range(x.ndim)))
  y = x.cumsum(a).cast(x.dtype)
  return y.flip(a) if n("reverse", 0) else y


def _one_hot(n: _Node, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
  d, axis = int(_list(depth)[0]), n("axis", -1) % (indices.ndim + 1)
  indices = indices.cast(dtypes.int64)
  at = (indices < 0).where(indices + d, indices).unsqueeze(axis)
  hot = at == Tensor.arange(d).reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
  return hot.where(values[1], values[0])


def _depth_to_space(n: _Node, x: Tensor) -> Tensor:
  b, c, h, w = x.shape
  s = n("blocksize")
  if n("mode", "DCR") == "CRD": return x.reshape(b, c // (s * s), s, s, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // (s * s), h * s, w * s)
  return x.reshape(b, s, s, c // (s * s), h, w).permute(0, 3, 4, 1, 5, 2).reshape(b, c // (s * s), h * s, w * s)


def _space_to_depth(n: _Node, x: Tensor) -> Tensor:
  b, c, h, w = x.shape
  s = n("blocksize")
  order = (0, 3, 5, 1, 2, 4) if n("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
  return x.reshape(b, c, h // s, s, w // s, s).permute(order).reshape(b, c * s * s, h // s, w // s)


def _lrn(n: _Node, x: Tensor) -> Tensor:
  size = n("size")
  around = x.square().unsqueeze(1).reshape(x.shape[0], 1, x.shape[1], -1)
  around = around.pad((0, 0, (size - 1) // 2, size // 2)).avg_pool2d((size, 1), 1).reshape(x.shape)
  return x / (n("bias", 1.0) + n("alpha", 1e-4) * around) ** n("beta", 0.75)


def _where(n: _Node, c: Tensor, x: Tensor, y: Tensor) -> Tensor: return c.where(x, y)


def _clip(n: _Node, x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Tensor:
  low, high = least if least is not None else n("min"), most if most is not None else n("max")
  if low is not None: x = x.maximum(low)
  return (x.minimum(high) if high is not None else x).cast(x.dtype)


def _mod(n: _Node, a: Tensor, b: Tensor) -> Tensor: return a.fmod(b) if n("fmod", 0) else a % b


def _div(n: _Node, a: Tensor, b: Tensor) -> Tensor: return a.div(b, rounding_mode="trunc").cast(a.dtype) if not dtypes.is_float(a.dtype) else a / b


def _dropout(n: _Node, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> Any:
  p = float(_list(ratio)[0]) if ratio is not None else n("ratio", 0.5)
  if training is None or not _list(training)[0] or p == 0: return (x, Tensor.ones(*x.shape, dtype=dtypes.bool))[:len(n.outputs)] if len(n.outputs) > 1 else x
  mask = Tensor.rand(*x.shape) >= p
  return (mask.where(x / (1 - p), 0).cast(x.dtype), mask)[:len(n.outputs)] if len(n.outputs) > 1 else mask.where(x / (1 - p), 0).cast(x.dtype)


def _constant(n: _Node) -> Tensor:
  for name, dtype in {"value_float": dtypes.float32, "value_floats": dtypes.float32, "value_int": dtypes.int64, "value_ints": dtypes.int64}.items():
    if name in n.attributes: return Tensor(n(name), dtype=dtype)
  if isinstance(n("value"), Tensor): return n("value")
  raise NotImplementedError(f"[onnx] {n} holds {', '.join(n.attributes)}; expected a tensor or numbers")


def _constant_of_shape(n: _Node, shape: Tensor) -> Tensor:
  value = n("value")
  return Tensor.full([int(s) for s in _list(shape)], 0.0 if value is None else _list(value)[0], dtype=dtypes.float32 if value is None else value.dtype)


def _shape(n: _Node, x: Tensor) -> Tensor:
  sizes = [int(s) for s in x.shape][slice(n("start", 0), n("end"))]
  return Tensor(sizes, dtype=dtypes.int64) if sizes else Tensor.empty(0, dtype=dtypes.int64)


def _range(n: _Node, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
  return Tensor.arange(_list(start)[0], _list(limit)[0], _list(delta)[0], dtype=start.dtype)


def _eye_like(n: _Node, x: Tensor) -> Tensor:
  rows, columns = (int(s) for s in x.shape)
  i, j = Tensor.arange(rows).reshape(-1, 1), Tensor.arange(columns).reshape(1, -1)
  return (j == i + n("k", 0)).cast(_to(n, n("dtype")) if n("dtype") else x.dtype)


def _window(n: _Node, size: Tensor) -> Tensor:
  count = int(_list(size)[0])
  terms = {"HannWindow": (0.5, -0.5, 0.0), "HammingWindow": (25 / 46, -21 / 46, 0.0), "BlackmanWindow": (0.42, -0.5, 0.08)}[n.op]
  turn = Tensor.arange(count).cast(dtypes.float32) * (2 * math.pi / (count if n("periodic", 1) else count - 1))
  return (terms[0] + terms[1] * turn.cos() + terms[2] * (2 * turn).cos()).cast(_to(n, n("output_datatype", 1)))


def _trilu(n: _Node, x: Tensor, k: Tensor | None = None) -> Tensor:
  return (x.triu if n("upper", 1) else x.tril)(int(_list(k)[0]) if k is not None else 0)


def _lp_norm(n: _Node, x: Tensor) -> Tensor:
  axis = n("axis", -1)
  norm = x.abs().sum(axis, keepdim=True) if n("p", 2) == 1 else x.square().sum(axis, keepdim=True).sqrt()
  return (norm == 0).where(0, x / norm)


def _mean_variance(n: _Node, x: Tensor) -> Tensor:
  axes = tuple(n("axes", [0, 2, 3]))
  return (x - x.mean(axes, keepdim=True)) / (x.std(axes, keepdim=True, correction=0) + 1e-9)


def _gelu(n: _Node, x: Tensor) -> Tensor: return x.gelu() if n("approximate", "none") == "tanh" else 0.5 * x * (1 + (x / math.sqrt(2)).erf())


def _nll(n: _Node, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
  scores = x.log_softmax(1) if n.op == "SoftmaxCrossEntropyLoss" else x
  loss = scores.nll_loss(target, weight, n("ignore_index"), reduction=n("reduction", "mean"))
  return (loss, scores) if len(n.outputs) > 1 else loss


def _attention(n: _Node, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, past_k: Tensor | None = None, past_v: Tensor | None = None,
               lengths: Tensor | None = None) -> Any:
  known = {"is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision"}
  if set(n.attributes) - known or n("qk_matmul_output_mode", 0):
    raise NotImplementedError(f"[onnx] {n} with {n.attributes}; attributes that whit knows are {sorted(known)}, and only the plain product is given out")
  flat = q.ndim == 3
  if flat:
    heads, kv = n("q_num_heads"), n("kv_num_heads")
    q, k, v = (t.reshape(t.shape[0], t.shape[1], h, -1).transpose(1, 2) for t, h in ((q, heads), (k, kv), (v, kv)))
  before = 0 if past_k is None else int(past_k.shape[2])
  if past_k is not None and past_v is not None: k, v = past_k.cat(k, dim=2), past_v.cat(v, dim=2)
  present, groups = (k, v), int(q.shape[1]) // int(k.shape[1])
  if groups > 1: k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
  rows, columns = int(q.shape[2]), int(k.shape[2])
  scale = n("scale") if n("scale") is not None else 1 / math.sqrt(int(q.shape[-1]))
  scores = product = (q * math.sqrt(scale)) @ (k * math.sqrt(scale)).transpose(-1, -2)
  if n("softcap", 0.0): scores = (scores / n("softcap")).tanh() * n("softcap")
  i, j = Tensor.arange(rows).reshape(-1, 1), Tensor.arange(columns).reshape(1, -1)
  allowed = Tensor.ones(1, 1, rows, columns, dtype=dtypes.bool)
  if lengths is not None:
    lengths = lengths.reshape(-1, 1, 1, 1)
    allowed = allowed & (j < lengths)
  if n("is_causal", 0): allowed = allowed & (j <= i + (before if lengths is None else lengths - rows))
  if mask is not None:
    if mask.ndim and mask.shape[-1] < columns: mask = mask.pad((0, columns - int(mask.shape[-1])), value=False if mask.dtype == dtypes.bool else -math.inf)
    if mask.dtype == dtypes.bool: allowed = allowed & mask
    else: scores = scores + mask
  scores = allowed.where(scores, -math.inf)
  weights = (scores.max(-1, keepdim=True) == -math.inf).where(0, scores.softmax(-1)).cast(q.dtype)  # of nothing at all: nothing
  y = (weights @ v).cast(q.dtype)
  y = y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1) if flat else y
  return (y, *present, product)[:len(n.outputs)] if len(n.outputs) > 1 else y


def _rotary(n: _Node, x: Tensor, cos: Tensor, sin: Tensor, position: Tensor | None = None) -> Tensor:
  flat = x.ndim == 3
  if flat: x = x.reshape(x.shape[0], x.shape[1], n("num_heads"), -1).transpose(1, 2)
  width = n("rotary_embedding_dim", 0) or int(x.shape[-1])
  turned, rest = x[..., :width], x[..., width:]
  if position is not None: cos, sin = cos[position], sin[position]
  cos, sin = (t[..., :width // 2].unsqueeze(1) for t in (cos, sin))
  a, b = (turned[..., 0::2], turned[..., 1::2]) if n("interleaved", 0) else (turned[..., :width // 2], turned[..., width // 2:])
  real, imag = a * cos - b * sin, a * sin + b * cos
  y = real.unsqueeze(-1).cat(imag.unsqueeze(-1), dim=-1).flatten(-2) if n("interleaved", 0) else real.cat(imag, dim=-1)
  y = y.cat(rest, dim=-1) if width < x.shape[-1] else y
  return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1) if flat else y


def _skip_layer_norm(n: _Node, x: Tensor, skip: Tensor, scale: Tensor, b: Tensor | None = None, bias: Tensor | None = None) -> Any:
  total = x + skip if bias is None else x + skip + bias
  y, mean, inv = _norm(total, (-1,), n("epsilon", 1e-12))
  y = y * scale if b is None else y * scale + b
  return (y, mean, inv, total)[:len(n.outputs)] if len(n.outputs) > 1 else y


def _qlinear(method: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
  def run(n: _Node, a: Tensor, sa: Tensor, za: Tensor, b: Tensor, sb: Tensor, zb: Tensor, sy: Tensor, zy: Tensor) -> Tensor:
    return _requantize(method(_minus(a, za) * sa, _minus(b, zb) * sb), sy, zy)
  return run


def _unpool(n: _Node, x: Tensor, places: Tensor, shape: Tensor | None = None) -> Tensor:
  rank = x.ndim - 2
  kernel, strides, pads = n("kernel_shape"), n("strides", [1] * rank), n("pads", [0] * 2 * rank)
  sizes = [(int(s) - 1) * t + k - pads[i] - pads[i + rank] for i, (s, t, k) in enumerate(zip(x.shape[2:], strides, kernel))]
  first = prod(sizes) * Tensor.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * rank)
  inner = (places - first).reshape(x.shape[0], x.shape[1], -1).cast(dtypes.int32)  # of the inferred shape, as it is numbered
  y = Tensor.zeros(x.shape[0], x.shape[1], prod(sizes), dtype=x.dtype).scatter(2, inner, x.reshape(x.shape[0], x.shape[1], -1)).reshape(*x.shape[:2], *sizes)
  want = [int(s) for s in _list(shape)] or [int(s) for s in y.shape]
  return y.pad(tuple((0, w - int(s)) for w, s in zip(want, y.shape)))


def _if(n: _Node, condition: Tensor, values: dict[str, Any] | None = None) -> Any:
  graph = n("then_branch") if _list(condition)[0] else n("else_branch")
  inner = {**(values or {}), **{t.get("name", ""): _tensor(t, n.folder) for t in graph["initializer"]}}
  _run_nodes([_Node(m, n.opset, n.folder) for m in graph["node"]], inner)
  return tuple(inner[v["name"]] for v in graph["output"])


def _fold(method: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
  def run(n: _Node, x: Tensor, *more: Tensor) -> Tensor:
    for y in more: x = method(x, y)
    return x
  return run


def _unary(method: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]: return lambda n, x: method(x)
def _binary(method: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]: return lambda n, x, y: method(x, y)


onnx_ops: dict[str, Callable[..., Any]] = {
  **{name: _unary(getattr(Tensor, name.lower())) for name in (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log", "Mish", "Neg", "Reciprocal", "Relu",
    "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh")},
  **{name: _binary(method) for name, method in {
    "Add": Tensor.add, "Sub": Tensor.sub, "Mul": Tensor.mul, "And": Tensor.bitwise_and, "Or": Tensor.bitwise_or, "Xor": Tensor.bitwise_xor,
    "BitwiseAnd": Tensor.bitwise_and, "BitwiseOr": Tensor.bitwise_or, "BitwiseXor": Tensor.bitwise_xor, "Equal": Tensor.eq,
    "Greater": lambda x, y: x > y, "GreaterOrEqual": lambda x, y: x >= y, "Less": lambda x, y: x < y, "LessOrEqual": lambda x, y: x <= y,
    "MatMul": Tensor.matmul, "Pow": lambda x, y: x.pow(y).cast(x.dtype)}.items()},
  "Div": _div, "Mod": _mod, "Not": _unary(Tensor.logical_not), "BitwiseNot": _unary(Tensor.bitwise_not), "Identity": lambda n, x: x,
  "BitShift": lambda n, x, y: x << y if n("direction") == "LEFT" else x >> y,
  "IsNaN": _unary(Tensor.isnan), "IsInf": lambda n, x: x.isinf(bool(n("detect_positive", 1)), bool(n("detect_negative", 1))),
  "Max": _fold(Tensor.maximum), "Min": _fold(Tensor.minimum), "Sum": _fold(Tensor.add), "Mean": lambda n, *xs: _fold(Tensor.add)(n, *xs) / len(xs),
  "Celu": lambda n, x: x.celu(n("alpha", 1.0)), "Elu": lambda n, x: x.elu(n("alpha", 1.0)), "LeakyRelu": lambda n, x: x.leaky_relu(n("alpha", 0.01)),
  "Selu": lambda n, x: x.selu(n("alpha", 1.6732632423543772), n("gamma", 1.0507009873554805)), "ThresholdedRelu": lambda n, x: (x > n("alpha", 1.0)).where(x, 0),
  "HardSigmoid": lambda n, x: x.hardsigmoid(n("alpha", 0.2), n("beta", 0.5)), "HardSwish": _unary(Tensor.hardswish), "Gelu": _gelu,
  "Swish": lambda n, x: x * (x * n("alpha", 1.0)).sigmoid(), "PRelu": lambda n, x, slope: (x < 0).where(x * slope, x),
  "Shrink": lambda n, x: (x < -n("lambd", 0.5)).where(x + n("bias", 0.0), (x > n("lambd", 0.5)).where(x - n("bias", 0.0), 0)).cast(x.dtype),
  "FastGelu": lambda n, x, b=None: (x if b is None else x + b).gelu(), "BiasGelu": lambda n, x, b: _gelu(n, x + b),
  "Softmax": _softmax, "LogSoftmax": _softmax, "Hardmax": _softmax, "Clip": _clip, "Where": _where, "Dropout": _dropout,
  **{f"Reduce{name}": _reduce(method) for name, method in {
    "Sum": Tensor.sum, "Mean": Tensor.mean, "Max": Tensor.max, "Min": Tensor.min, "Prod": _prod, "LogSumExp": Tensor.logsumexp, "LogSum": _log_sum, "L1": _l1,
    "L2": _l2, "SumSquare": _sum_square}.items()},
  "ArgMax": _arg, "ArgMin": _arg, "CumSum": _cumsum, "TopK": _topk, "Trilu": _trilu, "OneHot": _one_hot, "Einsum": lambda n, *xs: Tensor.einsum(n("equation"), *xs),
  "Cast": lambda n, x: _cast(x, _to(n, n("to"))), "CastLike": lambda n, x, y: _cast(x, y.dtype),
  "Constant": _constant, "ConstantOfShape": _constant_of_shape, "Shape": _shape, "Size": lambda n, x: Tensor(x.numel(), dtype=dtypes.int64), "Range": _range,
  "EyeLike": _eye_like, "HannWindow": _window, "HammingWindow": _window, "BlackmanWindow": _window,
  "Reshape": _reshape, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Slice": _slice, "Split": _split, "Pad": _pad,
  "Flatten": lambda n, x: x.reshape(prod(x.shape[:n("axis", 1) + (x.ndim if n("axis", 1) < 0 else 0)]), -1),
  "Transpose": lambda n, x: x.permute(n("perm") or list(range(x.ndim))[::-1]), "Concat": lambda n, *xs: Tensor.cat(*xs, dim=n("axis", 1)),
  "Expand": lambda n, x, shape: x * 1 if not _list(shape) else x.expand(_broadcast(x.shape, _list(shape))), "Tile": lambda n, x, times: x.repeat(_list(times)),
  "Gather": lambda n, x, at: _gather(x, at, n("axis", 0)), "GatherND": _gather_nd, "ScatterND": _scatter_nd,
  "GatherElements": lambda n, x, at: x.gather(n("axis", 0), (at < 0).where(at + x.shape[n("axis", 0)], at)),
  "ScatterElements": _scatter_elements, "Scatter": _scatter_elements, "NonZero": lambda n, x: x.nonzero().T.cast(dtypes.int64),
  "Compress": lambda n, x, c: _compress(x, c, n("axis")), "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth,
  "Resize": _resize, "Upsample": _resize,
  "Gemm": _gemm, "Conv": _conv, "ConvTranspose": _conv_transpose, "MaxPool": _pool, "AveragePool": _pool,
  "GlobalAveragePool": lambda n, x: x.mean(tuple(range(2, x.ndim)), keepdim=True), "GlobalMaxPool": lambda n, x: x.max(tuple(range(2, x.ndim)), keepdim=True),
  "BatchNormalization": _batch_norm, "LayerNormalization": _layer_norm, "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm,
  "RMSNormalization": _rms_norm, "SimplifiedLayerNormalization": _rms_norm, "LRN": _lrn, "LpNormalization": _lp_norm, "MeanVarianceNormalization": _mean_variance,
  "NegativeLogLikelihoodLoss": _nll, "SoftmaxCrossEntropyLoss": _nll, "Attention": _attention, "RotaryEmbedding": _rotary, "SkipLayerNormalization": _skip_layer_norm,
  "MaxUnpool": _unpool, "If": _if, "ArrayFeatureExtractor": lambda n, x, at: _gather(x, at.flatten(), -1),
  "Binarizer": lambda n, x: (x > n("threshold", 0.0)).cast(x.dtype),
  "QuantizeLinear": _quantize, "DequantizeLinear": _dequantize, "DynamicQuantizeLinear": _dynamic_quantize, "MatMulInteger": _matmul_integer,
  "ConvInteger": _conv_integer, "QLinearMatMul": _qlinear_matmul, "QLinearConv": _qlinear_conv, "QLinearAdd": _qlinear(Tensor.add), "QLinearMul": _qlinear(Tensor.mul),
  "OptionalHasElement": lambda n, x=None: Tensor(x is not None), "OptionalGetElement": lambda n, x: x,
}


def _broadcast(a: Sequence[Any], b: Sequence[Any]) -> list[int]:
  rank = max(len(a), len(b))
  x, y = [1] * (rank - len(a)) + [int(s) for s in a], [1] * (rank - len(b)) + [int(s) for s in b]
  return [max(i, j) if i and j else 0 for i, j in zip(x, y)]


def _gather(x: Tensor, at: Tensor, axis: int) -> Tensor: return x[tuple([slice(None)] * (axis % x.ndim) + [at])]


def _compress(x: Tensor, condition: Tensor, axis: int | None) -> Tensor:
  if axis is None: x, axis = x.flatten(), 0
  kept = [i for i, keep in enumerate(_list(condition)) if keep]
  return _take(x, axis, kept) if kept else x.shrink(tuple((0, 0) if i == axis % x.ndim else None for i in range(x.ndim)))


def _run_nodes(nodes: list[_Node], values: dict[str, Any], level: int = 0) -> None:
  """Computes nodes in order; `values` holds what they take by name, and then what they give."""
  for node in nodes:
    unknown = [name for name in node.inputs if name not in values]
    if unknown: raise ValueError(f"[onnx] {node} takes {', '.join(unknown)}, which nothing before it gives")
    args = [values[name] for name in node.inputs]
    if level >= 3: print(f"[onnx] {node}: {[None if a is None else getattr(a, 'shape', a) for a in args]} {node.attributes}")
    try: out = onnx_ops[node.op](node, *args, **({"values": values} if node.op == "If" else {}))
    except KeyError as e: raise NotImplementedError(f"[onnx] {node} of a branch, or an attribute of it: {e}") from e
    except (ValueError, TypeError, IndexError, RuntimeError, NotImplementedError) as e:
      shapes = ", ".join(f"{name} {getattr(a, 'shape', a)}" for name, a in zip(node.inputs, args))
      raise type(e)(f"[onnx] {node} of {shapes}: {e}") from e
    values.update((name, o) for name, o in zip(node.outputs, out if isinstance(out, tuple) else (out,)) if name)


class OnnxRunner:
  """A model of an ONNX file (its path, its bytes, or a tensor of uint8), callable with a dict of inputs: it gives a dict of its outputs.

  `graph_inputs` and `graph_outputs` say what it takes and gives, `graph_values` holds its weights by name. Data that decides a shape is
  read when the graph is built. A model with an op that is not in `onnx_ops`: NotImplementedError when it is read, which names the ops.

  >>> relu = b"\\x0a\\x01x\\x12\\x01y\\x22\\x04Relu"  # a NodeProto: x, y, "Relu"
  >>> value = lambda name: b"\\x0a\\x01" + name + b"\\x12\\x0a\\x0a\\x08\\x08\\x01\\x12\\x04\\x0a\\x02\\x08\\x02"  # of 2 floats
  >>> graph = b"\\x0a\\x0c" + relu + b"\\x5a\\x0f" + value(b"x") + b"\\x62\\x0f" + value(b"y")
  >>> model = OnnxRunner(b"\\x3a" + bytes([len(graph)]) + graph + b"\\x42\\x02\\x10\\x0d")
  >>> model.graph_inputs["x"].shape, model({"x": Tensor([-1.0, 2.0])})["y"].tolist()
  ((2,), [0.0, 2.0])
  """

  def __init__(self, model_path: str | pathlib.Path | bytes | Tensor):
    folder = None
    if isinstance(model_path, Tensor): model_path = bytes(model_path.data())
    if isinstance(model_path, (str, pathlib.Path)):
      folder = pathlib.Path(model_path).parent
      model_path = pathlib.Path(model_path).read_bytes()
    model = _parse(memoryview(model_path), "Model")
    if "graph" not in model: raise ValueError("[onnx] there is no graph in it: this is no ONNX model")
    if model["functions"]: raise NotImplementedError("[onnx] the model defines functions of its own; inline them first (onnx.inliner)")
    self.opset = max((o.get("version", 1) for o in model["opset_import"] if o.get("domain", "") in ("", "ai.onnx")), default=1)
    graph = model["graph"]
    if graph["sparse_initializer"]: raise NotImplementedError("[onnx] the model has sparse weights")
    self.graph_values: dict[str, Any] = {t.get("name", ""): _tensor(t, folder) for t in graph["initializer"]}
    self.graph_inputs = {v["name"]: _value(v) for v in graph["input"] if v["name"] not in self.graph_values}
    self.graph_outputs = {v["name"]: _value(v) for v in graph["output"]}
    self.nodes = [_Node(n, self.opset, folder) for n in graph["node"]]
    missing = sorted({n.op for n in self.nodes if n.op not in onnx_ops})
    if missing: raise NotImplementedError(f"[onnx] ops that whit does not have: {', '.join(missing)}; whit.nn.onnx.onnx_ops is the table, and may be added to")

  def to(self, device: str | None) -> OnnxRunner:
    """Moves the weights, in place."""
    self.graph_values = {k: v.to(device) for k, v in self.graph_values.items()}
    return self

  def get_empty_input_data(self, device: str | None = None, dtype: DType | None = None) -> dict[str, Tensor]:
    """Inputs of the right shapes with any contents; sizes that are names are 1."""
    return {k: Tensor.empty(*(s if isinstance(s, int) else 1 for s in v.shape), device=device, dtype=dtype or v.dtype) for k, v in self.graph_inputs.items()}

  def _check(self, inputs: dict[str, Any]) -> dict[str, Any]:
    out, names = {}, dict[str, int]()
    for name in inputs:
      if name not in self.graph_inputs: raise RuntimeError(f"[onnx] there is no input '{name}'; the model takes {', '.join(self.graph_inputs)}")
    for name, spec in self.graph_inputs.items():
      if name not in inputs:
        if not spec.is_optional: raise RuntimeError(f"[onnx] input '{name}' {spec.shape} of {spec.dtype} is missing")
        continue
      x = inputs[name]
      if spec.is_sequence or x is None:
        out[name] = x
        continue
      x = x if isinstance(x, Tensor) else Tensor(x, dtype=spec.dtype)
      if x.dtype != spec.dtype: raise RuntimeError(f"[onnx] input '{name}' is {x.dtype}, expected {spec.dtype}")
      if len(spec.shape) != x.ndim and spec.shape: raise RuntimeError(f"[onnx] input '{name}' has shape {x.shape}, expected {spec.shape}")
      for want, got in zip(spec.shape, x.shape):
        known = want if isinstance(want, int) else got if want == "?" else names.setdefault(want, int(got))
        if known != got: raise RuntimeError(f"[onnx] input '{name}' has shape {x.shape}, expected {spec.shape}" + (f" with {want} = {known}" if want != known else ""))
      out[name] = x
    return out

  def __call__(self, inputs: dict[str, Any], debug: int | None = None) -> dict[str, Any]:
    values: dict[str, Any] = {"": None, **self.graph_values, **self._check(inputs)}
    level = DEBUG.value if debug is None else debug
    _run_nodes(self.nodes, values, level)
    unknown = [name for name in self.graph_outputs if name not in values]
    if unknown: raise ValueError(f"[onnx] the model's output {', '.join(unknown)} is given by no node")
    return {name: values[name] for name in self.graph_outputs}


def __getattr__(name: str) -> Any: raise missing(__name__, name)
