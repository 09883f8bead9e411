"""More ways to go wrong with TinyJit, found by programs like jit_fuzz.py's: see docs/jit.md."""
import collections, gc, itertools, threading, weakref

import jit_fuzz
import numpy as np
import pytest

from whit import Context, GlobalCounters, Tensor, TinyJit, Variable, dtypes, nn
from whit.engine.jit import JitError


def filled(*values): return Tensor([float(v) for v in values]).realize()


def test_random_programs():
  for seed in range(250): jit_fuzz.check(seed, jit_check=seed % 5 == 0)


@TinyJit
def times(x, n): return (x * float(n)).realize()


@pytest.mark.parametrize("first, same, other", [
  (0.0, 0.0, -0.0), (float("nan"), float("nan"), 1.0), (np.float32(0.5), np.float32(0.5), np.float32(0.25)), (True, True, 1), (1, 1, True)])
def test_numbers_as_arguments(first, same, other):
  times.reset()
  for n in (first, first, same): times(filled(1), n)
  with pytest.raises(JitError, match="an argument that is no tensor is"): times(filled(1), other)


@pytest.mark.parametrize("first, same, other", [(range(3), range(3), range(4)), (1 + 2j, 1 + 2j, 1 - 2j), ({1, 2}, {2, 1}, {1}), (slice(1, 2), slice(1, 2), slice(1, 3))])
def test_objects_by_value(first, same, other):
  @TinyJit
  def f(x, o): return (x + 1).realize()
  for o in (first, first, same): f(filled(1), o)
  with pytest.raises(JitError, match="an argument that is no tensor is"): f(filled(1), other)


@pytest.mark.parametrize("box", [np.zeros(2, dtype=np.float32), bytearray(2), {0}], ids=["ndarray", "bytearray", "set"])
def test_an_argument_that_was_filled_anew(box):
  @TinyJit
  def f(x, o): return (x + sum(o)).realize()
  for _ in range(3): f(filled(1), box)
  if isinstance(box, set): box.add(1)
  else: box[1] = 7
  with pytest.raises(JitError, match="holds other values, or is another object, than when captured"): f(filled(1), box)


def test_tensors_deep_inside_of_arguments():
  @TinyJit
  def f(l):
    while isinstance(l, list): l = l[0]
    return (l * 2).realize()
  inner = [None]
  outer = inner
  for _ in range(12): outer = [outer]
  got = []
  for i in range(4):
    inner[0] = filled(i)
    got.append(f(outer).item())
  assert got == [0, 2, 4, 6]
  inner[0] = inner
  with pytest.raises(JitError, match="nested more than 64 deep"): f(outer)


def test_sizes_that_come_and_go():
  v, table = Variable("v", 1, 5), filled(*range(6))

  @TinyJit
  def f(x, at=0, also=None): return (x[at] * 2 if also is None else x[also]).realize()
  for _ in range(3): f(table)
  with pytest.raises(JitError, match="2 input tensors and sizes; captured with 1"): f(table, v.bind(4))
  f.reset()
  for i in (1, 2, 3): f(table, v.bind(i))
  with pytest.raises(JitError, match="3 input tensors and sizes; captured with 2"): f(table, v.bind(4), v.bind(4))


def test_results_keep_their_classes():
  Pair = collections.namedtuple("Pair", "x y")

  class Many(list): pass

  @TinyJit
  def f(x):
    d = collections.defaultdict(list)
    d["a"].append(Pair((x * 2).realize(), None))
    return d, Many([x + 1])
  for i in range(4):
    d, many = f(filled(i))
    assert type(d) is collections.defaultdict and type(many) is Many and d["b"] == []
    assert d["a"][0].x.item() == 2 * i and d["a"][0].y is None and many[0].item() == i + 1


def test_a_tensor_returned_twice_is_one():
  @TinyJit
  def f(x):
    y = (x + 1).realize()
    return y, [y]
  for i in range(4):
    a, (b, ) = f(filled(i))
    a.assign(filled(9))
    assert b.item() == 9


def test_a_method_does_not_keep_its_object_alive():
  class Model:
    def __init__(self): self.w, self.step = filled(1, 2), TinyJit(self.forward)
    def forward(self, x, other=None): return (self.w * x).realize()
  class Other: pass
  model, other = Model(), Other()
  other.step = model.step
  for _ in range(3): model.step(filled(1, 1), other)
  gone = weakref.ref(model), weakref.ref(other)
  del model, other
  gc.collect()
  assert [r() for r in gone] == [None, None]


