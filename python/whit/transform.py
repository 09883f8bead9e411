"""Transforms of functions of tensors: `vmap`, `pmap`, `jvp`, `vjp`, `grad`, `value_and_grad`, `jacobian`, `hessian`.

Arguments and results are tensors, or lists, tuples and dicts of them. Each transform traces its function with stand-ins that have a shape,
a dtype and a device but no data, so transforms compose in every order, also with `TinyJit`, `function` and `Tensor.gradient`.
"""
from __future__ import annotations

import functools

from whit import _whit
from whit._typing import P, R
from whit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any, Callable, Iterable, Sequence
  Tree = Any  # a Tensor, None, or a list, tuple or dict of trees


class _AsItIs:
  """The place of what is no tensor."""
  def __init__(self, value: object) -> None: self.value = value


def _same_kind(tree: Tree, items: Iterable[Any]) -> Tree: return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)


def _flatten(op: str, tree: Tree, out: list[Tensor], others: bool = False) -> Tree:
  # The tree with numbers in the place of tensors; with `others` it may hold anything else too.
  if isinstance(tree, Tensor):
    out.append(tree)
    return len(out) - 1
  if tree is None: return None
  if isinstance(tree, (list, tuple)): return _same_kind(tree, [_flatten(op, x, out, others) for x in tree])
  if isinstance(tree, dict):  # by key, so that equal dicts are equal trees
    made = {k: _flatten(op, tree[k], out, others) for k in sorted(tree, key=lambda k: (type(k).__name__, k))}
    return {k: made[k] for k in tree}
  if others: return _AsItIs(tree)
  raise TypeError(f"[{op}] a {type(tree).__name__}; expected a Tensor, None, or a list, tuple or dict of them")


def _unflatten(form: Tree, leaves: Sequence[Any]) -> Tree:
  if form is None: return None
  if isinstance(form, int): return leaves[form]
  if isinstance(form, _AsItIs): return form.value
  if isinstance(form, dict): return {k: _unflatten(x, leaves) for k, x in form.items()}
  return _same_kind(form, [_unflatten(x, leaves) for x in form])


def _argnums(op: str, argnums: object, n: int) -> tuple[int, ...]:
  nums = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
  for i in nums:
    if not isinstance(i, int): raise TypeError(f"[{op}] argnums holds a {type(i).__name__}; expected an int or a tuple of ints")
    if not -n <= i < n: raise IndexError(f"[{op}] argnums {i} is out of range for {n} arguments")
  if len({i % n for i in nums}) < len(nums): raise ValueError(f"[{op}] argnums {argnums} names an argument twice")
  return tuple(i % n for i in nums)


class _Traced:
  """`fn` as a function of a list of tensors; remembers the form of what it returned."""
  def __init__(self, op: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], argnums: tuple[int, ...] | None = None) -> None:
    self.op, self.fn, self.args, self.kwargs = op, fn, list(args), kwargs
    self.leaves: list[Tensor] = []
    self.argnums = tuple(range(len(args))) if argnums is None else argnums
    self.forms = [_flatten(op, args[i], self.leaves, others=op == "vmap") for i in self.argnums]
    self.out_form: Tree = None

  def __call__(self, leaves: Sequence[Tensor]) -> list[Tensor]:
    args, out = list(self.args), list[Tensor]()
    for i, form in zip(self.argnums, self.forms): args[i] = _unflatten(form, leaves)
    self.out_form = _flatten(self.op, self.fn(*args, **self.kwargs), out)
    return out

  def inputs(self, leaves: Sequence[Any]) -> tuple[Any, ...]: return tuple(_unflatten(f, leaves) for f in self.forms)
  def outputs(self, leaves: Sequence[Any]) -> Tree: return _unflatten(self.out_form, leaves)


def _axes(what: str, axes: Any, tree: Tree, out: list[int | None]) -> None:
  # An entry a tensor: an int or None stands for all tensors below it.
  if tree is None: return
  if isinstance(tree, Tensor):
    if axes is not None and not isinstance(axes, int): raise TypeError(f"[vmap] {what} has {axes!r} for a tensor; expected an int or None")
    out.append(axes)
  elif isinstance(tree, (list, tuple)):
    if not isinstance(axes, (list, tuple)): axes = [axes] * len(tree)
    if len(axes) != len(tree): raise ValueError(f"[vmap] {what} has {len(axes)} axes {axes} for {len(tree)} arguments")
    for a, x in zip(axes, tree): _axes(what, a, x, out)
  elif isinstance(tree, dict):
    if isinstance(axes, dict) and axes.keys() != tree.keys(): raise ValueError(f"[vmap] {what} names {sorted(axes)}; expected {sorted(tree)}")
    for k in sorted(tree, key=lambda k: (type(k).__name__, k)): _axes(what, axes[k] if isinstance(axes, dict) else axes, tree[k], out)
  elif axes is not None: raise TypeError(f"[vmap] an argument is a {type(tree).__name__}, which has no axis {axes!r}; expected a tensor, or None in {what}")


