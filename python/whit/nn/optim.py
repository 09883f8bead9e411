"""Optimisers. The rules are those of the C++ API; the classes keep the state as plain attributes. `schedule_step` assigns and gives what to realise."""
from __future__ import annotations

from whit._typing import Devices
from whit.arguments import check_all
from whit import _whit
from whit.hints import missing
from whit.dtype import dtypes, least_upper_dtype, to_dtype
from whit.helpers import FUSE_OPTIM, OPTIM_DTYPE, TRAINING, dedup, flatten, getenv
from whit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any, Sequence


class Optimizer:
  """Base of all optimisers: holds the parameters, the learning rate (a tensor of shape (1,)) and gradients' bookkeeping.

  >>> SGD([Tensor([1.0]).is_param_()], lr=0.5).lr.item()
  0.5
  """

  def __init__(self, params: list[Tensor], lr: float, device: Devices = None, fused: bool | None = None) -> None:
    if lr < 0: raise ValueError(f"[optim] invalid learning rate {lr}; expected at least 0")
    self.params: list[Tensor] = dedup([x for x in params if x.is_param])
    if not self.params: raise AssertionError("[optim] there are no parameters to optimise")
    self.buffers: list[Tensor] = dedup([x for x in params if not x.is_param])
    self.device = device or self.params[0].device
    self.param_dtype = to_dtype(str(OPTIM_DTYPE))
    self.fused = bool(FUSE_OPTIM) if fused is None else fused
    lr_dtype = least_upper_dtype(dtypes.default_float, dtypes.float32)
    self.lr = Tensor(lr, dtype=lr_dtype) if getenv("CONST_LR") else Tensor([lr], device=self.device, dtype=lr_dtype)

  def __setattr__(self, name: str, value: Any) -> None:
    # The rate is memory that a captured step reads: a number goes there.
    if name == "lr" and isinstance(value, (int, float)) and isinstance(self.__dict__.get("lr"), Tensor):
      self.lr.assign(Tensor.full(self.lr.shape, value, dtype=self.lr.dtype, device=self.lr.device))
    else: object.__setattr__(self, name, value)

  def _new_optim_param(self) -> list[Tensor]:
    if self.fused: return [Tensor.zeros(sum(p.numel() for p in self.params), dtype=self.param_dtype, device=self.device).is_param_(False)]
    return [Tensor.zeros(*t.shape, dtype=self.param_dtype, device=t.device).is_param_(False) for t in self.params]

  def zero_grad(self) -> None:
    """Forgets the gradients of all parameters."""
    for p in self.params: p.grad = None

  def step(self) -> None:
    """Does a step now."""
    Tensor.realize(*self.schedule_step())

  def schedule_step(self) -> list[Tensor]:
    """Assigns new parameters and state; the result is to be realised."""
    if not TRAINING: raise RuntimeError(f"[optim] TRAINING is {TRAINING}; use Context(TRAINING=1) around a step")
    missing = [i for i, p in enumerate(self.params) if p.grad is None]
    if missing: raise AssertionError(f"[optim] parameter {missing[0]} of shape {self.params[missing[0]].shape} has no gradient; call backward first, or leave it out when the loss does not depend on it")
    grads = [p.grad for p in self.params if p.grad is not None]
    if self.fused:
      (flat,), extra = self._step([Tensor.cat(*[p.flatten() for p in self.params])], [Tensor.cat(*[g.flatten() for g in grads])])
      updates = list(flat.split([p.numel() for p in self.params]))
    else: updates, extra = self._step(self.params, grads)
    for p, u in zip(self.params, updates): p.assign(self._apply_update(p, u.reshape(p.shape).cast(p.dtype)))
    return extra + self.params + self.buffers

  def _apply_update(self, t: Tensor, up: Tensor) -> Tensor: return t.detach() - up.to(t.device)

  def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    raise NotImplementedError("an optimiser defines _step")


class OptimizerGroup(Optimizer):
  """Several optimisers stepped as one.

  >>> a, b = Tensor([1.0]).is_param_(), Tensor([2.0]).is_param_()
  >>> len(OptimizerGroup(SGD([a]), Adam([b])).params)
  2
  """

  def __init__(self, *optimizers: Optimizer) -> None:  # pylint: disable=super-init-not-called
    self.optimizers = optimizers
    self.params, self.buffers = flatten([o.params for o in self.optimizers]), flatten([o.buffers for o in self.optimizers])

  def __getitem__(self, i: int) -> Optimizer: return self.optimizers[i]
  def zero_grad(self) -> None:
    for o in self.optimizers: o.zero_grad()
  def schedule_step(self) -> list[Tensor]: return [x for o in self.optimizers for x in o.schedule_step()]


def SGD(params: list[Tensor], lr: float = 0.001, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False, classic: bool = False,
        device: Devices = None, fused: bool | None = None) -> LARS:
  """Stochastic gradient descent with optional momentum and weight decay.

  >>> from whit.helpers import Context
  >>> x = Tensor([1.0, 2.0]).is_param_()
  >>> with Context(TRAINING=1):
  ...   opt = SGD([x], lr=0.1)
  ...   _ = (x * x).sum().backward()
  ...   opt.step()
  >>> x.numpy().round(3)
  array([0.8, 1.6], dtype=float32)
  """
  return LARS(params, lr, momentum, weight_decay, 0, None, nesterov, classic=classic, pre_wd=True, tcoef=0.0, device=device, fused=fused)


