"""Tensors on several devices against the same on one: equal to the bit where no sum crosses the cut axis."""
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from whit import Context, Device, GlobalCounters, Tensor, TinyJit, dtypes, nn

KIND = Device.DEFAULT.split(":")[0]


def devices(n): return tuple(f"{KIND}:{i}" for i in range(n))
def names(n): return tuple(KIND if i == 0 else f"{KIND}:{i}" for i in range(n))


def data(*shape, seed=0):
  return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def check(fn, *arrays, axes=((0, 0), (1, None), (None, 1), (None, None)), n=2, exact=True, grad=True):
  """fn over tensors that are cut along axes (an axis too many is left out), value and gradients, against one device."""
  def run(cut):
    xs = []
    for i, a in enumerate(arrays):
      x = Tensor(a)
      xs.append(x.realize() if cut is None else x.shard(devices(n), cut[i]).realize())
    y = fn(*xs)
    out = [y]
    if grad and dtypes.is_float(y.dtype):
      w = Tensor(np.cos(np.arange(np.prod(y.shape, dtype=int))).astype(np.float32).reshape(y.shape))
      if cut is not None: w = w.shard(devices(n))
      out += (y * w).sum().gradient(*xs)
    return [o.numpy() for o in out]
  want = run(None)
  for cut in axes:
    cut = cut[:len(arrays)]
    for got, w in zip(run(cut), want):
      assert got.shape == w.shape and got.dtype == w.dtype
      if exact: np.testing.assert_array_equal(got, w, err_msg=str(cut))
      else: np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-5, err_msg=str(cut))


def test_shard_and_back():
  a = data(4, 6)
  for n in (2, 4):
    x = Tensor(a).shard(devices(n), axis=0)
    assert x.device == names(n) and x.shape == (4, 6) and (x.numpy() == a).all()
    assert x.to(KIND).device == KIND and (x.to(KIND).numpy() == a).all()
    assert (x.realize().to(f"{KIND}:1").numpy() == a).all()
  x = Tensor(a).shard(devices(2))
  assert (x.realize().numpy() == a).all() and ((x + 1).sum(0).numpy() == Tensor(a).add(1).sum(0).numpy()).all()
  assert (Tensor(a, device=devices(2)).numpy() == a).all()
  assert Tensor(a).shard((KIND,)).device == KIND
  y = Tensor(a)
  assert y.shard_(devices(2), 1) is y and y.device == names(2)
  assert Tensor(a).shard_like(y).device == names(2) and ((Tensor(a).shard_like(y) - y).numpy() == 0).all()


def test_errors():
  with pytest.raises(RuntimeError, match="axis 0 of shape .3, 2. does not divide by 2"): Tensor(data(3, 2)).shard(devices(2), 0)
  x = Tensor(data(4, 2)).shard(devices(2), 0)
  with pytest.raises(RuntimeError, match="on several devices already"): x.shard(devices(2), 0)
  with pytest.raises(RuntimeError, match="a device is given"): x.zeros_like(device=KIND)
  with pytest.raises(IndexError): Tensor(data(4, 2)).shard(devices(2), 2)
  with pytest.raises(ValueError, match="named twice"): Tensor(data(4, 2)).shard((KIND, KIND), 0)
  with pytest.raises(ValueError, match="at least one"): Tensor(data(4, 2)).shard((), 0)
  with pytest.raises(RuntimeError, match="ADD of values on"): (x + Tensor(data(4, 2)).realize()).realize()
  with pytest.raises(RuntimeError): x.assign(Tensor(data(4, 2)).realize())


