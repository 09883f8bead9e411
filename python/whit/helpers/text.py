"""Text for terminals."""
from __future__ import annotations

from whit.helpers.flags import ContextVar

_COLORS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"]


def colored(st: str, color: str | None, background: bool = False) -> str:
  """The text in a terminal colour; upper-case names are bright. NO_COLOR=1 leaves it plain.

  >>> ansistrip(colored("hello", "green"))
  'hello'
  """
  if color is None or ContextVar._cache["NO_COLOR"]: return st
  code = 10 * background + 60 * (color.upper() == color) + 30 + _COLORS.index(color.lower())
  return f"\u001b[{code}m{st}\u001b[0m"


def ansistrip(s: str) -> str:
  """The text without terminal colours.

  >>> ansistrip("\\u001b[32mhello\\u001b[0m")
  'hello'
  """
  import re
  return re.sub("\x1b\\[(K|.*?m)", "", s)


def ansilen(s: str) -> int:
  """The length as a terminal shows it.

  >>> ansilen(colored("ab", "red"))
  2
  """
  return len(ansistrip(s))


def ansipad(s: str, w: int) -> str:
  """Spaces up to a width, terminal colours not counted.

  >>> ansipad("ab", 3)
  'ab '
  """
  return s + " " * max(w - ansilen(s), 0)


def colorize_float(x: float) -> str:
  """A ratio: green below 0.75, red above 1.15.

  >>> ansistrip(colorize_float(1.0))
  '   1.00x'
  """
  return colored(f"{x:7.2f}x", "green" if x < 0.75 else "red" if x > 1.15 else "yellow")


def time_to_str(t: float, w: int = 8) -> str:
  """Seconds as s, ms or us.

  >>> time_to_str(0.0123)
  '   12.30ms'
  """
  return next((f"{t * d:{w}.2f}{pr}" for d, pr in [(1, "s "), (1e3, "ms")] if t > 10 / d), f"{t * 1e6:{w}.2f}us")


def size_to_str(s: int) -> str:
  """Bytes as GB, MB or KB.

  >>> size_to_str(2048)
  '2.00 KB'
  """
  return next((f"{s / d:.2f} {u}" for d, u in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")) if s >= d), f"{s} B")


def to_function_name(s: str) -> str:
  """The text as an identifier.

  >>> to_function_name("a-b")
  'a2Db'
  """
  return "".join(c if c.isalnum() or c == "_" else f"{ord(c):02X}" for c in ansistrip(s))


def word_wrap(x: str, wrap: int = 80) -> str:
  """Lines of at most `wrap` characters.

  >>> word_wrap("abcdef", 4).splitlines()
  ['abcd', 'ef']
  """
  return "\n".join(line[i:i + wrap] for line in x.splitlines() for i in range(0, max(len(line), 1), wrap))


def strip_parens(fst: str) -> str:
  """The text without parentheses around all of it.

  >>> strip_parens("(a+b)"), strip_parens("(a)+(b)")
  ('a+b', '(a)+(b)')
  """
  if not (fst.startswith("(") and fst.endswith(")")): return fst
  depth = 0
  for c in fst[1:-1]:
    depth += (c == "(") - (c == ")")
    if depth < 0: return fst
  return fst[1:-1]


def pluralize(st: str, cnt: int) -> str:
  """A count with its noun.

  >>> pluralize("kernel", 2)
  '2 kernels'
  """
  return f"{cnt} {st}" + ("" if cnt == 1 else "s")
