"""checkpoint and memory_budget: less memory at once, the same values bit for bit."""
import pytest

from whit import Device, GlobalCounters, Tensor, TinyJit, checkpoint

WIDTH, LAYERS, PER_BLOCK = 48, 8, 4


@pytest.fixture
def net():
  Tensor.manual_seed(7)
  weights = [(Tensor.randn(WIDTH, WIDTH) * 0.1).realize() for _ in range(LAYERS)]
  x = Tensor.randn(256, WIDTH).realize()

  def block(h, first):
    for w in weights[first:first + PER_BLOCK]: h = (h @ w).sin()
    return h

  def gradients(checkpointed=False):
    h = x
    for first in range(0, LAYERS, PER_BLOCK): h = (checkpoint(block) if checkpointed else block)(h, first)
    return h.sum().gradient(*weights)
  return gradients


def numbers(tensors): return [t.tolist() for t in tensors]


def peak_of(fn):
  fn()
  Device[Device.DEFAULT].synchronize()  # what is queued holds memory
  GlobalCounters.reset_peak()
  before = GlobalCounters.mem_used
  out = fn()
  got = numbers(out)
  return GlobalCounters.mem_peak - before, got


def run(tensors):
  Tensor.realize(*tensors)
  return tensors


def test_checkpoint(net):
  kept, want = peak_of(lambda: run(net()))
  peak, got = peak_of(lambda: run(net(checkpointed=True)))
  assert got == want and peak < 0.75 * kept, (peak, kept)


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_memory_budget(net, share):
  want = numbers(run(net()))
  all_bytes, _ = peak_of(lambda: run(net()))
  out_bytes = LAYERS * WIDTH * WIDTH * 4
  budget = int((all_bytes - out_bytes) * share)
  step = TinyJit(lambda: run(net()), memory_budget=budget)
  for _ in range(3): assert numbers(step()) == want
  step = TinyJit(lambda: run(net()), memory_budget=budget)
  assert peak_of(step)[0] <= budget + 2 * out_bytes  # those of the call before are held


def test_a_budget_of_what_weights_alone_decide(net):
  step, before = TinyJit(lambda: run(net()), memory_budget=400_000), GlobalCounters.mem_used
  for _ in range(4): numbers(step())
  assert GlobalCounters.mem_used - before <= 400_000 + 3 * LAYERS * WIDTH * WIDTH * 4  # and results, which take turns


def test_a_budget_that_cannot_be_met_names_the_least(net):
  @TinyJit(memory_budget=1000)
  def step(): return run(net())
  with pytest.raises(MemoryError, match=r"memory_budget 1000: temporaries need at least \d+ bytes"): step()
  with pytest.raises(ValueError, match="memory_budget is -1 bytes"): TinyJit(lambda: None, memory_budget=-1)


def test_results_of_any_structure_and_other_arguments():
  fn = checkpoint(lambda x, n, scale=1.0: {"a": [x * n], "b": (x.exp() * scale, x)})
  x = Tensor([1.0, 2.0])
  out = fn(x, 3, scale=2.0)
  assert out["a"][0].tolist() == [3, 6] and out["b"][1].tolist() == [1, 2] and isinstance(out["b"], tuple)
  assert out["b"][0].sum().gradient(x)[0].tolist() == (x.exp() * 2).tolist()
