"""Ways to go wrong with TinyJit: each gives what the function itself would give, or an error with its reason. See docs/jit.md."""
import pytest

from whit import Context, Tensor, TinyJit, Variable, nn
from whit.engine.jit import JitError


def filled(*values): return Tensor([float(v) for v in values]).realize()


def test_python_state_is_found_by_jit_check():
  calls = []

  @TinyJit
  def step(x):
    calls.append(1)
    return (x + len(calls)).realize()
  assert [step(filled(0)).item() for _ in range(4)] == [1, 2, 2, 2]  # what is Python's is frozen
  with Context(JIT_CHECK=1):
    with pytest.raises(JitError, match="JIT_CHECK: result 0 of the replay is not what the function gives now, from byte .* of 4 on"): step(filled(0))


def test_jit_check_leaves_state_and_results_alone():
  w, hits = filled(1, 2), []

  @TinyJit
  def step(x):
    hits.append(1)
    w.assign(w * 2 + x)
    return (w.sum() + x.sum()).realize()
  def run(check):
    w.assign(filled(1, 2)).realize()
    step.reset()
    with Context(JIT_CHECK=check): return [step(filled(i, 1)).item() for i in range(5)] + w.tolist()
  plain = run(0)
  assert len(hits) == 2
  assert run(1) == plain and len(hits) == 2 + 5


def test_jit_check_of_training_and_random_numbers():
  Tensor.manual_seed(3)
  model = nn.Linear(8, 4)
  opt = nn.optim.Adam(nn.state.get_parameters(model), lr=0.01)

  @TinyJit
  def step(x):
    with Context(TRAINING=1):
      opt.zero_grad()
      loss = (model(x).dropout(0.5) ** 2).mean().backward()
      opt.step()
      return loss.realize()
  with Context(JIT_CHECK=1): losses = [step(Tensor.ones(4, 8).contiguous().realize()).item() for _ in range(5)]
  assert len(set(losses)) == 5


def test_jit_check_of_an_input_that_is_written():
  @TinyJit
  def step(cache, x):
    cache.assign(cache + x)
    return cache.sum().realize()
  cache = filled(0, 0)
  with Context(JIT_CHECK=1): assert [step(cache, filled(1, i)).item() for i in range(4)] == [1, 3, 6, 10]
  assert cache.tolist() == [4, 6]


def test_jit_check_of_variables():
  cache = Tensor.zeros(8, 2).contiguous().realize()

  @TinyJit
  def step(x, pos):
    cache[pos:pos + 1].assign(x)
    return cache[:pos + 1].sum().realize()
  position = Variable("pos", 0, 7)
  with Context(JIT_CHECK=1): assert [step(filled(i, 1).reshape(1, 2), position.bind(i)).item() for i in range(5)] == [1, 3, 6, 10, 15]


def test_a_changed_global_tensor_is_seen_by_jit_check():
  box = {"w": filled(1, 2)}

  @TinyJit
  def step(x): return (x * box["w"]).realize()
  for _ in range(3): step(filled(1, 1))
  box["w"] = filled(5, 5)  # another object: the captured kernels read the old one
  assert step(filled(1, 1)).tolist() == [1, 2]
  with Context(JIT_CHECK=1):
    with pytest.raises(JitError, match="JIT_CHECK: result 0"): step(filled(1, 1))


def test_another_number_of_results_is_seen_by_jit_check():
  n = [1]

  @TinyJit
  def step(x): return [(x + i).realize() for i in range(n[0])]
  for _ in range(3): step(filled(1))
  n[0] = 2
  with Context(JIT_CHECK=1):
    with pytest.raises(JitError, match="the function gives 2 tensors now, 1 were captured"): step(filled(1))


def test_numbers_read_inside_are_an_error():
  @TinyJit
  def step(x):
    if x.sum().item() > 0: return (x + 1).realize()
    return (x - 1).realize()
  step(filled(1))
  with pytest.raises(JitError, match="data of a tensor was read while a function is captured"): step(filled(1))


def test_results_that_are_no_tensors_are_an_error():
  @TinyJit
  def step(x): return (x + 1).realize().shape[0]
  with pytest.raises(JitError, match="the function returned a int"):
    for _ in range(2): step(filled(1))


def test_a_jit_inside_of_another_one():
  @TinyJit
  def inner(x): return (x * 2).realize()

  @TinyJit
  def outer(x): return (inner(x) + 1).realize()
  outer(filled(1))
  with pytest.raises(RuntimeError, match="a jit of its own was called while another one is captured"): outer(filled(1))
  for _ in range(2): inner(filled(1))  # captured by itself first: its kernels go into the outer one
  outer.reset()
  assert [outer(filled(i)).item() for i in range(4)] == [1, 3, 5, 7]