def test_two_threads():
  @TinyJit
  def f(x):
    for _ in range(50): x = (x * 1.5).contiguous()
    return x.realize()
  for _ in range(3): f(filled(1))
  errors, wrong = [], []
  def work(k):
    for _ in range(300):
      try:
        if f(filled(k)).item() != pytest.approx(k * 1.5**50): wrong.append(k)
      except JitError as e: errors.append(str(e))
  threads = [threading.Thread(target=work, args=(k, )) for k in (1, 2, 3)]
  for t in threads: t.start()
  for t in threads: t.join()
  assert not wrong and all("called from a second thread" in e for e in errors)


def both(program):
  with Context(JIT=0): plain = program()
  assert program() == plain


def test_gradients_that_are_added_to():
  # Without zero_grad: the gradient of the first call is not in memory when the second one is captured.
  def train():
    w = filled(1, 2)
    opt = nn.optim.SGD([w], lr=0.1)

    @TinyJit
    def step(x):
      with Context(TRAINING=1):
        loss = (w * x).sum().backward()
        nn.utils.clip_grad_value_([w], 2.5)
        nn.utils.clip_grad_norm_([w], 2.0)
        opt.step()
        return loss.realize()
    return [(step(filled(i, 1)).item(), w.tolist()) for i in range(6)] + w.grad.tolist()
  both(train)


LEFT_OUT = "was left out by a captured function"


class Trained:
  """Two layers and a step of SGD on images that are reached from outside, or passed."""
  def __init__(self):
    Tensor.manual_seed(5)
    self.layers = [nn.Conv2d(1, 2, 3), Tensor.relu, nn.Conv2d(2, 2, 3)]
    self.opt = nn.optim.SGD(nn.state.get_parameters(self.layers), lr=0.1)
    self.images = Tensor.rand(2, 1, 8, 8).realize()

  def loss(self, images): return images.sequential(self.layers).square().mean().backward()

  def step(self, look=None, images=None):
    images = self.images if images is None else images
    with Context(TRAINING=1):
      self.opt.zero_grad()
      loss = self.loss(images)
      return Tensor.realize(loss, *self.opt.schedule_step(), *(look(images) if look else []))

  def weights(self): return [t.tolist() for t in nn.state.get_parameters(self.layers)]


def kernels_of(step):
  for _ in range(3): step()
  GlobalCounters.reset()
  step()
  return GlobalCounters.kernel_count


def test_a_gradient_that_nobody_reads_is_left_out():
  plain, watched = Trained(), Trained()
  n_plain = kernels_of(TinyJit(plain.step))
  assert n_plain < kernels_of(TinyJit(lambda: watched.step(lambda x: [x.grad])))
  assert plain.weights() == watched.weights()
  watched.images.grad.tolist()
  assert "grad left out" in repr(plain.images)
  for t in (plain.images, plain.images.clone(), plain.images.to(None)):
    with pytest.raises(JitError, match=LEFT_OUT): t.grad
  # It stays so while gradients are added to it, and begins anew when it is set to None, until the next replay.
  plain.loss(plain.images)
  with pytest.raises(JitError, match=LEFT_OUT): plain.images.grad
  plain.images.grad = None
  plain.loss(plain.images)
  assert plain.images.grad.shape == plain.images.shape


def test_a_replay_says_that_it_gives_no_gradient_of_its_input():
  w = Tensor([2.0, 3.0]).realize()
  def loss(x): return (x * w).sum().backward()
  seen = TinyJit(lambda x: Tensor.realize(loss(x), x.grad))
  for i in range(4):
    x = Tensor([1.0, i]).realize()
    seen(x)
    if i < 3: assert x.grad.tolist() == [2, 3]  # w.grad is added to: what becomes of it is known one call later
    else:
      with pytest.raises(JitError, match=LEFT_OUT): x.grad
  returned = TinyJit(lambda x: (loss(x).realize(), x.grad.realize()))
  for i in range(4): assert returned(Tensor([1.0, i]).realize())[1].tolist() == [2, 3]


def test_a_gradient_is_left_out_of_each_replay():
  for returns in (True, False):
    t = Trained()
    step = TinyJit(lambda: (t.step(), None)[not returns])
    for _ in range(4): step()
    t.images.grad = None
    step()
    with pytest.raises(JitError, match=LEFT_OUT): t.images.grad
  # Of images that are passed, too, also where a captured function is part of another one.
  inner = TinyJit(lambda x: t.step(None, x))
  for _ in range(3): inner(Tensor.rand(2, 1, 8, 8).realize())
  x = Tensor.rand(2, 1, 8, 8).realize()
  assert x.grad is None
  inner(x)
  with pytest.raises(JitError, match=LEFT_OUT): x.grad
  outer = TinyJit(lambda x: inner(x) * 2)
  for _ in range(3): outer(x := Tensor.rand(2, 1, 8, 8).realize())
  with pytest.raises(JitError, match=LEFT_OUT): x.grad


