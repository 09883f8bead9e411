"""TinyJit against program order: what a replay gives is what a call would give, or an error that says why not."""
import numpy as np
import pytest

from whit import Context, GlobalCounters, Tensor, TinyJit, nn
from whit.engine.jit import JitError


def filled(*values): return Tensor([float(v) for v in values]).realize()


def test_inputs_that_are_views():
  base, f = Tensor(np.arange(24, dtype=np.float32).reshape(4, 6)).realize(), TinyJit(lambda a: (a * 2).realize())
  for i in range(4): assert f(base[i]).tolist() == (np.arange(24).reshape(4, 6)[i] * 2).tolist()
  g = TinyJit(lambda a: (a.T, (a + 1).realize()))
  for i in range(4):
    view, sum_ = g(Tensor(np.arange(6, dtype=np.float32).reshape(2, 3) + i).realize().T)
    assert view.tolist() == (np.arange(6).reshape(2, 3) + i).tolist() and sum_.shape == (3, 2)


def test_a_view_that_is_written_is_refused():
  def f(a, b): return a.assign(a + b).realize()
  whole, part = TinyJit(f), TinyJit(f)
  for _ in range(3): whole(filled(1, 2), filled(3, 4))
  x = filled(1, 2, 3)
  with pytest.raises(JitError, match="input 0 is a view of part of a memory"): whole(x[1:], filled(3, 4))
  assert x.tolist() == [1, 2, 3]
  part(x[1:], filled(1, 1))
  with pytest.raises(JitError, match="input 0 is a view of part of a memory"): part(x[1:], filled(1, 1))
  # The view shows what the function writes through another input.
  g = TinyJit(lambda a, b: (a.assign(a + 1).realize(), (b * 1).realize()))
  g(x, x[1:])
  with pytest.raises(JitError, match="input 1 is a view of part of a memory"): g(x, x[1:])


def test_readers_of_state_that_wait():
  w = filled(0, 0)
  view, step, waiting = w[1:], TinyJit(lambda: w.assign(w + 1).realize()), []
  for _ in range(6):
    waiting += [w * 10, view * 10, view.clone()]
    step()
  assert [x.tolist()[-1] for x in waiting] == [v for i in range(6) for v in (i * 10, i * 10, i)]
  assert w.tolist() == [6, 6]


def test_readers_of_state_with_results_that_are_held():
  w = filled(0)
  step, waiting, held = TinyJit(lambda: w.assign(w + 1).realize()), [], None
  for _ in range(8):
    held = None if len(waiting) % 3 == 2 else held
    waiting.append(w * 10)
    result = step()
    held = result if len(waiting) % 2 else None
    del result
  assert [x.item() for x in waiting] == [i * 10 for i in range(8)] and (held is None or held.item() == 8)


def test_readers_of_an_input_that_is_written():
  step, waiting = TinyJit(lambda a: a.assign(a + 1).realize()), []
  x = filled(0)
  for _ in range(5):
    waiting.append(x * 10)
    step(x)
  assert [y.item() for y in waiting] == [0, 10, 20, 30, 40] and x.item() == 5


def test_a_value_from_before_the_capture():
  w, k = filled(1), None
  step = TinyJit(lambda: (w.assign(w + 1).realize(), (k + 0).realize())[1])
  step_k = []
  k = w * 1
  for _ in range(5): step_k.append(step().item())
  assert step_k == [1] * 5 and w.item() == 6


def test_stores_that_wait():
  w, x = filled(2), filled(3)
  f, got = TinyJit(lambda a: (a * w).realize()), []
  for i in range(6):
    w.assign(Tensor([float(i)]))
    got.append(f(x).item())
  assert got == [0, 3, 6, 9, 12, 15]
  w.assign(filled(7))
  assert [f(x).item(), f(x).item()] == [21, 21]


def test_a_store_that_the_function_leaves_waiting():
  n, x = filled(0), filled(1)
  def f(a):
    n.assign(n + a)
    return (a * 2).realize()
  step = TinyJit(f)
  for _ in range(5): step(x)
  assert n.item() == 5


