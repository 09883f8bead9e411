"""Learning-rate plans, clipping and fused updates against the formulas that PyTorch publishes, outside and inside TinyJit."""
import collections
import math

import pytest

from whit import Context, Tensor, TinyJit, nn
from whit.nn import lr_scheduler as plans
from whit.nn.utils import clip_grad_norm_, clip_grad_value_

LR = 0.4


def multi_step(n, lr=LR, milestones=(2, 3, 3, 6), gamma=0.5):  # torch.optim.lr_scheduler.MultiStepLR
  counts = collections.Counter(milestones)
  for i in range(1, n + 1): lr *= gamma ** counts[i]
  return lr


def cosine(n, top=LR, t_max=5, low=0.1): return low + (top - low) * (1 + math.cos(math.pi * n / t_max)) / 2


def warm_cosine(n, base=0.8, end=0.2, warmup=3, decay=4):
  if n < warmup: return base * (n + 1) / warmup
  return end + (base - end) * (1 + math.cos(math.pi * (n + 1 - warmup) / decay)) / 2


def one_cycle(n, cos, top=1.0, div=4.0, final=10.0, total=8, share=0.25):
  def between(a, b, x): return b + (a - b) / 2 * (1 + math.cos(math.pi * x)) if cos else a + (b - a) * x
  peak = total * share
  return between(top / div, top, n / peak) if n < peak else between(top, top / div / final, (n - peak) / (total - peak))


PLANS = {
  "multi": (lambda o: plans.MultiStepLR(o, [2, 3, 3, 6], 0.5), multi_step),
  "cosine": (lambda o: plans.CosineAnnealingLR(o, 5, 0.1), cosine),
  "warm": (lambda o: plans.CosineAnnealingLRWithWarmup(o, 0.8, 0.2, 3, 4), warm_cosine),
  "line": (lambda o: plans.OneCycleLR(o, 1.0, 4.0, 10.0, 8, 0.25), lambda n: one_cycle(n, False)),
  "cos": (lambda o: plans.OneCycleLR(o, 1.0, 4.0, 10.0, 8, 0.25, "cos"), lambda n: one_cycle(n, True)),
}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", PLANS)
def test_plan_follows_its_formula(name, jit):
  make, formula = PLANS[name]
  w = Tensor([1.0])
  opt = nn.optim.SGD([w], lr=LR)
  plan = make(opt)

  def step():
    opt.zero_grad()
    loss = w.sum().backward()
    return loss.realize(*opt.schedule_step(), *plan.schedule_step())

  with Context(TRAINING=1):
    run, expected = TinyJit(step) if jit else step, 1.0
    for n in range(7):
      assert opt.lr.item() == pytest.approx(formula(n), rel=1e-5)
      expected -= formula(n)  # the gradient is 1
      run()
      assert w.item() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("jit", [False, True])
def test_plateau(mode, threshold_mode, jit):
  measures = [5.0, 4.0, 3.9, 3.99, 3.7, 3.8, 3.8, 3.8, 3.8, 9.0, math.nan, 9.0, 9.0, 1.0]
  opt = nn.optim.SGD([Tensor([1.0])], lr=1.0)
  plan = plans.ReduceLROnPlateau(opt, mode, 0.5, 2, 0.05, threshold_mode)
  run = plan.step
  if jit:
    captured = TinyJit(lambda x: Tensor.realize(*plan.schedule_step(x)))
    run = lambda x: captured(Tensor([x]).realize())  # noqa: E731
  best, bad, lr = (math.inf if mode == "min" else -math.inf), 0, 1.0
  for x in measures:
    run(x)
    sign = -1 if mode == "min" else 1
    bar = best * (1 + sign * 0.05) if threshold_mode == "rel" else best + sign * 0.05
    if x < bar if mode == "min" else x > bar: best, bad = x, 0
    else: bad += 1
    if bad > 2: lr, bad = lr * 0.5, 0
    assert opt.lr.item() == pytest.approx(lr)
    assert plan.bad_epoch.item() == bad
  assert lr < 1.0


def test_group_and_errors():
  a, b = (nn.optim.SGD([Tensor([1.0])], lr=1.0) for _ in range(2))
  plans.LRSchedulerGroup(plans.MultiStepLR(a, [1], 0.5), plans.MultiStepLR(b, [2], 0.5)).step()
  assert (a.lr.item(), b.lr.item()) == (0.5, 1.0)
  for make in (lambda: plans.ReduceLROnPlateau(a, mode="middle"), lambda: plans.ReduceLROnPlateau(a, threshold_mode="x"),
               lambda: plans.OneCycleLR(a, 1.0, total_steps=0), lambda: plans.OneCycleLR(a, 1.0, total_steps=9, anneal_strategy="poly"),
               lambda: plans.OneCycleLR(a, 1.0, total_steps=9, cycle_momentum=True), lambda: plans.CosineAnnealingLR(a, 0).step(),
               lambda: plans.CosineAnnealingLRWithWarmup(a, 1.0, 0.0, 0, 4)):
    with pytest.raises(ValueError): make()