@pytest.mark.parametrize("check", [0, 1])
@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_a_gradient_that_is_read(check, budget):
  def read_inside():
    t = Trained()

    def body(x):
      loss = t.loss(x)
      g = x.grad.square().sum()
      with Context(TRAINING=1): t.opt.step()
      t.opt.zero_grad()
      return loss.realize(), g.realize()
    step, got = TinyJit(body, memory_budget=budget), []
    for i in range(5):
      with Context(JIT_CHECK=check): got += [v.item() for v in step(Tensor.full((2, 1, 8, 8), 0.5 + i).realize())]
    return got
  both(read_inside)

  def steps(before, after):
    t = Trained()
    step, got = TinyJit(t.step, memory_budget=budget), []
    for i in range(5):
      before(t, i)
      with Context(JIT_CHECK=check): step()
      got.append(after(t))
    return got
  def touch(t, i): t.images.grad = t.images.grad if i else None  # read and set before the step
  both(lambda: steps(touch, lambda t: t.images.grad.tolist()))
  both(lambda: steps(lambda t, i: None, lambda t: [p.grad.square().sum().item() for p in t.opt.params]))


def test_gradients_without_a_store_into_what_they_read():
  # Nobody has read them when they are captured; they are added to, and read at the end.
  def program():
    w = filled(1, 2)

    @TinyJit
    def f(x):
      loss = (w * w * x).sum().backward()
      return loss.realize()
    for i in range(5): f(filled(i, 1))
    return w.grad.tolist()
  both(program)


def test_a_gradient_that_is_read_after_the_store():
  t = Trained()
  step = TinyJit(lambda x: (t.step(None, x), x.grad.realize()))
  step(Tensor.rand(2, 1, 8, 8).realize())
  with pytest.raises(JitError, match=LEFT_OUT): step(Tensor.rand(2, 1, 8, 8).realize())


def test_a_gradient_that_is_left_out_on_several_devices():
  t = Trained()
  for p in [*t.opt.params, t.opt.lr]: p.shard_(("CPU", "CPU:1")).realize()
  t.images = t.images.shard(("CPU", "CPU:1"), axis=0).realize()
  assert kernels_of(TinyJit(t.step)) > 0
  with pytest.raises(JitError, match=LEFT_OUT): t.images.grad


def test_a_value_that_is_assigned_before_it_is_in_memory():
  def program():
    count = filled(1, 1) * 2

    @TinyJit
    def f(x):
      count.assign(count + 1)
      return (x + count).realize()
    return [f(filled(0, i)).tolist() for i in range(5)] + count.tolist()
  both(program)


@pytest.mark.parametrize("what", ["state", "argument", "constant"])
def test_a_replaced_value_is_an_error(what):
  state, constant = filled(1), Tensor.arange(2).float()

  @TinyJit
  def f(x):
    if what == "constant": constant.assign(constant + 1)
    else: (state if what == "state" else x).replace(filled(2))
    return (x + state + constant).realize()
  f(filled(1))
  with pytest.raises(JitError, match="replaced the value of a tensor from before it, of shape"):
    for _ in range(3): f(filled(1))


def test_a_store_that_waits_while_a_reader_goes():
  # References balance: one reader of the state is dropped, one store comes.
  def program():
    state = filled(1, 2)
    readers = [state * 2, state * 3]

    @TinyJit
    def f(x): return (state + x).realize()
    for _ in range(3): f(filled(0, 0))
    readers.pop()
    new = filled(5, 6)
    state.assign(new)
    return f(filled(0, 0)).tolist() + readers[0].tolist()
  both(program)


@pytest.mark.parametrize("view", range(7))
def test_results_that_are_views_and_held(view):
  make = [lambda y: y.flip(0), lambda y: y[1:3], lambda y: y.reshape(2, 2).T, lambda y: y.expand(2, 4), lambda y: (y * 0 + y, y.flip(0)), lambda y: (y[:2], y[2:], y),
          lambda y: y.pad((1, 1))][view]
  def program():
    f = TinyJit(lambda x: make((x * 2).realize()))
    held = [f(filled(i, 1, 2, 3)) for i in range(6)]
    return [t.tolist() for r in held for t in (r if isinstance(r, tuple) else [r])]
  both(program)