UNARY = [lambda x: x.exp(), lambda x: x.relu() + 1, lambda x: x.cast(dtypes.half), lambda x: x.bitcast(dtypes.int32),
         lambda x: (x > 0).where(x, 2.0), lambda x: x.permute(1, 0), lambda x: x.reshape(2, 2, 2, 4),
         lambda x: x.reshape(-1), lambda x: x.reshape(8, 4), lambda x: x.unsqueeze(1).expand(4, 3, 8),
         lambda x: x.pad(((1, 1), (0, 2))), lambda x: x[1:3], lambda x: x[:, 2:7], lambda x: x[2], lambda x: x[:, ::-1],
         lambda x: x.flip((0, 1)), lambda x: x[::2], lambda x: Tensor.stack(x, x * 2, dim=1),
         lambda x: Tensor.cat(x, x * 2, dim=0), lambda x: Tensor.cat(x, x[:1], dim=0), lambda x: x.repeat(2, 3),
         lambda x: x.cumsum(1), lambda x: x.unfold(1, 3, 2), lambda x: x.roll(1, 0), lambda x: x.contiguous() * 2,
         lambda x: x.sort(1)[0], lambda x: x.argmax(1), lambda x: x.tril(), lambda x: x.chunk(2, 1)[1] * 3,
         lambda x: x.bitcast(dtypes.uint16).cast(dtypes.float), lambda x: x.split(2, 0)[1], lambda x: x.detach() * x,
         lambda x: x.one_hot(4) if dtypes.is_int(x.dtype) else x.cast(dtypes.int32).abs().one_hot(4)]


@pytest.mark.parametrize("number", range(len(UNARY)))
@pytest.mark.parametrize("n", (2, 4))
def test_unary(number, n): check(UNARY[number], data(4, 8), axes=((0,), (1,), (None,)), n=n)


@pytest.mark.parametrize("where", (("CPU:1", "CPU:2"), ("CPU:1", "CPU"), ("CPU:2", "CPU:1", "CPU")))
def test_without_the_default_device_first(where):
  a = data(6)
  for t in (Tensor(a, device=where), Tensor(a.tolist(), device=where), Tensor(a.tobytes(), device=where, dtype=dtypes.float32)):
    assert t.device == where and (t.numpy() == a).all() and ((t * 2).numpy() == a * 2).all()
  with pytest.raises(ValueError, match="memory of one device for"): Tensor.from_blob(a.ctypes.data, (6, ), device=where)
  w, x = Tensor(data(2, 2)).shard(where), Tensor(data(6, 2)).shard(where, 0)
  want = nn_step(Tensor(data(2, 2)), Tensor(data(6, 2)))
  np.testing.assert_allclose(nn_step(w, x), want, rtol=1e-5)


def nn_step(w, x):
  opt = nn.optim.AdamW([w], lr=0.1)
  with Context(TRAINING=1):
    (x @ w).square().mean().backward()
    opt.step()
  return w.numpy()


def test_sums():
  for fn in (lambda x: x.sum(0), lambda x: x.sum(1), lambda x: x.sum(), lambda x: x.max(0), lambda x: x.min((0, 1)), lambda x: x.prod(0),
             lambda x: x.mean(1, keepdim=True), lambda x: x.var(0), lambda x: x.std(1), lambda x: x.softmax(0), lambda x: x.softmax(1),
             lambda x: x.log_softmax(-1), lambda x: x.logsumexp(0), lambda x: x.layernorm(), lambda x: x.normalize(), lambda x: x.cumsum(0)):
    check(fn, data(4, 8), axes=((0,), (1,), (None,)), exact=False)
  for axis in (0, 1):  # no sum crosses the cut
    check(lambda x: x.sum(1 - axis), data(4, 8), axes=((axis,),), n=4)
    check(lambda x: x.softmax(1 - axis), data(4, 8), axes=((axis,),), n=4)


def test_binary():
  for fn in (lambda x, y: x + y, lambda x, y: x * y.sum(0, keepdim=True), lambda x, y: Tensor.cat(x, y, dim=1), lambda x, y: x - y.permute(1, 0).permute(1, 0),
             lambda x, y: x.maximum(y), lambda x, y: (x < y).where(x, y)):
    check(fn, data(4, 8), data(4, 8, seed=1), axes=((0, 0), (0, 1), (1, 0), (0, None), (None, 1)), exact=False)