def gradients():
  a, b, c = Tensor([3.0, 0.0]), Tensor([[-4.0]]), Tensor([1.0])
  (a * a / 2).sum().backward()
  (b * b / 2).sum().backward()
  return a, b, c  # c has none


@pytest.mark.parametrize("order,norm", [(2.0, 5.0), (1.0, 7.0), (math.inf, 4.0), (3.0, (27 + 64) ** (1 / 3))])
def test_clip_grad_norm(order, norm):
  a, b, c = gradients()
  held = a.grad
  assert clip_grad_norm_([a, b, c], 1.0, order).item() == pytest.approx(norm, rel=1e-5)
  assert held.tolist() == pytest.approx([3 / (norm + 1e-6), 0.0]) and c.grad is None  # in place, as in PyTorch
  assert b.grad.item() == pytest.approx(-4 / (norm + 1e-6))
  a, b, _ = gradients()
  clip_grad_norm_((t for t in (a, b)), 100.0, order)
  assert (a.grad.tolist(), b.grad.item()) == ([3.0, 0.0], -4.0)
  clip_grad_value_([a, b], 2.0)
  assert (a.grad.tolist(), b.grad.item()) == ([2.0, 0.0], -2.0)


def test_clip_grad_norm_of_what_is_not_finite():
  w = Tensor([1.0, 2.0])
  (w * math.inf).sum().backward()
  with pytest.raises(RuntimeError, match="is inf; expected a finite one"): clip_grad_norm_(w, 1.0, error_if_nonfinite=True)
  assert clip_grad_norm_([], 1.0).item() == 0


def test_clipping_in_a_captured_step():
  results = []
  for wrap in (TinyJit, lambda f: f):
    w = Tensor([3.0, 4.0])
    opt = nn.optim.SGD([w], lr=1.0)

    @wrap
    def step():
      opt.zero_grad()
      (w * w).sum().backward()
      clip_grad_norm_([w], 0.5)
      Tensor.realize(*opt.schedule_step())

    with Context(TRAINING=1):
      for _ in range(4): step()
    results.append(w.tolist())
  assert results[0] == results[1] == pytest.approx([3 - 4 * 0.3, 4 - 4 * 0.4], rel=1e-5)


MAKERS = {
  "SGD": lambda p, **k: nn.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1, nesterov=True, **k),
  "Adam": lambda p, **k: nn.optim.Adam(p, 0.1, **k),
  "AdamW": lambda p, **k: nn.optim.AdamW(p, 0.1, weight_decay=0.1, **k),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MAKERS)
def test_fused_is_the_same_update(name, dtype):
  results = []
  for fused in (False, True):
    ws = [Tensor([[1.0, -2.0, 0.5]], dtype=dtype), Tensor(0.25, dtype=dtype).clone(), Tensor([3.0, 1.0], dtype=dtype)]
    opt = MAKERS[name](ws, fused=fused)
    with Context(TRAINING=1):
      for _ in range(3):
        opt.zero_grad()
        sum((w.cast("float32").tanh() * (i + 1)).sum() for i, w in enumerate(ws)).backward()
        opt.step()
    results.append([w.tolist() for w in ws])
    assert [str(w.dtype) for w in ws] == [str(Tensor([], dtype=dtype).dtype)] * 3
    assert len(opt.m if hasattr(opt, "m") else opt.b) == (1 if fused else 3)
  assert results[0] == results[1]


def test_flag_fuses_and_muon_does_not():
  with Context(FUSE_OPTIM=1):
    assert nn.optim.Adam([Tensor([1.0])]).fused
    assert not nn.optim.Muon([Tensor([[1.0]])]).fused
  with pytest.raises(ValueError, match="fused"): nn.optim.Muon([Tensor([[1.0]])], fused=True)


def test_order_of_schedule_step_and_an_own_rule():
  w, stat = Tensor([1.0]), Tensor([5.0]).is_param_(False)
  opt = nn.optim.Adam([w, stat])
  w.sum().backward()
  with Context(TRAINING=1):
    got = opt.schedule_step()
    assert [id(t) for t in got] == [id(t) for t in (opt.b1_t, opt.b2_t, *opt.m, *opt.v, w, stat)]

    class SignSGD(nn.optim.Optimizer):
      def _step(self, params, grads): return [self.lr * g.sign() for g in grads], []

    own = SignSGD([w], lr=0.5)
    own.step()
  assert w.item() == pytest.approx(1 - 0.001 - 0.5)


def test_a_parameter_without_gradient_is_named():
  with Context(TRAINING=1), pytest.raises(AssertionError, match=r"parameter 0 of shape \(2,\) has no gradient"):
    nn.optim.SGD([Tensor([1.0, 2.0])]).step()
