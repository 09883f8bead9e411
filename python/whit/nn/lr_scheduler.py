"""Learning rates that follow a plan. `step` after each step of the optimiser, or realise what `schedule_step` gives together with it; also in TinyJit."""
from __future__ import annotations

import math

from whit.arguments import check_all
from whit import _whit
from whit.dtype import dtypes
from whit.nn.optim import Optimizer
from whit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING: from typing import Any


class LR_Scheduler:
  """Base of the plans: `epoch_counter` counts the steps, `get_lr` gives the rate for it, `schedule_step` assigns `optimizer.lr`.

  >>> from whit import nn
  >>> class Halving(LR_Scheduler):
  ...   def get_lr(self): return self.optimizer.lr * 0.5
  >>> opt = nn.optim.SGD([Tensor([1.0])], lr=1.0)
  >>> Halving(opt).step()
  >>> opt.lr.item()
  0.5
  """

  def __init__(self, optimizer: Optimizer) -> None:
    self.optimizer = optimizer
    self.epoch_counter = Tensor([0], dtype=dtypes.int32, device=optimizer.lr.device).is_param_(False)

  def get_lr(self) -> Tensor:
    """The rate for the count as it stands."""
    raise NotImplementedError(f"[{type(self).__name__}] a plan defines get_lr")

  def schedule_step(self) -> list[Tensor]:
    """Advances the count, assigns the rate; the result is to be realised."""
    return [self.epoch_counter.assign(self.epoch_counter + 1), self._assign()]

  def step(self) -> None:
    """Does a step now."""
    Tensor.realize(*self.schedule_step())

  def _assign(self) -> Tensor: return self.optimizer.lr.assign(self.get_lr().cast(self.optimizer.lr.dtype))


class LRSchedulerGroup:
  """Several plans stepped as one.

  >>> from whit import nn
  >>> a, b = (nn.optim.SGD([Tensor([1.0])], lr=1.0) for _ in range(2))
  >>> LRSchedulerGroup(MultiStepLR(a, [1]), MultiStepLR(b, [2])).step()
  >>> round(a.lr.item(), 3), b.lr.item()
  (0.1, 1.0)
  """

  def __init__(self, *schedulers: LR_Scheduler) -> None: self.schedulers = schedulers
  def schedule_step(self) -> list[Tensor]: return [t for s in self.schedulers for t in s.schedule_step()]
  def step(self) -> None: Tensor.realize(*self.schedule_step())


class MultiStepLR(LR_Scheduler):
  """Multiplies the rate by `gamma` when the count reaches a milestone.

  >>> from whit import nn
  >>> opt = nn.optim.SGD([Tensor([1.0])], lr=1.0)
  >>> plan = MultiStepLR(opt, [2], gamma=0.5)
  >>> plan.step(), opt.lr.item(), plan.step(), opt.lr.item()
  (None, 1.0, None, 0.5)
  """

  def __init__(self, optimizer: Optimizer, milestones: list[int], gamma: float = 0.1) -> None:
    super().__init__(optimizer)
    self.milestones, self.gamma = milestones, gamma

  def get_lr(self) -> Tensor: return _whit.multi_step_lr(self.epoch_counter, self.optimizer.lr, self.milestones, self.gamma)


class ReduceLROnPlateau(LR_Scheduler):
  """Multiplies the rate by `factor` when a measure has not improved for more than `patience` steps.

  In TinyJit the measure must be a tensor of the captured function, as a number would be a constant of the capture.

  >>> from whit import nn
  >>> opt = nn.optim.SGD([Tensor([1.0])], lr=1.0)
  >>> plan = ReduceLROnPlateau(opt, factor=0.5, patience=1)
  >>> for loss in (3.0, 3.0, 3.0): plan.step(loss)
  >>> opt.lr.item()
  0.5
  """

  def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4, threshold_mode: str = "rel") -> None:
    if mode not in ("min", "max"): raise ValueError(f"[ReduceLROnPlateau] mode {mode!r}; expected 'min' or 'max'")
    if threshold_mode not in ("rel", "abs"): raise ValueError(f"[ReduceLROnPlateau] threshold_mode {threshold_mode!r}; expected 'rel' or 'abs'")
    super().__init__(optimizer)
    self.mode, self.factor, self.patience, self.threshold, self.threshold_mode = mode, factor, patience, threshold, threshold_mode
    worst = math.inf if mode == "min" else -math.inf
    self.best = Tensor([worst], dtype=dtypes.float32, device=optimizer.lr.device).is_param_(False)
    self.bad_epoch = Tensor([0], dtype=dtypes.int32, device=optimizer.lr.device).is_param_(False)

  def schedule_step(self, current: Tensor | float) -> list[Tensor]:  # type: ignore
    new = _whit.plateau_lr(current, self.optimizer.lr, self.best, self.bad_epoch, self.mode == "max", self.factor, self.patience, self.threshold,
                           self.threshold_mode == "rel")
    return [self.epoch_counter.assign(self.epoch_counter + 1), self.best, self.bad_epoch, self.optimizer.lr.assign(new)]

  def step(self, current: Tensor | float) -> None: Tensor.realize(*self.schedule_step(current))  # type: ignore