def test_matmul():
  axes = ((0, None), (None, 1), (1, 0), (0, 0), (1, 1), (0, 1))
  check(lambda x, y: x @ y, data(4, 8), data(8, 4), axes=axes, n=4, exact=False)
  check(lambda x, y: x.matmul(y), data(2, 4, 8), data(2, 8, 4), axes=((0, 0), (1, None), (2, 1), (None, 2)), exact=False)


def test_gather_and_scatter():
  table, index, rows = data(8, 4), np.array([[1, 7, 0, 3], [2, 2, -1, 5]], np.int64), data(4, 3)
  for cut in (0, 1, None):
    for icut in (0, 1, None):
      def both(fn):
        x, i = Tensor(table).realize(), Tensor(index).realize()
        sx, si = Tensor(table).shard(devices(2), cut).realize(), Tensor(index).shard(devices(2), icut).realize()
        y, sy = fn(x, i), fn(sx, si)
        g, sg = (y * y).sum().gradient(x)[0], (sy * sy).sum().gradient(sx)[0]
        np.testing.assert_allclose(sy.numpy(), y.numpy(), rtol=1e-6)
        np.testing.assert_allclose(sg.numpy(), g.numpy(), rtol=1e-5)
      both(lambda x, i: x[i])
      both(lambda x, i: x[i[:, :2], 1])
      both(lambda x, i: x.gather(0, i.abs()))
      both(lambda x, i: x.scatter(0, i.abs(), i.cast(dtypes.float) * 1.5))
      both(lambda x, i: x.scatter_reduce(0, i.abs(), i.cast(dtypes.float), "sum"))


def test_assign_and_setitem():
  for cut in (0, 1, None):
    a, b = data(4, 8), data(4, 8, seed=3)
    x = Tensor(a).shard(devices(2), cut).realize()
    old, view = x + 1, x[1]
    x.assign(x * 2)
    assert (x.numpy() == a * 2).all() and (old.numpy() == a + 1).all() and (view.numpy() == a[1] * 2).all()
    x += Tensor(b).shard(devices(2), cut)
    want = a * 2 + b
    x[1:3, ::2] = 7
    want[1:3, ::2] = 7
    x[0] = Tensor(b[0]).shard(devices(2))
    want[0] = b[0]
    x[:, 3] = x[:, 4] * 2
    want[:, 3] = want[:, 4] * 2
    assert (x.numpy() == want).all()
    c = x.clone()
    x.assign(0.5)
    assert (x.numpy() == 0.5).all() and (c.numpy() == want).all() and c.device == x.device
  w = Tensor(data(4, 8)).shard(devices(2), 0).realize()
  with pytest.raises(RuntimeError, match="axis"): w.assign(Tensor(data(4, 8)).shard(devices(2), 1))


def test_like_and_random():
  x = Tensor(data(4, 8)).shard(devices(2), 0).realize()
  for y in (x.zeros_like(), x.ones_like(), x.full_like(3), x.empty_like(), x.rand_like(), x.randn_like()):
    assert y.device == x.device and y.shape == x.shape
    assert y.realize().numpy().shape == (4, 8)
  assert (x.full_like(3).numpy() == 3).all()
  Tensor.manual_seed(5)
  want = [Tensor.rand(4, 8).numpy(), Tensor.rand(4, 8).numpy()]
  Tensor.manual_seed(5)
  assert (x.rand_like().numpy() == want[0]).all() and (Tensor.rand(4, 8, device=devices(2)).numpy() == want[1]).all()
  with Context(TRAINING=1):
    Tensor.manual_seed(5)
    a = Tensor(data(4, 8)).dropout(0.5).numpy()
    Tensor.manual_seed(5)
    assert (x.dropout(0.5).numpy() == a).all()


@pytest.mark.parametrize("flags", ({"RING": 0}, {"RING": 2}, {"ALL2ALL": 2}, {"TREE": 2, "RING": 0}))
def test_allreduce(flags):
  for n in (2, 3, 4, 8):
    a = data(n, 7)
    with Context(**flags):
      x = Tensor(a).shard(devices(n), 0)
      np.testing.assert_allclose(x.sum(0).numpy(), a.sum(0), rtol=1e-5, atol=1e-6)
      assert (x.max(0).numpy() == a.max(0)).all()
      s = x.sum(0).realize()
      parts = [s.to(d).numpy() for d in names(n)]  # the same bits on each
      assert all((p == parts[0]).all() for p in parts)


