"""`function(precompile=True)`: a call is computed by itself; calls of equal bodies share one schedule."""
import numpy as np
import pytest

from whit import Context, GlobalCounters, Tensor, TinyJit, function, nn


def data(*shape, seed=0): return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def block(x, w, b): return (x @ w + b).tanh() + x


def network(f, x, ws, bs):
  for w, b in zip(ws, bs): x = f(x, w, b)
  return x.square().mean()


def made(n):
  ws = [Tensor(data(8, 8, seed=i)).realize() for i in range(n)]
  return Tensor(data(4, 8, seed=99)).realize(), ws, [Tensor(data(8, seed=50 + i)).realize() for i in range(n)]


FORMS = {"plain": block, "inline": function(block), "forward": function(block, precompile=True),
         "both": function(block, precompile=True, precompile_backward=True)}


@pytest.mark.parametrize("form", ("inline", "forward", "both"))
def test_values_and_gradients(form):
  x, ws, bs = made(5)
  want, got = network(block, x, ws, bs), network(FORMS[form], x, ws, bs)
  assert got.item() == pytest.approx(want.item(), rel=1e-6)
  for a, b in zip(want.gradient(x, *ws, *bs), got.gradient(x, *ws, *bs)): np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=2e-5, atol=1e-6)


def schedules(fn, capfd):
  """(schedules made anew, kernels) of a run."""
  GlobalCounters.reset()
  capfd.readouterr()
  with Context(DEBUG=3, NO_COLOR=1): fn()
  text = "".join(capfd.readouterr())
  return text.count("| cache MISS"), GlobalCounters.kernel_count


@pytest.mark.parametrize("n", (4, 12))
def test_calls_of_equal_bodies_share_a_schedule(n, capfd):
  x, ws, bs = made(n)
  def run(form): return lambda: network(FORMS[form], x, ws, bs).realize()
  Tensor.ones(1).contiguous().realize()
  misses, kernels = schedules(run("forward"), capfd)
  assert misses <= 3 and kernels >= n  # of a block, and of what comes after the last one
  assert schedules(run("inline"), capfd)[0] == 1


def test_backward_shares_one_too(capfd):
  counts = []
  for n in (4, 12):
    x, ws, bs = made(n)
    counts.append(schedules(lambda: Tensor.realize(*network(FORMS["both"], x, ws, bs).gradient(*ws, *bs)), capfd)[0])
  assert counts[1] <= counts[0] <= 12, counts


def test_training_under_jit():
  def train(f):
    x, ws, bs = made(4)
    opt = nn.optim.SGD([*ws, *bs], lr=0.05)
    @TinyJit
    @Context(TRAINING=1)
    def step(x):
      opt.zero_grad()
      loss = network(f, x, ws, bs).backward()
      return loss.realize(*opt.schedule_step())
    return [step(x).item() for _ in range(6)]
  want = train(block)
  for form in ("forward", "both"): np.testing.assert_allclose(train(FORMS[form]), want, rtol=1e-5)
  assert want[-1] < want[0]


def test_several_results_nesting_and_state():
  inner = function(lambda a: a * 2, precompile=True)
  outer = function(lambda a, b: (inner(a) + b, a - b), precompile=True)
  a, b = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
  s, d = outer(a + 1, b)
  assert (s + inner(d)).tolist() == [2 * 2 + 3 + 2 * (2 - 3), 2 * 3 + 4 + 2 * (3 - 4)]
  state = Tensor.zeros(2).contiguous().realize()
  before = outer(state, b)[0] + 0
  state.assign(state + inner(a)).realize()
  assert before.tolist() == [3.0, 4.0] and state.tolist() == [2.0, 4.0]
  assert (outer(state, b)[0] + 0).tolist() == [7.0, 12.0]
