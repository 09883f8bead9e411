"""The text of a TypeError: for arguments that a C++ function does not take, and for those of nn's functions."""
from __future__ import annotations

import functools
import inspect
import os
import re
import reprlib

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any, Callable


def _split(text: str) -> list[str]:
  """At commas outside of brackets and quotes."""
  out, depth, quote = [""], 0, ""
  for c in text:
    if quote: quote = "" if c == quote else quote
    elif c in "'\"": quote = c
    depth += 0 if quote else (c in "[({") - (c in "])}")
    if c == "," and depth == 0 and not quote: out.append("")
    else: out[-1] += c
  return [p.strip() for p in out if p.strip()]


_FITS = {"int": ("int", "bool"), "float": ("float", "int", "bool"), "bool": ("bool",), "str": ("str",), "Tensor": ("Tensor",)}


def _offence(parameters: list[str], given: list[str], named: dict[str, str]) -> str:
  """What is wrong with the arguments, as far as their types tell."""
  positional, seen_star = [], False
  known: dict[str, str] = {}
  for p in parameters:
    if p in ("*", "/"): seen_star |= p == "*"; continue
    name, _, kind = p.partition(":")
    known[name.strip().lstrip("*")] = kind.partition("=")[0].strip()
    if name.startswith("*"): return ""
    if not seen_star: positional.append(name.strip())
  if len(given) > len(positional): return f"{len(given)} arguments are given, it takes {len(positional)}"
  bound = dict(zip(positional, given))
  for name, kind in named.items():
    if name not in known: return f"it has no argument '{name}'"
    if name in bound: return f"'{name}' is given twice"
    bound[name] = kind
  for p in parameters:
    name = p.partition(":")[0].strip()
    if name not in ("*", "/") and "=" not in p and name not in bound: return f"'{name}' is missing"
  for name, kind in bound.items():
    want = known[name]
    if not want or want == "object": continue
    options = [o.strip() for o in want.split("|")]
    if not any(kind in _FITS.get(o, (o,)) or (o == "None" and kind == "NoneType") or "[" in o or o == "object" for o in options):
      return f"'{name}' is {'None' if kind == 'NoneType' else 'of type ' + kind}; expected {' or '.join(options)}"
  return ""


def explain(text: str) -> str:
  """nanobind's text, in the words of all other errors: the operation, the offender, what is expected.

  >>> explain("softmax(): incompatible function arguments. The following argument types are supported:\\n    1. softmax(self, axis: int = -1) -> Tensor"
  ...         "\\n\\nInvoked with types: whit._whit.Tensor, kwargs = { axis: float }")
  "[softmax] 'axis' is of type float; expected int; its arguments are (axis: int = -1)"
  """
  m = re.match(r"(\w*)\(\): incompatible function arguments\..*?\n(.*)\n\nInvoked with types:(.*)", text, re.S)
  if not m: return text
  name, overloads, invoked = m[1], re.findall(r"^\s+\d+\. \w*\((.*)\)(?: -> .*)?$", m[2], re.M), m[3]
  if not overloads: return text
  def clean(t: str) -> str: return re.sub(r"(?:[\w.]*\.)?(\w+)", r"\1", t) if "." in t and not t.strip()[0].isdigit() else t
  plain, _, kw = invoked.partition("kwargs = {")
  given = [clean(t) for t in _split(plain.strip().rstrip(","))]
  named = {k.strip(): clean(v.strip()) for k, _, v in (p.partition(":") for p in _split(kw.rpartition("}")[0]))}
  shown, offence = [], ""
  for o in overloads:
    parameters = [re.sub(r"whit\._whit\.", "", p) for p in _split(o)]
    is_method = parameters[:1] == ["self"]
    found = _offence(parameters[is_method:], given[is_method:], named)
    offence = found if len(overloads) == 1 else ""
    shown.append("(" + ", ".join(p.replace(": object | None", "").replace(": object", "").replace(" | None = None", " = None") for p in parameters[is_method:]) + ")")
  offence = offence or f"got ({', '.join(given[overloads[0].startswith('self'):] + [f'{k}: {v}' for k, v in named.items()])})"
  if not name: return f"[{given[0]}] the value of the attribute {offence[offence.find(' is ') + 1:]}"
  return f"[{name.strip('_') if name != '__init__' else given[0]}] {offence}; its arguments are {' or '.join(shown)}"


def _is_int(x: Any) -> bool: return hasattr(x, "__index__")
def _is_number(x: Any) -> bool: return hasattr(x, "__float__") and not hasattr(x, "uop")
def _are(x: Any, test: Callable[[Any], bool]) -> bool: return isinstance(x, (list, tuple)) and all(test(v) or _are(v, test) for v in x)
def _is_tensor(x: Any) -> bool: return hasattr(x, "uop") and hasattr(x, "grad")
def _is_path(x: Any) -> bool: return isinstance(x, (str, os.PathLike))