class Net:
  def __init__(self):
    self.conv, self.bn = nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm(4)
    self.l1, self.norm, self.l2 = nn.Linear(4 * 4 * 4, 16), nn.LayerNorm(16), nn.Linear(16, 3)

  def __call__(self, x):
    x = self.bn(self.conv(x)).relu().flatten(1)
    return self.l2(self.norm(self.l1(x)).gelu())


def make(net, seed=0):
  for i, (_, p) in enumerate(sorted(nn.state.get_state_dict(net).items())):
    if dtypes.is_float(p.dtype): p.replace(Tensor(data(*p.shape, seed=seed + i) * 0.3 + (1 if "var" in _ else 0)).cast(p.dtype)).realize()
  return net


@pytest.mark.parametrize("n", (2, 4))
@pytest.mark.parametrize("jit", (False, True))
@pytest.mark.parametrize("optim", ("SGD", "AdamW"))
def test_data_parallel(n, jit, optim):
  x, y = data(8, 1, 6, 6), np.arange(8, dtype=np.int32) % 3
  def train(cut):
    net = make(Net())
    for p in nn.state.get_parameters(net):
      if cut: p.shard_(devices(n))
    opt = nn.optim.SGD(nn.state.get_parameters(net), lr=0.05, momentum=0.9) if optim == "SGD" else nn.optim.AdamW(nn.state.get_parameters(net), lr=0.01)
    def step(bx, by):
      opt.zero_grad()
      loss = net(bx).sparse_categorical_crossentropy(by).backward()
      return loss.realize(*opt.schedule_step())
    run = TinyJit(step) if jit else step
    losses = []
    with Context(TRAINING=1):
      for k in range(20):
        bx, by = Tensor(x * (1 + 0.01 * k)), Tensor(y)
        if cut: bx, by = bx.shard(devices(n), 0), by.shard(devices(n), 0)
        losses.append(run(bx.realize(), by.realize()).item())
    return losses, nn.state.get_state_dict(net)
  (want, ref), (got, state) = train(False), train(True)
  np.testing.assert_allclose(got, want, rtol=1e-5)
  assert want[-1] < want[0]
  for k, v in ref.items(): np.testing.assert_allclose(state[k].numpy(), v.numpy(), rtol=1e-5, atol=1e-6, err_msg=k)