def Muon(params: list[Tensor], lr: float = 0.001, momentum: float = 0.95, weight_decay: float = 0.1, ns_steps: int = 5,
         ns_coefficients: Sequence[float] | None = (3.4445, -4.775, 2.0315), nesterov: bool = True,
         device: Devices = None, fused: bool | None = False) -> LARS:
  """SGD with momentum whose update is orthogonalised by Newton-Schulz (https://kellerjordan.github.io/posts/muon/).

  >>> from whit.helpers import Context
  >>> x = Tensor([[1.0, 2.0]]).is_param_()
  >>> with Context(TRAINING=1):
  ...   opt = Muon([x], lr=0.1)
  ...   _ = (x * x).sum().backward()
  ...   opt.step()
  >>> x.numpy().round(3)
  array([[0.959, 1.918]], dtype=float32)
  """
  if fused: raise ValueError("[Muon] fused is not possible: each parameter is orthogonalised on its own")
  return LARS(params, lr, momentum, weight_decay, ns_steps, ns_coefficients, nesterov, classic=False, pre_wd=False, tcoef=0.0, device=device, fused=fused)


class LARS(Optimizer):
  """Layer-wise adaptive rate scaling (https://arxiv.org/abs/1708.03888).

  >>> from whit.helpers import Context
  >>> x = Tensor([1.0, 2.0]).is_param_()
  >>> with Context(TRAINING=1):
  ...   opt = LARS([x], lr=100)
  ...   _ = (x * x).sum().backward()
  ...   opt.step()
  >>> x.numpy().round(3)
  array([0.9, 1.8], dtype=float32)
  """

  def __init__(self, params: list[Tensor], lr: float = 0.001, momentum: float = 0.9, weight_decay: float = 1e-4, ns_steps: int = 0,
               ns_coefficients: Sequence[float] | None = None, nesterov: bool = False, classic: bool = True,
               pre_wd: bool = True, tcoef: float = 0.001, device: Devices = None, fused: bool | None = None) -> None:
    if momentum < 0: raise ValueError(f"[LARS] invalid momentum {momentum}; expected at least 0")
    super().__init__(params, lr, device, fused)
    self.momentum, self.wd, self.ns_steps, self.ns_coefficients = momentum, weight_decay, ns_steps, ns_coefficients
    self.nesterov, self.classic, self.pre_wd, self.tcoef = nesterov, classic, pre_wd, tcoef
    self.b = self._new_optim_param() if self.momentum else []

  def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    return _whit.lars_updates(params, grads, self.b, self.lr, self.momentum, self.wd, self.ns_steps, self.ns_coefficients or (), self.nesterov,
                              self.classic, self.pre_wd, self.tcoef), self.b


def AdamW(params: list[Tensor], lr: float = 0.001, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.01,
          device: Devices = None, fused: bool | None = None) -> LAMB:
  """Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101).

  >>> from whit.helpers import Context
  >>> x = Tensor([1.0, 2.0]).is_param_()
  >>> with Context(TRAINING=1):
  ...   opt = AdamW([x], lr=0.1)
  ...   _ = (x * x).sum().backward()
  ...   opt.step()
  >>> x.numpy().round(3)
  array([0.899, 1.898], dtype=float32)
  """
  return LAMB(params, lr, b1, b2, eps, weight_decay, adam=True, device=device, fused=fused)


def Adam(params: list[Tensor], lr: float = 0.001, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, device: Devices = None,
         fused: bool | None = None) -> LAMB:
  """Adam (https://arxiv.org/abs/1412.6980).

  >>> from whit.helpers import Context
  >>> x = Tensor([1.0, 2.0]).is_param_()
  >>> with Context(TRAINING=1):
  ...   opt = Adam([x], lr=0.1)
  ...   _ = (x * x).sum().backward()
  ...   opt.step()
  >>> x.numpy().round(3)
  array([0.9, 1.9], dtype=float32)
  """
  return LAMB(params, lr, b1, b2, eps, 0.0, adam=True, device=device, fused=fused)


class LAMB(Optimizer):
  """Layer-wise adaptive moments (https://arxiv.org/abs/1904.00962); `adam=True` leaves the trust ratio out.

  >>> from whit.helpers import Context
  >>> x = Tensor([1.0, 2.0]).is_param_()
  >>> with Context(TRAINING=1):
  ...   opt = LAMB([x], lr=0.1)
  ...   _ = (x * x).sum().backward()
  ...   opt.step()
  >>> x.numpy().round(3)
  array([0.842, 1.842], dtype=float32)
  """

  def __init__(self, params: list[Tensor], lr: float = 0.001, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-6, weight_decay: float = 0.0,
               adam: bool = False, device: Devices = None, fused: bool | None = None) -> None:
    super().__init__(params, lr, device, fused)
    if weight_decay < 0: raise ValueError(f"[LAMB] invalid weight decay {weight_decay}; expected at least 0")
    self.b1, self.b2, self.eps, self.wd, self.adam = b1, b2, eps, weight_decay, adam
    self.b1_t, self.b2_t = (Tensor.ones(1, dtype=dtypes.float32, device=self.device).is_param_(False) for _ in (b1, b2))
    self.m = self._new_optim_param()
    self.v = self._new_optim_param()

  def _step(self, params: list[Tensor], grads: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    updates = _whit.lamb_updates(params, grads, self.b1_t, self.b2_t, self.m, self.v, self.lr, self.b1, self.b2, self.eps, self.wd, self.adam)
    return updates, [self.b1_t, self.b2_t] + self.m + self.v


check_all(globals())


def __getattr__(name: str) -> Any: raise missing(__name__, name)
