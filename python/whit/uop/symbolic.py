"""The rule tables of the core that simplify arithmetic, as PatternMatchers."""
from __future__ import annotations

from whit import _whit
from whit.hints import missing
from whit.uop.upat import PatternMatcher

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any


def _core(name: str) -> PatternMatcher: return PatternMatcher(_rules=_whit.core_rules(name))


algebra, index, gate, cast = (_core(n) for n in ("algebra", "index", "gate", "cast"))
symbolic = sym = _core("symbolic")
symbolic_simple = algebra


def __getattr__(name: str) -> Any: raise missing(__name__, name)