class CosineAnnealingLR(LR_Scheduler):
  """From the optimiser's rate to `eta_min` along half a cosine of `T_max` steps (https://arxiv.org/abs/1608.03983, without restarts).

  >>> from whit import nn
  >>> opt = nn.optim.SGD([Tensor([1.0])], lr=1.0)
  >>> plan = CosineAnnealingLR(opt, T_max=2)
  >>> plan.step(), round(opt.lr.item(), 5), plan.step(), round(opt.lr.item(), 5)
  (None, 0.5, None, 0.0)
  """

  def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
    super().__init__(optimizer)
    self.T_max, self.eta_min, self.eta_max = T_max, eta_min, optimizer.lr.item()

  def get_lr(self) -> Tensor: return _whit.cosine_annealing_lr(self.epoch_counter, self.eta_max, self.T_max, self.eta_min)


class CosineAnnealingLRWithWarmup(LR_Scheduler):
  """`base_lr * (n + 1) / warmup_steps` in step n of the warm-up, then a cosine to `end_lr` of `decay_steps` steps.

  >>> from whit import nn
  >>> opt = nn.optim.SGD([Tensor([1.0])])
  >>> plan = CosineAnnealingLRWithWarmup(opt, base_lr=1.0, end_lr=0.0, warmup_steps=2, decay_steps=4)
  >>> opt.lr.item(), plan.step(), opt.lr.item()
  (0.5, None, 1.0)
  """

  def __init__(self, optimizer: Optimizer, base_lr: float, end_lr: float, warmup_steps: int, decay_steps: int) -> None:
    super().__init__(optimizer)
    self.base_lr, self.end_lr, self.warmup_steps, self.decay_steps = base_lr, end_lr, warmup_steps, decay_steps
    self._assign().realize()

  def get_lr(self) -> Tensor:
    return _whit.cosine_annealing_lr_with_warmup(self.epoch_counter, self.base_lr, self.end_lr, self.warmup_steps, self.decay_steps)


class OneCycleLR(LR_Scheduler):
  """From `max_lr / div_factor` up to `max_lr` in the first `pct_start` of the steps, then down to the first rate by `final_div_factor`.

  >>> from whit import nn
  >>> opt = nn.optim.SGD([Tensor([1.0])])
  >>> plan = OneCycleLR(opt, max_lr=1.0, div_factor=4.0, final_div_factor=10.0, total_steps=10, pct_start=0.1)
  >>> opt.lr.item(), plan.step(), opt.lr.item()
  (0.25, None, 1.0)
  """

  def __init__(self, optimizer: Optimizer, max_lr: float, div_factor: float = 25.0, final_div_factor: float = 1e4, total_steps: int = 0,
               pct_start: float = 0.3, anneal_strategy: str = "linear", cycle_momentum: bool = False) -> None:
    if anneal_strategy not in ("linear", "cos"): raise ValueError(f"[OneCycleLR] anneal_strategy {anneal_strategy!r}; expected 'linear' or 'cos'")
    if cycle_momentum: raise ValueError("[OneCycleLR] cycle_momentum is not possible: momentum is a number of the optimiser, not a tensor")
    super().__init__(optimizer)
    self.initial_lr, self.max_lr, self.min_lr = max_lr / div_factor, max_lr, max_lr / div_factor / final_div_factor
    self.div_factor, self.final_div_factor = div_factor, final_div_factor
    self.total_steps, self.pct_start, self.anneal_strategy = total_steps, pct_start, anneal_strategy
    self._assign().realize()

  def get_lr(self) -> Tensor:
    return _whit.one_cycle_lr(self.epoch_counter, self.max_lr, self.div_factor, self.final_div_factor, self.total_steps, self.pct_start,
                              self.anneal_strategy == "cos")


check_all(globals())