def vmap(fn: Callable[P, R], in_axes: Any = 0, out_axes: Any = 0) -> Callable[P, R]:
  """`fn` of one example as a function of many: one graph, not a loop. `in_axes` says which axis of each argument is mapped (None: shared),
  `out_axes` where that axis goes in the results. What is no tensor, and arguments by keyword, are the same for all examples.

  >>> from whit import Tensor, vmap
  >>> vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 10.0])).tolist()
  [21.0, 43.0]
  """
  @functools.wraps(fn)
  def mapped(*args: P.args, **kwargs: P.kwargs) -> R:
    traced = _Traced("vmap", fn, args, kwargs)
    axes: list[int | None] = []
    back: list[int | None] = []
    _axes("in_axes", in_axes, args, axes)
    def body(leaves: Sequence[Tensor]) -> list[Tensor]:
      out = traced(leaves)
      _axes("out_axes", out_axes, traced.outputs(out), back)
      return out
    # The axes of the results are known when the function was traced.
    out = _whit.vmap(body, traced.leaves, axes, [])
    result: R = traced.outputs([t if a == 0 else t.permute(*_to_place(t.ndim, a)) for t, a in zip(out, back)])
    return result
  return mapped


def pmap(fn: Callable[P, R], devices: Sequence[str], in_axes: Any = 0, out_axes: Any = 0) -> Callable[P, R]:
  """`vmap` on several devices, each of which has a part of the examples: what is mapped is cut along its axis, what is not is copied to each.
  Tensors that are on several devices stay as they are; those that `fn` takes from outside must be there, too (`shard_`).

  >>> from whit import Tensor, pmap
  >>> out = pmap(lambda x, y: (x * y).sum(), ("CPU:0", "CPU:1"), in_axes=(0, None))(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 10.0]))
  >>> out.device, out.tolist()
  (('CPU', 'CPU:1'), [21.0, 43.0])
  """
  mapped = vmap(fn, in_axes, out_axes)
  @functools.wraps(fn)
  def run(*args: P.args, **kwargs: P.kwargs) -> R:
    leaves: list[Tensor] = []
    axes: list[int | None] = []
    forms = [_flatten("pmap", a, leaves, others=True) for a in args]
    _axes("in_axes", in_axes, args, axes)
    parts = [t if isinstance(t.device, tuple) else t.shard(devices, a) for t, a in zip(leaves, axes)]
    return mapped(*(_unflatten(f, parts) for f in forms), **kwargs)
  return run


def _to_place(ndim: int, axis: int | None) -> list[int]:
  if axis is None: raise ValueError("[vmap] out_axes is None; expected where the mapped axis goes")
  if not -ndim <= axis < ndim: raise IndexError(f"[vmap] out_axes {axis} is out of range for {ndim} axes")
  order = list(range(1, ndim))
  order.insert(axis % ndim, 0)
  return order


def jvp(fn: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any], **kwargs: Any) -> tuple[R, R]:
  """Forward mode: `fn(*primals, **kwargs)` and its derivative in the direction of `tangents`, which look like `primals`.

  >>> from whit import Tensor, jvp
  >>> y, dy = jvp(lambda x: x * x, (Tensor([3.0]),), (Tensor([1.0]),))
  >>> y.tolist(), dy.tolist()
  ([9.0], [6.0])
  """
  for what, given in ("primals", primals), ("tangents", tangents):
    if not isinstance(given, (tuple, list)): raise TypeError(f"[jvp] {what} is a {type(given).__name__}; expected a tuple of arguments")
  traced, directions = _Traced("jvp", fn, primals, kwargs), list[Tensor]()
  if _flatten("jvp", list(tangents), directions) != _flatten("jvp", list(primals), []):
    raise ValueError("[jvp] primals and tangents differ in structure")
  out, d_out = _whit.jvp(traced, traced.leaves, directions)
  return traced.outputs(out), traced.outputs(d_out)


