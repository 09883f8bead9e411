"""Weights: collecting them from objects, loading and saving files."""
from __future__ import annotations

import io
import pathlib
from collections import OrderedDict
from typing import Any

from whit.arguments import check_all
from whit import _whit
from whit.hints import missing
from whit.dtype import dtypes
from whit.helpers import DEBUG, GlobalCounters, Timing, tqdm
from whit.tensor import Tensor


def get_state_dict(obj: Any, prefix: str = "", tensor_type: type[Tensor] = Tensor) -> dict[str, Tensor]:
  """All tensors of an object by dotted name: attributes, lists, tuples and dicts are walked. The prefix carries its own dot.

  >>> from whit import nn
  >>> list(get_state_dict(nn.Linear(2, 3)))
  ['weight', 'bias']
  """
  return _walk(obj, prefix, tensor_type, frozenset())


def _walk(obj: Any, prefix: str, tensor_type: type[Tensor], above: frozenset[int]) -> dict[str, Tensor]:
  if isinstance(obj, tensor_type): return {prefix.strip("."): obj}
  if id(obj) in above: return {}  # an object that holds itself, as with a link to its parent
  above |= {id(obj)}
  if hasattr(obj, "_asdict"): return _walk(obj._asdict(), prefix, tensor_type, above)  # namedtuple
  if isinstance(obj, OrderedDict): return _walk(dict(obj), prefix, tensor_type, above)
  if hasattr(obj, "__dict__"): return _walk(obj.__dict__, prefix, tensor_type, above)
  out: dict[str, Tensor] = {}
  if isinstance(obj, (list, tuple)):
    for i, x in enumerate(obj): out.update(_walk(x, f"{prefix}{i}.", tensor_type, above))
  elif isinstance(obj, dict):
    for k, v in obj.items(): out.update(_walk(v, f"{prefix}{k}.", tensor_type, above))
  return out


def get_parameters(obj: Any) -> list[Tensor]:
  """The tensors of `get_state_dict` as a list.

  >>> from whit import nn
  >>> len(get_parameters([nn.Linear(2, 3), nn.Linear(3, 1)]))
  4
  """
  return list(get_state_dict(obj).values())


def load_state_dict(model: Any, state_dict: dict[str, Tensor], strict: bool = True, verbose: bool = True, consume: bool = False, realize: bool = True) -> list[Tensor]:
  """Gives the model's tensors the values (and dtypes) of the dict; a missing name is a KeyError when strict, another shape a ValueError.

  Names that the model does not have are ignored. `verbose` prints what was loaded and how fast.

  >>> from whit import nn
  >>> a, b = nn.Linear(2, 3), nn.Linear(2, 3)
  >>> _ = load_state_dict(a, get_state_dict(b), verbose=False)
  >>> a.weight.tolist() == b.weight.tolist()
  True
  """
  out: list[Tensor] = []
  before = GlobalCounters.mem_used
  def loaded(ns: float) -> str: return f", {(n := GlobalCounters.mem_used - before) / 1e9:.2f} GB loaded at {n / ns:.2f} GB/s"
  with Timing("loaded weights in ", loaded, enabled=verbose):
    model_state = get_state_dict(model)
    if DEBUG >= 1 and len(state_dict) > len(model_state):
      print("WARNING: unused weights in state_dict", sorted(set(state_dict) - set(model_state)))
    bar = tqdm(model_state.items(), disable=None if verbose else True)
    for k, v in bar:
      bar.desc = f"ram used: {GlobalCounters.mem_used / 1e9:5.2f} GB, {k:50s}: "
      if k not in state_dict:
        if strict: raise KeyError(f"[load_state_dict] {k} is not in the state dict")
        if DEBUG >= 1: print(f"WARNING: not loading {k}")
        continue
      new = state_dict[k]
      if v.shape != new.shape:
        if {(), (1,)} == {tuple(v.shape), tuple(new.shape)}: new = new.reshape(v.shape)
        else: raise ValueError(f"[load_state_dict] shape mismatch in layer {k}: expected shape {v.shape}, found {new.shape}")
      sharded = isinstance(v.device, tuple) and not isinstance(new.device, tuple)
      value = new.shard(v.device, v.uop.axis) if sharded else new.to(v.device)
      # In place where that is the same: who has captured the memory of the weights sees the new ones.
      if realize and v.uop.is_realized and v.dtype == value.dtype: v.assign(value)
      else: v.replace(value)
      if realize: v.realize()
      if consume: del state_dict[k]
      out.append(v)
  return out