@pytest.mark.parametrize("at, computed", list(itertools.product(range(5), range(3))))
def test_a_written_argument_that_was_computed_with_another_tensor(at, computed):
  # Equal expressions are computed once, and lie in the same memory until one of them is assigned to.
  def program():
    state, got, pair = filled(1, 2), [], None

    @TinyJit
    def f(x):
      x.assign(x * 0 + 5)
      return (x + 1).realize()
    for i in range(5):
      x = filled(i, i)
      if i == at:
        x, pair = state * 2, state * 2
        if computed: x.realize()
        if computed == 2: pair.realize()
      got += f(x).tolist() + x.tolist()
    return got + pair.tolist()
  both(program)


def test_jit_check_with_a_store_that_waits():
  state = filled(1, 2)

  @TinyJit
  def f(x):
    state.assign(state + x)
    return state.sum().realize()
  for _ in range(3): f(filled(1, 1))
  new = filled(10, 20)
  state.assign(new)
  with Context(JIT_CHECK=1): assert f(filled(1, 1)).item() == 32
  assert state.tolist() == [11, 21]


def test_a_view_that_is_written_at_the_capture_is_refused():
  base = Tensor.zeros(6, dtype=dtypes.int32).contiguous().realize()

  @TinyJit
  def f(x): x.assign(x + 1)  # the store waits when the function is done
  f(base[:3])
  with pytest.raises(JitError, match="input 0 is a view of part of a memory that the captured function writes"): f(base[:3])


def test_a_view_that_is_passed_twice():
  base = filled(*range(6))

  @TinyJit
  def f(x, y): return (x * 10 + y).realize()
  for i in range(3):
    view = base[i:i + 3]
    assert f(view, view).tolist() == [11 * i, 11 * i + 11, 11 * i + 22]
  with pytest.raises(JitError, match="inputs 0 and 1 were the same memory when captured, and are not now"): f(base[:3], base[3:])


def test_an_expression_of_state_that_is_made_anew():
  # Equal expressions are one node, which knows its value as long as somebody waits for what is built on it.
  def program():
    state = filled(1, 2)

    @TinyJit
    def f(x): state.assign(state + x)
    for _ in range(3): f(filled(1, 1))
    twice = (state * 2).realize()
    first = state * 2
    waits = first + 1
    first.realize()
    got = []
    for _ in range(3):
      f(filled(1, 1))
      got += (state * 2).tolist()
    return got + waits.tolist() + twice.tolist()
  both(program)


def test_a_store_that_waits_and_reads_a_written_argument():
  def program():
    state = filled(0, 0)

    @TinyJit
    def f(x): x.assign(x * 2)
    for _ in range(3): f(filled(1, 1))
    x = filled(1, 2)
    state.assign(x)  # waits
    f(x)
    return state.tolist() + x.tolist()
  both(program)


def test_jit_check_of_written_arguments_that_were_computed_alike():
  state = filled(1, 2)

  @TinyJit
  def f(x, y):
    x.assign(x + 1)
    y.assign(y * x)
    return (x + y).realize()
  for _ in range(3): f(filled(1, 1), filled(2, 2))
  x, y = state * 2, state * 2
  with Context(JIT_CHECK=1): assert f(x, y).tolist() == [9, 25]
  assert x.tolist() + y.tolist() == [3, 5, 6, 20]


def test_free_intermediates():
  x = Tensor.ones(256, 256).contiguous().realize()
  f = TinyJit(lambda x: ((x.flip(0) + 1).contiguous() @ x).sum().realize())
  before = GlobalCounters.mem_used
  want = [f(x).item() for _ in range(4)]
  assert GlobalCounters.mem_used - before >= 256 * 256 * 4
  f.captured.free_intermediates()
  assert GlobalCounters.mem_used - before < 1024 and f.captured is None
  assert [f(x).item() for _ in range(4)] == want


def test_a_gradient_through_a_result_is_refused_in_every_call():
  w = filled(2)
  f = TinyJit(lambda x: (x * w).realize())
  held = []
  for i in range(6):
    held.append(f(filled(i)))
    with pytest.raises(RuntimeError, match="only through a value that was realised before"): (held[-1] * 3).sum().gradient(w)


def test_a_function_that_calls_its_own_jit():
  def body(x, n): return times((x + 1).realize(), n - 1) if n else (x * 2).realize()
  times = TinyJit(body)
  assert times(filled(1), 2).tolist() == (filled(3) * 2).tolist()  # nothing is captured yet
  for _ in range(2):
    with pytest.raises(RuntimeError, match="a jit of its own was called while another one is captured"): times(filled(1), 2)
  endless = TinyJit(lambda x: endless(x))
  for _ in range(3):
    with pytest.raises(RecursionError): endless(filled(1))
  assert times(filled(1), 0).tolist() == (filled(1) * 2).tolist()  # the failed captures left nothing behind
