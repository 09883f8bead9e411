"""The text of a TypeError for arguments that a C++ function does not take."""
from __future__ import annotations

import re


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
  clean = lambda t: re.sub(r"(?:[\w.]*\.)?(\w+)", r"\1", t) if "." in t and not t.strip()[0].isdigit() else t
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