# What the arguments of nn's functions and constructors have to be, by name.
_KINDS = {
  "an int": (_is_int, "in_channels out_channels in_features out_features sz num_features num_groups num_channels vocab_size embed_size dim input_size hidden_size "
             "groups ns_steps T_max warmup_steps decay_steps total_steps patience n ggml_type"),
  "an int or several": (lambda x: _is_int(x) or _are(x, _is_int), "kernel_size stride dilation output_padding normalized_shape"),
  "an int, several, or text": (lambda x: isinstance(x, str) or _is_int(x) or _are(x, _is_int), "padding"),
  "a list of ints": (lambda x: _are(x, _is_int), "milestones"),
  "a number": (_is_number, "eps momentum lr weight_decay b1 b2 tcoef gamma factor threshold eta_min base_lr end_lr max_lr div_factor final_div_factor pct_start max_norm "
               "norm_type clip_value"),
  "a list of numbers": (lambda x: _are(x, _is_number), "ns_coefficients"),
  "tensors": (lambda x: _is_tensor(x) or isinstance(x, list) and all(map(_is_tensor, x)), "params parameters"),
  "a path or a tensor": (lambda x: _is_path(x) or _is_tensor(x), "t fn"),
  "a path": (_is_path, "folder"),
  "a dict by name": (lambda x: isinstance(x, dict), "tensors state_dict metadata"),
  "an optimiser": (lambda x: hasattr(x, "schedule_step"), "optimizer"),
  "text": (lambda x: isinstance(x, str), "prefix mode threshold_mode"),
  "a device or several": (lambda x: isinstance(x, str) or _are(x, lambda d: isinstance(d, str)), "device"),
}
_KIND_OF = {name: (test, said) for said, (test, names) in _KINDS.items() for name in names.split()}


def checked(f: Callable[..., Any], op: str = "") -> Callable[..., Any]:
  """`f` with its arguments checked by their names: one that is no such thing is a TypeError that names the operation, the argument and what is expected.
  Without `op` it is a method, and the operation is its class.

  >>> checked(lambda lr: lr * 2, "step")(lr=0.5)
  1.0
  """
  signature = inspect.signature(f)

  @functools.wraps(f)
  def call(*args: Any, **kwargs: Any) -> Any:
    try: bound = signature.bind(*args, **kwargs)
    except TypeError: return f(*args, **kwargs)  # Python's own text
    for name, x in bound.arguments.items():
      p = signature.parameters[name]
      if name not in _KIND_OF or x is p.default or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD): continue
      test, said = _KIND_OF[name]
      if said == "tensors" and not _is_tensor(x) and hasattr(x, "__iter__"): bound.arguments[name] = x = list(x)  # also what can be walked only once
      if not test(x):
        what = "None" if x is None else f"of type {type(x).__name__}"
        if isinstance(x, (list, tuple, dict)): what = f"{reprlib.repr(x)}"
        raise TypeError(f"[{op or type(args[0]).__name__}] '{name}' is {what}; expected {said}")
    return f(*bound.args, **bound.kwargs)
  return call


def _called(f: Callable[..., Any]) -> Callable[..., Any]:
  """A layer's `__call__`, which takes a tensor."""
  name = list(inspect.signature(f).parameters)[1]

  @functools.wraps(f)
  def call(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    if not hasattr(x, "uop") and not hasattr(x, "toposort"):
      raise TypeError(f"[{type(self).__name__}] '{name}' is {'None' if x is None else f'of type {type(x).__name__}'}; expected a tensor")
    return f(self, x, *args, **kwargs)
  return call


def check_all(module: dict[str, Any]) -> None:
  """Every public function, constructor and layer of a module is `checked` from here on. Called at the module's end.

  >>> from whit import nn
  >>> nn.Linear("a", 2)
  Traceback (most recent call last):
  TypeError: [Linear] 'in_features' is of type str; expected an int
  """
  for name, f in list(module.items()):
    if name.startswith("_") or getattr(f, "__module__", "") != module["__name__"]: continue
    if isinstance(f, type):
      if f.__name__ != name: continue  # another name of one that is checked
      if "__init__" in vars(f): setattr(f, "__init__", checked(vars(f)["__init__"]))
      if "__call__" in vars(f): setattr(f, "__call__", _called(vars(f)["__call__"]))
    elif inspect.isfunction(f): module[name] = checked(f, name)