class Block:
  """A transformer block whose heads and hidden units lie on several devices."""
  def __init__(self, dim=8, heads=4):
    self.heads = heads
    self.emb = nn.Embedding(10, dim)
    self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
    self.up, self.down, self.norm = nn.Linear(dim, 16), nn.Linear(16, dim), nn.LayerNorm(dim)

  def __call__(self, t):
    x = self.emb(t)
    q, k, v = (f(self.norm(x)).reshape(*t.shape, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
    x = x + self.o(q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).flatten(2))
    return (x + self.down(self.up(x).gelu())) @ self.emb.weight.T


@pytest.mark.parametrize("n", (2, 4))
@pytest.mark.parametrize("jit", (False, True))
def test_tensor_parallel(n, jit):
  tokens = np.arange(12, dtype=np.int32).reshape(2, 6) % 10
  axes = {"q.weight": 0, "k.weight": 0, "v.weight": 0, "o.weight": 1, "up.weight": 0, "up.bias": 0, "down.weight": 1}
  if n == 2: axes["emb.weight"] = 0
  def train(cut):
    net = make(Block())
    for name, p in nn.state.get_state_dict(net).items():
      if cut: p.shard_(devices(n), axes.get(name))
    opt = nn.optim.Adam(nn.state.get_parameters(net), lr=0.01)
    def step(t):
      opt.zero_grad()
      loss = net(t)[:, :-1].sparse_categorical_crossentropy(t[:, 1:]).backward()
      return loss.realize(*opt.schedule_step())
    run = TinyJit(step) if jit else step
    losses = []
    with Context(TRAINING=1):
      for k in range(20):
        t = Tensor((tokens + k) % 10)
        losses.append(run((t.shard(devices(n)) if cut else t).realize()).item())
    return losses
  want, got = train(False), train(True)
  np.testing.assert_allclose(got, want, rtol=1e-5)
  assert want[-1] < want[0]


def test_jit():
  f = TinyJit(lambda x, w: ((x @ w).relu().realize(), w.sum().realize()))
  w = Tensor(data(8, 4)).shard(devices(2)).realize()
  outs = []
  for k in range(5):
    a = data(4, 8, seed=k)
    y, s = f(Tensor(a).shard(devices(2), 0).realize(), w)
    assert y.device == names(2)
    outs.append((y, np.maximum(a @ w.numpy(), 0)))
  for y, want in outs[-3:]: np.testing.assert_allclose(y.numpy(), want, rtol=1e-5, atol=1e-5)
  from whit.engine.jit import JitError
  with pytest.raises(JitError): f(Tensor(data(4, 8)).shard(devices(2), 1).realize(), w)
  with pytest.raises(JitError): f(Tensor(data(4, 8)).realize(), w)
  # State that lies on several devices, cut.
  state = Tensor.zeros(4, 4).contiguous().shard(devices(2), 0).realize()
  g = TinyJit(lambda x: state.assign(state + x).realize())
  for k in range(5):
    r = g(Tensor.ones(4, 4).shard(devices(2), 0).realize())
    assert (state.numpy() == k + 1).all() and (r.numpy() == k + 1).all()


def test_function():
  from whit import function
  a, b = data(4, 8), data(8, 4)
  f = function(lambda x, w: (x @ w).relu())
  x, w = Tensor(a).shard(devices(2), 0).realize(), Tensor(b).shard(devices(2)).realize()
  y = f(x, w)
  np.testing.assert_allclose(y.numpy(), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)
  (gx, gw), (wx, ww) = y.sum().gradient(x, w), (lambda p, q: (p @ q).relu().sum().gradient(p, q))(Tensor(a).realize(), Tensor(b).realize())
  np.testing.assert_allclose(gx.numpy(), wx.numpy(), rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(gw.numpy(), ww.numpy(), rtol=1e-5, atol=1e-5)


ROOT = pathlib.Path(__file__).resolve().parents[2]


def run_example(command, **env):
  done = subprocess.run(command, env={**os.environ, "STEPS": "12", **env}, capture_output=True, text=True, timeout=300)
  assert done.returncode == 0, done.stdout + done.stderr
  losses = [float(x) for x in re.findall(r"loss ([0-9.]+)", done.stdout)]
  assert losses[-1] < losses[0] and np.isfinite(losses).all(), done.stdout
  return losses


@pytest.mark.parametrize("name", ("data_parallel", "tensor_parallel"))
def test_examples(name):
  got = [run_example([sys.executable, str(ROOT / f"examples/{name}.py")], DEVICES=n) for n in ("1", "2", "4")]
  np.testing.assert_allclose(got[1:], [got[0]] * 2, rtol=1e-2)


def test_example_in_cpp():
  built = sorted(ROOT.glob("build-*/examples/data_parallel"), key=lambda p: p.stat().st_mtime)
  if not built: pytest.skip("examples are not built")
  run_example([str(built[-1])])


def test_a_loop_of_replays_is_few_calls_ahead():
  """However far the host runs ahead, results of a few calls exist at once."""
  cut = devices(2)
  w, x = (Tensor(data(256, 256, seed=i)).shard(cut, a).realize() for i, a in ((1, None), (2, 0)))
  step = TinyJit(lambda t: ((t @ w).sin().contiguous() @ w).realize())
  for _ in range(3): y = step(x)
  want = y.numpy()
  GlobalCounters.reset_peak()
  before = GlobalCounters.mem_used
  for _ in range(60): y = step(x)
  np.testing.assert_array_equal(y.numpy(), want)
  assert GlobalCounters.mem_peak - before <= 4 * x.nbytes()