def vjp(fn: Callable[..., R], *primals: Any, **kwargs: Any) -> tuple[R, Callable[[R], tuple[Any, ...]]]:
  """Reverse mode: `fn(*primals, **kwargs)`, and a function from the gradients of the results to those of the primals (a tuple).

  >>> from whit import Tensor, vjp
  >>> y, pullback = vjp(lambda a, b: a * b, Tensor([3.0]), Tensor([4.0]))
  >>> [g.tolist() for g in pullback(Tensor([1.0]))]
  [[4.0], [3.0]]
  """
  traced = _Traced("vjp", fn, primals, kwargs)
  out, back = _whit.vjp(traced, traced.leaves)
  def pullback(cotangents: R) -> tuple[Any, ...]:
    seeds: list[Tensor] = []
    if _flatten("vjp", cotangents, seeds) != traced.out_form: raise ValueError("[vjp] the cotangents do not have the structure of the results")
    return traced.inputs(back(seeds))
  return traced.outputs(out), pullback


def _value_and_grad(op: str, fn: Callable[..., Any], argnums: int | tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Any]:
  traced = _Traced(op, fn, args, kwargs, _argnums(op, argnums, len(args)))
  out, back = _whit.vjp(traced, traced.leaves)
  if len(out) != 1 or out[0].shape != (): raise AssertionError(f"[{op}] the results have shapes {[t.shape for t in out]}; expected one scalar")
  grads = traced.inputs(back([Tensor(1.0, dtype=out[0].dtype)]))
  return traced.outputs(out), grads[0] if isinstance(argnums, int) else grads


def value_and_grad(fn: Callable[P, R], argnums: int | tuple[int, ...] = 0) -> Callable[P, tuple[R, Any]]:
  """The value of a scalar function and its gradient with respect to the arguments in `argnums`.

  >>> from whit import Tensor, value_and_grad
  >>> v, g = value_and_grad(lambda x: (x * x).sum())(Tensor([1.0, 2.0]))
  >>> v.item(), g.tolist()
  (5.0, [2.0, 4.0])
  """
  @functools.wraps(fn)
  def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any: return _value_and_grad("value_and_grad", fn, argnums, args, kwargs)
  return wrapped


def grad(fn: Callable[P, Any], argnums: int | tuple[int, ...] = 0) -> Callable[P, Any]:
  """The gradient of a scalar function with respect to the arguments in `argnums`, as a function.

  >>> from whit import Tensor, grad
  >>> grad(lambda x: (x ** 3).sum())(Tensor([2.0])).tolist()
  [12.0]
  """
  @functools.wraps(fn)
  def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any: return _value_and_grad("grad", fn, argnums, args, kwargs)[1]
  return wrapped


def jacobian(fn: Callable[P, Any], argnums: int | tuple[int, ...] = 0) -> Callable[P, Any]:
  """All first derivatives: for each result and each argument in `argnums` a tensor of the result's shape followed by the argument's.
  Forward or reverse mode, whichever has less to do.

  >>> from whit import Tensor, jacobian
  >>> jacobian(lambda x: x * x)(Tensor([1.0, 3.0])).tolist()
  [[2.0, 0.0], [0.0, 6.0]]
  """
  @functools.wraps(fn)
  def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any:
    traced = _Traced("jacobian", fn, args, kwargs, _argnums("jacobian", argnums, len(args)))
    rows = [traced.inputs(row) for row in _whit.jacobian(traced, traced.leaves)]
    return traced.outputs([row[0] if isinstance(argnums, int) else row for row in rows])
  return wrapped


def hessian(fn: Callable[P, Any], argnums: int | tuple[int, ...] = 0) -> Callable[P, Any]:
  """All second derivatives of a scalar function.

  >>> from whit import Tensor, hessian
  >>> hessian(lambda x: (x ** 3).sum())(Tensor([1.0, 2.0])).tolist()
  [[6.0, 0.0], [0.0, 12.0]]
  """
  return jacobian(grad(fn, argnums), argnums)


def checkpoint(fn: Callable[P, R]) -> Callable[P, R]:
  """`fn`, of which no value but the results is kept for the gradient: they are computed again when it needs them. Less memory for more time.

  All tensors that exist before a call count as its arguments, weights too. A hint: what frees nothing is kept.

  >>> from whit import Tensor
  >>> x = Tensor([1.0, 2.0])
  >>> checkpoint(lambda x: x.sin().exp())(x).sum().gradient(x)[0].tolist() == x.sin().exp().sum().gradient(x)[0].tolist()
  True
  """
  @functools.wraps(fn)
  def called(*args: P.args, **kwargs: P.kwargs) -> R:
    form: Tree = None
    def body(_: Sequence[Tensor]) -> list[Tensor]:
      nonlocal form
      out: list[Tensor] = []
      form = _flatten("checkpoint", fn(*args, **kwargs), out, others=True)
      return out
    leaves = _whit.checkpoint(body)
    result: R = _unflatten(form, leaves)
    return result
  return called