def safe_load_metadata(t: Tensor | str | pathlib.Path) -> tuple[Tensor, int, dict[str, Any]]:
  """The bytes, where the data starts in them, and the header, of a safetensors file (https://huggingface.co/docs/safetensors).

  >>> import tempfile
  >>> fn = tempfile.mkdtemp() + "/w.safetensors"
  >>> safe_save({"w": Tensor([1.0])}, fn, {"made by": "whit"})
  >>> safe_load_metadata(fn)[2]["__metadata__"]
  {'made by': 'whit'}
  """
  return (t if isinstance(t, Tensor) else Tensor(pathlib.Path(t)), *_whit.safe_load_metadata(t))


def safe_load(fn: Tensor | str | pathlib.Path) -> dict[str, Tensor]:
  """The tensors of a safetensors file, read when they are wanted. A file that lies about itself is refused with its name and the offset.

  >>> import tempfile
  >>> fn = tempfile.mkdtemp() + "/w.safetensors"
  >>> safe_save({"w": Tensor([1.0])}, fn)
  >>> safe_load(fn)["w"].tolist()
  [1.0]
  """
  return _whit.safe_load(fn)


def safe_save(tensors: dict[str, Tensor], fn: str, metadata: dict[str, Any] | None = None) -> None:
  """Writes a safetensors file, whole or not at all.

  >>> import tempfile
  >>> safe_save({"w": Tensor([1.0])}, tempfile.mkdtemp() + "/w.safetensors")
  """
  _whit.safe_save(tensors, str(fn), metadata or {})


def save_checkpoint(fn: str | pathlib.Path, obj: Any, metadata: dict[str, Any] | None = None) -> None:
  """Writes what a training run needs to go on as if it had not stopped: the tensors of `obj` (a dict of model, optimiser, plan ...) and the random streams.

  >>> import tempfile
  >>> from whit import nn
  >>> model = nn.Linear(2, 1)
  >>> opt = nn.optim.Adam(get_parameters(model))
  >>> fn = tempfile.mkdtemp() + "/run.safetensors"
  >>> save_checkpoint(fn, {"model": model, "opt": opt}, {"step": 5})
  >>> load_checkpoint(fn, {"model": model, "opt": opt})
  {'step': '5'}
  """
  _whit.save_checkpoint(get_state_dict(obj), str(fn), metadata or {})


def load_checkpoint(fn: str | pathlib.Path, obj: Any) -> dict[str, str]:
  """Restores what `save_checkpoint` wrote, bit for bit, into the tensors of `obj`, also for functions that TinyJit has captured. Gives the metadata.

  A name that only one side has is a KeyError, another shape or dtype a ValueError, before anything is changed.

  >>> import tempfile
  >>> fn, t = tempfile.mkdtemp() + "/run.safetensors", Tensor([1.0])
  >>> save_checkpoint(fn, [t])
  >>> _ = t.assign(Tensor([2.0])).realize()
  >>> load_checkpoint(fn, [t]), t.tolist()
  ({}, [1.0])
  """
  return _whit.load_checkpoint(get_state_dict(obj), str(fn))


class Dummy:
  """Stands for an object of a class that `torch_load` does not know: its state as attributes, no behaviour.

  >>> Dummy("pickle_module.Config")
  <Dummy of pickle_module.Config>
  """

  def __init__(self, class_name: str) -> None: self.class_name = class_name
  def __repr__(self) -> str: return f"<Dummy of {self.class_name}>"


