"""Lists, tuples and dicts."""
from __future__ import annotations

import functools, operator

TYPE_CHECKING = False  # typing costs a third of the time of `import whit`
if TYPE_CHECKING:
  from typing import Any, Callable, Iterable, Sequence, TypeVar

  T = TypeVar("T")
  L = TypeVar("L", list[Any], tuple[Any, ...])
  Sizes = Sequence[Any]  # numbers, or symbolic sizes


def prod(x: Iterable[Any]) -> Any:
  """The product of the elements; 1 for none.

  >>> prod([2, 3, 4])
  24
  """
  return functools.reduce(operator.mul, x, 1)


def dedup(x: Iterable[T]) -> list[T]:
  """The elements without repetitions, in order of first appearance.

  >>> dedup([3, 1, 3])
  [3, 1]
  """
  return list(dict.fromkeys(x))


def argfix(*x: Any) -> tuple[Any, ...]:
  """`f(1, 2)` and `f((1, 2))` give the same tuple.

  >>> argfix(1, 2), argfix((1, 2))
  ((1, 2), (1, 2))
  """
  if x and isinstance(x[0], (tuple, list)):
    if len(x) != 1: raise ValueError(f"bad arg {x}: a list or single values, not both")
    return tuple(x[0])
  return tuple(x)


def argsort(x: L) -> L:
  """The indices that sort x, as a list or tuple like x.

  >>> argsort([30, 10, 20])
  [1, 2, 0]
  """
  return type(x)(sorted(range(len(x)), key=x.__getitem__))


def all_same(items: Sequence[Any]) -> bool:
  """True when all elements are equal (also for none).

  >>> all_same([1, 1]), all_same([1, 2])
  (True, False)
  """
  return all(x == items[0] for x in items)


def flatten(l: Iterable[Iterable[T]]) -> list[T]:
  """One level of nesting less.

  >>> flatten([[1], [2, 3]])
  [1, 2, 3]
  """
  return [item for sub in l for item in sub]


def fully_flatten(l: Any) -> list[Any]:
  """All levels of nested lists and tuples gone.

  >>> fully_flatten([1, [2, [3]]])
  [1, 2, 3]
  """
  return [y for x in l for y in fully_flatten(x)] if isinstance(l, (list, tuple)) else [l]


def partition(itr: Iterable[T], fxn: Callable[[T], bool]) -> tuple[list[T], list[T]]:
  """Those for which fxn holds, and the others.

  >>> partition([1, 2, 3], lambda x: x > 1)
  ([2, 3], [1])
  """
  yes: list[T] = []
  no: list[T] = []
  for s in itr: (yes if fxn(s) else no).append(s)
  return yes, no


def unwrap(x: T | None) -> T:
  """x, which must not be None.

  >>> unwrap(3)
  3
  """
  if x is None: raise AssertionError("unwrap of None")
  return x


def get_single_element(x: Iterable[T]) -> T:
  """The only element.

  >>> get_single_element({7})
  7
  """
  items = list(x)
  if len(items) != 1: raise AssertionError(f"expected one element, got {len(items)}")
  return items[0]


def get_child(obj: Any, key: str) -> Any:
  """Follows a dotted path through attributes, lists and dicts.

  >>> get_child({"a": [10, 20]}, "a.1")
  20
  """
  for k in key.split("."):
    obj = obj[int(k)] if k.isnumeric() else obj[k] if isinstance(obj, dict) else getattr(obj, k)
  return obj


def merge_dicts(ds: Iterable[dict[Any, Any]]) -> dict[Any, Any]:
  """One dict of all; a key with two values is an error.

  >>> merge_dicts([{"a": 1}, {"b": 2}])
  {'a': 1, 'b': 2}
  """
  out: dict[Any, Any] = {}
  for d in ds:
    for k, v in d.items():
      if k in out and out[k] != v: raise KeyError(f"{k} has the values {out[k]} and {v}")
      out[k] = v
  return out


def all_int(t: Sequence[Any]) -> bool:
  """True when no element is symbolic.

  >>> all_int((1, 2))
  True
  """
  return all(isinstance(x, int) for x in t)


def make_tuple(x: int | Sequence[int], cnt: int) -> tuple[int, ...]:
  """A number for each of cnt axes.

  >>> make_tuple(3, 2)
  (3, 3)
  """
  return (x,) * cnt if isinstance(x, int) else tuple(x)


def to_tuple(x: Any) -> tuple[Any, ...]:
  """x, as a tuple of one where it is none.

  >>> to_tuple(3)
  (3,)
  """
  return x if isinstance(x, tuple) else (x,)


def flat_to_grouped(padding: Sizes) -> tuple[tuple[Any, ...], ...]:
  """Padding from the last axis on, as pairs from the first axis on.

  >>> flat_to_grouped((1, 2, 3, 4))
  ((3, 4), (1, 2))
  """
  return tuple(zip(padding[-2::-2], padding[::-2]))


def get_shape(x: Any) -> tuple[int, ...]:
  """The shape of a nested list.

  >>> get_shape([[1, 2, 3], [4, 5, 6]])
  (2, 3)
  """
  if not isinstance(x, (list, tuple)) and not hasattr(x, "__len__"): return ()
  if isinstance(x, (str, bytes)): return ()
  shapes = [get_shape(y) for y in x]
  if not all_same(shapes): raise ValueError(f"inhomogeneous shape from {x}")
  return (len(x),) + (shapes[0] if shapes else ())


def strides_for_shape(shape: Sizes) -> tuple[Any, ...]:
  """Row-major strides; 0 for axes of size 1.

  >>> strides_for_shape((2, 1, 3))
  (3, 0, 1)
  """
  return tuple(prod(shape[i + 1:]) if n != 1 else 0 for i, n in enumerate(shape))


def canonicalize_strides(shape: Sizes, strides: Sizes) -> tuple[Any, ...]:
  """Strides with 0 for axes of size 1.

  >>> canonicalize_strides((2, 1), (1, 7))
  (1, 0)
  """
  return tuple(0 if n == 1 else st for n, st in zip(shape, strides))


class count:
  """Numbers from `start` on, which can be pickled.

  >>> c = count(3)
  >>> next(c), next(c)
  (3, 4)
  """

  def __init__(self, start: int = 0, step: int = 1) -> None: self.n, self.step = start, step
  def __iter__(self) -> count: return self
  def __next__(self) -> int:
    self.n += self.step
    return self.n - self.step
