"""Transforms of functions of tensors: `vmap`, `jvp`, `vjp`, `grad`, `value_and_grad`, `jacobian`, `hessian`.

Arguments and results are tensors, or lists, tuples and dicts of them. Each transform traces its function with stand-ins that have a shape,
a dtype and a device but no data, so transforms compose in every order, also with `TinyJit`, `function` and `Tensor.gradient`.
"""
from __future__ import annotations

import functools

from whit import _whit
from whit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
  from typing import Any, Callable
  Tree = Any  # a Tensor, or a list, tuple or dict of trees


def _flatten(tree: Tree, out: list) -> Tree:
  # The tree with numbers in the place of tensors.
  if isinstance(tree, Tensor):
    out.append(tree)
    return len(out) - 1
  if isinstance(tree, (list, tuple)): return type(tree)(_flatten(x, out) for x in tree)
  if isinstance(tree, dict): return {k: _flatten(x, out) for k, x in tree.items()}
  raise TypeError(f"[transform] a {type(tree).__name__}; expected a Tensor, or a list, tuple or dict of them")


def _unflatten(form: Tree, leaves) -> Tree:
  if isinstance(form, int): return leaves[form]
  if isinstance(form, dict): return {k: _unflatten(x, leaves) for k, x in form.items()}
  return type(form)(_unflatten(x, leaves) for x in form)


class _Traced:
  """`fn` as a function of a list of tensors; remembers the form of what it returned."""
  def __init__(self, fn: Callable, args: tuple, argnums: tuple[int, ...] | None = None, has_aux=False):
    self.fn, self.args, self.has_aux, self.leaves = fn, list(args), has_aux, []
    self.argnums = tuple(range(len(args))) if argnums is None else argnums
    self.forms = [_flatten(args[i], self.leaves) for i in self.argnums]
    self.out_form: Tree = None

  def __call__(self, leaves: list[Tensor]) -> list[Tensor]:
    args, out = list(self.args), []
    for i, form in zip(self.argnums, self.forms): args[i] = _unflatten(form, leaves)
    self.out_form = _flatten(self.fn(*args), out)
    return out

  def inputs(self, leaves) -> tuple: return tuple(_unflatten(f, leaves) for f in self.forms)
  def outputs(self, leaves) -> Tree: return _unflatten(self.out_form, leaves)


def _axes(axes, tree, out: list) -> None:
  # An entry a tensor: an int or None stands for all tensors below it.
  if isinstance(tree, Tensor) or axes is None or isinstance(axes, int):
    leaves: list = []
    _flatten(tree, leaves)
    out.extend([axes] * len(leaves))
  elif isinstance(tree, dict):
    for k, x in tree.items(): _axes(axes[k], x, out)
  else:
    if len(axes) != len(tree): raise ValueError(f"[vmap] {len(axes)} axes {axes} for {len(tree)} arguments")
    for a, x in zip(axes, tree): _axes(a, x, out)


def vmap(fn: Callable, in_axes: Any = 0, out_axes: Any = 0) -> Callable:
  """`fn` of one example as a function of many: one graph, not a loop. `in_axes` says which axis of each argument is mapped (None: shared),
  `out_axes` where that axis goes in the results.

  >>> from whit import Tensor, vmap
  >>> vmap(lambda x, y: (x * y).sum(), in_axes=(0, None))(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 10.0])).tolist()
  [21.0, 43.0]
  """
  @functools.wraps(fn)
  def mapped(*args):
    traced, axes = _Traced(fn, args), []
    _axes(tuple(in_axes) if isinstance(in_axes, list) else in_axes, args, axes)
    back: list = []
    def body(leaves):
      out = traced(leaves)
      _axes(out_axes, traced.outputs(out), back)
      return out
    # The axes of the results are known when the function was traced.
    out = _whit.vmap(body, traced.leaves, axes, [])
    moved = [t if a == 0 else t.permute(*_to_place(t.ndim, a)) for t, a in zip(out, back)]
    return traced.outputs(moved)
  return mapped


def _to_place(ndim: int, axis: int) -> list[int]:
  if not -ndim <= axis < ndim: raise IndexError(f"[vmap] out_axes {axis} is out of range for {ndim} axes")
  order = list(range(1, ndim))
  order.insert(axis % ndim, 0)
  return order


