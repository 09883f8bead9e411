"""Weights: collecting them from objects, loading and saving files."""
from __future__ import annotations

import pathlib
from collections import OrderedDict
from typing import Any, Callable

from whit import _whit
from whit.helpers import DEBUG
from whit.tensor import Tensor


def get_state_dict(obj, prefix: str = "", tensor_type=Tensor) -> dict[str, Tensor]:
  """All tensors of an object by dotted name: attributes, lists, tuples and dicts are walked. The prefix carries its own dot.

  >>> from whit import nn
  >>> list(get_state_dict(nn.Linear(2, 3)))
  ['weight', 'bias']
  """
  return _walk(obj, prefix, tensor_type, frozenset())


def _walk(obj, prefix: str, tensor_type, above: frozenset) -> dict[str, Tensor]:
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


def get_parameters(obj) -> list[Tensor]:
  """The tensors of `get_state_dict` as a list.

  >>> from whit import nn
  >>> len(get_parameters([nn.Linear(2, 3), nn.Linear(3, 1)]))
  4
  """
  return list(get_state_dict(obj).values())


def load_state_dict(model, state_dict: dict[str, Tensor], strict=True, verbose=True, consume=False, realize=True) -> list[Tensor]:
  """Replaces the model's tensors by those of the dict; a missing name is a KeyError when strict, another shape a ValueError.

  >>> from whit import nn
  >>> a, b = nn.Linear(2, 3), nn.Linear(2, 3)
  >>> _ = load_state_dict(a, get_state_dict(b), verbose=False)
  >>> a.weight.tolist() == b.weight.tolist()
  True
  """
  out: list[Tensor] = []
  model_state = get_state_dict(model)
  if DEBUG >= 1 and len(state_dict) > len(model_state):
    print("WARNING: unused weights in state_dict", sorted(set(state_dict) - set(model_state)))
  for k, v in model_state.items():
    if k not in state_dict:
      if strict: raise KeyError(f"[load_state_dict] {k} is not in the state dict")
      if DEBUG >= 1 and verbose: print(f"WARNING: not loading {k}")
      continue
    new = state_dict[k]
    if v.shape != new.shape:
      if {(), (1,)} == {tuple(v.shape), tuple(new.shape)}: new = new.reshape(v.shape)
      else: raise ValueError(f"[load_state_dict] shape mismatch in layer {k}: expected shape {v.shape}, found {new.shape}")
    v.replace(new.to(v.device))
    if realize: v.realize()
    if consume: del state_dict[k]
    out.append(v)
  return out


def safe_load_metadata(fn: str | pathlib.Path) -> tuple[int, dict[str, Any]]:
  """Where the data starts, and the header, of a safetensors file (https://huggingface.co/docs/safetensors).

  >>> import tempfile
  >>> fn = tempfile.mkdtemp() + "/w.safetensors"
  >>> safe_save({"w": Tensor([1.0])}, fn, {"made by": "whit"})
  >>> safe_load_metadata(fn)[1]["__metadata__"]
  {'made by': 'whit'}
  """
  return _whit.safe_load_metadata(str(fn))


def safe_load(fn: str | pathlib.Path) -> dict[str, Tensor]:
  """The tensors of a safetensors file. A file that lies about itself is refused with its name and the offset.

  >>> import tempfile
  >>> fn = tempfile.mkdtemp() + "/w.safetensors"
  >>> safe_save({"w": Tensor([1.0])}, fn)
  >>> safe_load(fn)["w"].tolist()
  [1.0]
  """
  return _whit.safe_load(str(fn))


def safe_save(tensors: dict[str, Tensor], fn: str, metadata: dict[str, Any] | None = None):
  """Writes a safetensors file, whole or not at all.

  >>> import tempfile
  >>> safe_save({"w": Tensor([1.0])}, tempfile.mkdtemp() + "/w.safetensors")
  """
  _whit.safe_save(tensors, str(fn), {str(k): str(v) for k, v in (metadata or {}).items()})


def torch_load(fn):
  """Loading PyTorch's files is not there yet."""
  raise NotImplementedError("[torch_load] whit does not read PyTorch files yet; save them as safetensors")