def torch_load(t: Tensor | str | pathlib.Path) -> Any:
  """The object in a file that `torch.save` wrote (zip, legacy or tar format), with Tensors for its tensors, parameters and NumPy arrays.

  The pickle inside is read as data by the C++ API: nothing is imported or called. Objects of unknown classes become `Dummy`; a file that wants to
  call anything but the constructors of plain values is refused, as is one that is damaged or claims more than it holds (OSError).

  >>> import io, pickle
  >>> torch_load(Tensor(b"no file of PyTorch"))
  Traceback (most recent call last):
  OSError: [torch_load] <tensor>: offset 0: it is neither a zip nor a tar file, nor has it the old magic number
  """
  return _whit.torch_load(t, Dummy)


def gguf_load(fn: Tensor | str | pathlib.Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
  """The metadata and the tensors of a GGUF file (llama.cpp), quantised ones unpacked to float32; a model in parts by the path of its first.

  >>> import struct
  >>> head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"w" + struct.pack("<IQIQ", 1, 2, 0, 0)
  >>> gguf_load(Tensor(head.ljust(64, b"\\0") + struct.pack("<2f", 1, 2)))[1]["w"].tolist()
  [1.0, 2.0]
  """
  metadata, tensors = _whit.gguf_load(fn)
  return metadata, tensors


def ggml_data_to_tensor(t: Tensor, n: int, ggml_type: int) -> Tensor:
  """n elements out of bytes in a format of ggml (native or quantised, by its number there). Another number is a ValueError.

  >>> ggml_data_to_tensor(Tensor(b"\\0<" + bytes(range(16))), 32, 2).tolist()[:3]
  [-8.0, -7.0, -6.0]
  """
  return _whit.ggml_data_to_tensor(t, n, ggml_type)


def zip_extract(t: Tensor | str | pathlib.Path) -> dict[str, Tensor]:
  """The files of a zip archive, by name, as uint8 tensors. Names that would leave the folder, overlaps and wrong checksums are refused.

  >>> import tempfile, zipfile
  >>> fn = tempfile.mkdtemp() + "/a.zip"
  >>> with zipfile.ZipFile(fn, "w") as z: z.writestr("x", b"abc")
  >>> zip_extract(fn)["x"].tolist()
  [97, 98, 99]
  """
  return _whit.zip_extract(t)


def tar_extract(t: Tensor | str | pathlib.Path) -> dict[str, Tensor]:
  """The regular files of a tar archive, also gzipped, by name, as uint8 tensors. Checked as `zip_extract` does.

  >>> import io, tarfile
  >>> out = io.BytesIO()
  >>> with tarfile.open(fileobj=out, mode="w") as t:
  ...   info = tarfile.TarInfo("x"); info.size = 3; t.addfile(info, io.BytesIO(b"abc"))
  >>> tar_extract(Tensor(out.getvalue()))["x"].tolist()
  [97, 98, 99]
  """
  return _whit.tar_extract(t)


class TensorIO(io.RawIOBase):
  """A one-dimensional uint8 tensor as a file that is open for reading.

  >>> TensorIO(Tensor(b"abcdef")).read(3)
  b'abc'
  """

  def __init__(self, t: Tensor) -> None:
    if t.ndim != 1 or t.dtype != dtypes.uint8: raise ValueError(f"[TensorIO] expected a tensor of bytes, (n,) of uint8; got {t.shape} {t.dtype}")
    self._tensor, self._position = t, 0

  def readable(self) -> bool: return True
  def seekable(self) -> bool: return True
  def tell(self) -> int: return self._position

  def readinto(self, buffer: Any) -> int:
    n = min(len(buffer), len(self._tensor) - self._position)
    if n > 0: buffer[:n] = self._tensor[self._position:self._position + n].data().cast("B")
    self._position += max(n, 0)
    return max(n, 0)

  def seek(self, offset: int, whence: int = 0) -> int:
    self._position = min(len(self._tensor), max(0, (0, self._position, len(self._tensor))[whence] + offset))
    return self._position


check_all(globals())


def __getattr__(name: str) -> Any: raise missing(__name__, name)