def test_random_numbers_between_replays():
  f, got = TinyJit(lambda: Tensor.rand(2).realize()), []
  Tensor.manual_seed(3)
  for _ in range(5): got += [f().tolist(), Tensor.rand(2).tolist()]
  Tensor.manual_seed(3)
  assert got == [Tensor.rand(2).tolist() for _ in range(10)]


def test_learning_rate_by_assign():
  w = filled(1)
  opt = nn.optim.SGD([w], lr=1.0)

  @TinyJit
  @Context(TRAINING=1)
  def step():
    opt.zero_grad()
    w.sum().backward()
    opt.step()

  got = []
  for lr in (1, 2, 3, 4, 0.5):
    opt.lr.assign(Tensor([float(lr)]))
    step()
    got.append(w.item())
  assert got == [0, -2, -5, -9, -9.5]


def test_tensors_without_elements():
  f = TinyJit(lambda a: ((a + 1).realize(), a.sum().realize(), (a.sum() + 1).realize()))
  for _ in range(4):
    empty, total, one = f(Tensor.zeros(0, 3).realize())
    assert empty.shape == (0, 3) and empty.tolist() == [] and total.item() == 0 and one.item() == 1


def test_other_arguments():
  x = filled(3)
  f = TinyJit(lambda a, k, mode="add": (a + k if mode == "add" else a - k).realize())
  for _ in range(3): assert f(x, 2).item() == 5
  with pytest.raises(JitError, match="is 3, and was 2 when captured"): f(x, 3)
  with pytest.raises(JitError, match=r"the arguments are t,o,mode=o,; captured with t,o,"): f(x, 2, mode="sub")
  assert f(x, 2).item() == 5
  g = TinyJit(lambda d: (d["a"] - d["b"]).realize())
  for _ in range(2): g({"a": filled(5), "b": filled(1)})
  assert g({"a": filled(5), "b": filled(2)}).item() == 3
  with pytest.raises(JitError, match="the arguments are"): g({"b": filled(1), "a": filled(5)})


def test_a_method_serves_one_object():
  class Model:
    def __init__(self, k): self.k = filled(k)
    @TinyJit
    def run(self, x): return (x * self.k).realize()

  a, b, x = Model(2), Model(5), filled(3)
  for _ in range(3): assert a.run(x).item() == 6
  with pytest.raises(JitError, match="an argument that is no tensor"): b.run(x)


def test_a_result_that_is_the_state_or_an_input():
  w, x = filled(0, 0), filled(5)
  step = TinyJit(lambda a: (w.assign(w + 1).realize(), (a + 1).realize(), a))
  for i in range(5):
    state, _, same = step(x)
    w[0] = 7
    assert state.tolist() == [7, i + 1]
    x.assign(Tensor([float(i)]))
    assert same.item() == i
  back = TinyJit(lambda a: (a, (a + 1).realize()))
  for _ in range(3): back(filled(1, 2))
  assert back(filled(1, 2)[::-1])[0].tolist() == [2, 1]


def test_a_new_seed_reaches_captured_functions():
  @TinyJit
  def draw(): return Tensor.rand(3).realize()
  drawn = []
  for seed in (1, 1, 1, 1, 2, 1):
    Tensor.manual_seed(seed)
    drawn.append(draw().tolist())
  assert drawn[0] == drawn[1] == drawn[2] == drawn[3] == drawn[5] != drawn[4]
  Tensor.manual_seed(1)
  assert Tensor.rand(3).tolist() == drawn[0]


def test_weights_that_were_never_computed_are_drawn_once():
  layer = nn.Linear(8, 4)
  x = Tensor.randn(2, 8).realize()  # another draw since then
  f = TinyJit(lambda t: layer(t).realize())
  results = [f(x).tolist() for _ in range(2)]
  before = GlobalCounters.kernel_count
  results.append(f(x).tolist())
  assert GlobalCounters.kernel_count - before == 1
  assert results[0] == results[1] == results[2] == layer(x).tolist()