def jvp(fn: Callable, primals: tuple, tangents: tuple) -> tuple[Tree, Tree]:
  """Forward mode: `fn(*primals)` and its derivative in the direction of `tangents`, which look like `primals`.

  >>> from whit import Tensor, jvp
  >>> y, dy = jvp(lambda x: x * x, (Tensor([3.0]),), (Tensor([1.0]),))
  >>> y.tolist(), dy.tolist()
  ([9.0], [6.0])
  """
  traced, directions = _Traced(fn, tuple(primals)), []
  if _flatten(tuple(tangents), directions) != _flatten(tuple(primals), []):
    raise ValueError("[jvp] primals and tangents differ in structure")
  out, d_out = _whit.jvp(traced, traced.leaves, directions)
  return traced.outputs(out), traced.outputs(d_out)


def vjp(fn: Callable, *primals) -> tuple[Tree, Callable]:
  """Reverse mode: `fn(*primals)`, and a function from the gradients of the results to those of the arguments (a tuple).

  >>> from whit import Tensor, vjp
  >>> y, pullback = vjp(lambda a, b: a * b, Tensor([3.0]), Tensor([4.0]))
  >>> [g.tolist() for g in pullback(Tensor([1.0]))]
  [[4.0], [3.0]]
  """
  traced = _Traced(fn, primals)
  out, back = _whit.vjp(traced, traced.leaves)
  def pullback(cotangents):
    seeds: list = []
    if _flatten(cotangents, seeds) != traced.out_form: raise ValueError("[vjp] the cotangents do not have the structure of the results")
    return traced.inputs(back(seeds))
  return traced.outputs(out), pullback


def value_and_grad(fn: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
  """The value of a scalar function and its gradient with respect to the arguments in `argnums`.

  >>> from whit import Tensor, value_and_grad
  >>> v, g = value_and_grad(lambda x: (x * x).sum())(Tensor([1.0, 2.0]))
  >>> v.item(), g.tolist()
  (5.0, [2.0, 4.0])
  """
  nums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
  @functools.wraps(fn)
  def wrapped(*args):
    traced = _Traced(fn, args, tuple(n % len(args) if -len(args) <= n < 0 else n for n in nums))
    out, back = _whit.vjp(traced, traced.leaves)
    if len(out) != 1 or out[0].shape != (): raise AssertionError(f"[grad] the results have shapes {[t.shape for t in out]}; expected one scalar")
    grads = traced.inputs(back([Tensor(1.0, dtype=out[0].dtype)]))
    return out[0], grads[0] if isinstance(argnums, int) else grads
  return wrapped


def grad(fn: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
  """The gradient of a scalar function with respect to the arguments in `argnums`, as a function.

  >>> from whit import Tensor, grad
  >>> grad(lambda x: (x ** 3).sum())(Tensor([2.0])).tolist()
  [12.0]
  """
  both = value_and_grad(fn, argnums)
  @functools.wraps(fn)
  def wrapped(*args): return both(*args)[1]
  return wrapped


def jacobian(fn: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
  """All first derivatives: for each result and each argument in `argnums` a tensor of the result's shape followed by the argument's.
  Forward or reverse mode, whichever has less to do.

  >>> from whit import Tensor, jacobian
  >>> jacobian(lambda x: x * x)(Tensor([1.0, 3.0])).tolist()
  [[2.0, 0.0], [0.0, 6.0]]
  """
  nums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
  @functools.wraps(fn)
  def wrapped(*args):
    traced = _Traced(fn, args, nums)
    rows = [traced.inputs(row) for row in _whit.jacobian(traced, traced.leaves)]
    return traced.outputs([row[0] if isinstance(argnums, int) else row for row in rows])
  return wrapped


def hessian(fn: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
  """All second derivatives of a scalar function.

  >>> from whit import Tensor, hessian
  >>> hessian(lambda x: (x ** 3).sum())(Tensor([1.0, 2.0])).tolist()
  [[6.0, 0.0], [0.0, 12.0]]
  """
  return jacobian(grad(fn, argnums), argnums)


def checkpoint(fn: Callable) -> Callable:
  """`fn`, of which no value but the results is kept for the gradient: they are computed again when it needs them. Less memory for more time.

  All tensors that exist before a call count as its arguments, weights too. A hint: what frees nothing is kept.

  >>> from whit import Tensor
  >>> x = Tensor([1.0, 2.0])
  >>> checkpoint(lambda x: x.sin().exp())(x).sum().gradient(x)[0].tolist() == x.sin().exp().sum().gradient(x)[0].tolist()
  True
  """
  @functools.wraps(fn)
  def called(*args, **kwargs):
    form: Tree = None
    def body(_):
      nonlocal form
      out: list = []
      form = _flatten(fn(*args, **kwargs), out)
      return out
    leaves = _whit.checkpoint(body)
    return _unflatten(form, leaves)
  return called
