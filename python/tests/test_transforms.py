"""vmap, jvp, vjp, grad, jacobian, hessian: against loops, closed forms and finite differences, in every order, with TinyJit and function."""
import numpy as np
import pytest

import whit.transform
from whit import Tensor, TinyJit, checkpoint, function, grad, hessian, jacobian, jvp, nn, pmap, value_and_grad, vjp, vmap

RNG = np.random.default_rng(7)


def arr(*shape): return RNG.standard_normal(shape).astype(np.float32)


def close(a, b, tol=1e-5): np.testing.assert_allclose(a.numpy() if isinstance(a, Tensor) else a, b.numpy() if isinstance(b, Tensor) else b, rtol=tol, atol=tol)


def test_examples_of_the_documentation():
  import doctest
  assert doctest.testmod(whit.transform).attempted >= 15
  assert doctest.testmod(whit.transform).failed == 0


@pytest.mark.parametrize("fn", [
  lambda x: x.sum(), lambda x: x.softmax(), lambda x: x.layernorm(), lambda x: x.cumsum(0), lambda x: x.sort(1)[0], lambda x: x.argmax(1),
  lambda x: x[1:, ::2], lambda x: x[Tensor([2, 0])], lambda x: x.pad((1, 2)), lambda x: x.T, lambda x: x.matmul(x.T), lambda x: x.std(),
  lambda x: x.topk(2)[0], lambda x: Tensor.einsum("ij,kj->ik", x, x), lambda x: (x > 0).where(x, 0),
  lambda x: x.reshape(1, 1, 4, 5).interpolate((8, 10)), lambda x: x.reshape(1, 1, 4, 5).conv2d(Tensor.ones(2, 1, 3, 3), padding=1), lambda x: x.roll(1, 0),
  lambda x: Tensor.stack(x, x * 2), lambda x: x.cast("int32"), lambda x: x.gather(1, Tensor([[0, 1], [2, 3], [4, 0], [1, 2]])), lambda x: Tensor.arange(4)],
  ids=str)
def test_vmap_is_a_loop(fn):
  x = Tensor(arr(3, 4, 5)).realize()
  close(vmap(fn)(x), Tensor.stack(*[fn(x[i]) for i in range(3)]))


def test_structures_and_axes():
  p, x = {"w": Tensor(arr(4, 2)), "b": Tensor(arr(2))}, Tensor(arr(4, 3))
  out = vmap(lambda p, x: [x @ p["w"], (x @ p["w"] + p["b"]).sum()], in_axes=(None, 1), out_axes=[1, 0])(p, x)
  close(out[0], p["w"].T @ x)
  close(out[1], (x.T @ p["w"] + p["b"]).sum(1))
  out = vmap(lambda p, x: x @ p["w"], in_axes=({"w": 1, "b": None}, None))(p, x[:, 0])
  close(out, p["w"].T @ x[:, 0])


def test_layers_and_functions_inside():
  layer, norm = nn.Linear(4, 3), nn.LayerNorm(3)
  @function
  def f(x): return norm(layer(x)).relu()
  x = Tensor(arr(5, 2, 4)).realize()
  with pytest.raises(RuntimeError, match="no argument"): vmap(f)(x)
  g = lambda x: norm(layer(x)).relu()  # noqa: E731
  close(vmap(g)(x), g(x))
  h = function(lambda a, b: a * b + 1)
  close(vmap(h, in_axes=(0, None))(x, x[0]), x * x[0] + 1)


def test_derivatives_against_finite_differences():
  def f(a, b): return ((a @ b).tanh() * a.sum()).sin()
  a, b, da, db = (Tensor(arr(*s).astype(np.float64)) for s in ((3, 4), (4, 2), (3, 4), (4, 2)))
  y, dy = jvp(f, (a, b), (da, db))
  h = 1e-6
  close(dy, (f(a + da * h, b + db * h) - f(a - da * h, b - db * h)) / (2 * h), 1e-6)
  _, back = vjp(f, a, b)
  c = Tensor(arr(3, 2).astype(np.float64))
  ga, gb = back(c)
  close((ga * da).sum() + (gb * db).sum(), (c * dy).sum(), 1e-9)  # <c, J v> = <J' c, v>
  ja, jb = jacobian(f, argnums=(0, 1))(a, b)
  assert ja.shape == (3, 2, 3, 4) and jb.shape == (3, 2, 4, 2)
  close(Tensor.einsum("ijkl,kl->ij", ja, da) + Tensor.einsum("ijkl,kl->ij", jb, db), dy, 1e-9)


def test_hessian_of_a_quadratic_form():
  m, x = Tensor(arr(4, 4)), Tensor(arr(4))
  close(hessian(lambda v: v @ (m @ v))(x), m + m.T)


def test_value_and_grad_and_argnums():
  v, (g0, g1) = value_and_grad(lambda a, s, b: (a * b * s["k"]).sum(), argnums=(0, -1))(Tensor([1.0, 2.0]), {"k": Tensor(2.0)}, Tensor([3.0, 4.0]))
  assert v.item() == 22 and g0.tolist() == [6, 8] and g1.tolist() == [2, 4]
  with pytest.raises(AssertionError, match="expected one scalar"): grad(lambda a: a)(Tensor([1.0, 2.0]))


def f(x): return (x * x * x).sum()


V, X = arr(3, 4), arr(3, 4)
TRANSFORMS = {
  "gradient": lambda fn: lambda x: grad(lambda y: fn(y).sum())(x),
  "vmap": lambda fn: lambda x: vmap(fn)(x),
  "jvp": lambda fn: lambda x: jvp(fn, (x,), (Tensor(V) if x.ndim == 2 else x,))[1],
  "checkpoint": lambda fn: checkpoint(fn),
  "function": lambda fn: function(fn, allow_implicit=True),
  "TinyJit": lambda fn: TinyJit(lambda x: fn(x).realize()),
}


# A jit inside a captured jit is an error of its own.
@pytest.mark.parametrize("outer,inner", [(a, b) for a in TRANSFORMS for b in TRANSFORMS if (a, b) != ("TinyJit", "TinyJit")])
def test_every_ordered_pair(outer, inner):
  x, v = X.astype(np.float64), V.astype(np.float64)
  # The same two steps on NumPy functions with known derivatives: value, first and second derivative of sum(x^3), over the mapped rows or all.
  def numeric(outer, inner):
    cube = lambda t: (t ** 3).sum()  # noqa: E731
    def apply(name, fn):
      def grad_of(t):
        g, h = np.zeros_like(t), 1e-4
        for i in np.ndindex(t.shape):
          e = np.zeros_like(t)
          e[i] = h
          g[i] = (np.sum(fn(t + e)) - np.sum(fn(t - e))) / (2 * h)
        return g
      def jvp_of(t):
        d, h = (v if t.ndim == 2 else t), 1e-4
        return (np.asarray(fn(t + d * h)) - np.asarray(fn(t - d * h))) / (2 * h)
      return {"gradient": grad_of, "vmap": lambda t: np.stack([fn(r) for r in t]), "jvp": jvp_of}.get(name, fn)
    return apply(outer, apply(inner, cube))(x)
  want = numeric(outer, inner)
  fn = TRANSFORMS[outer](TRANSFORMS[inner](f))
  for _ in range(3 if "TinyJit" in (outer, inner) else 1): got = fn(Tensor(X).realize())
  np.testing.assert_allclose(got.numpy(), want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("outer", TRANSFORMS)
def test_a_checkpoint_changes_no_bit(outer):
  m = Tensor(arr(4, 4)).realize()
  def layers(x): return ((x @ m).sin() @ m).tanh().exp()
  plain, hinted = (TRANSFORMS[outer](TRANSFORMS["gradient"](fn)) for fn in (layers, checkpoint(lambda x: checkpoint(layers)(x))))
  for _ in range(3): got, want = hinted(Tensor(X).realize()), plain(Tensor(X).realize())
  np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_jit_in_a_captured_jit_says_so():
  inner = TinyJit(lambda x: (x + 1).realize())
  outer = TinyJit(lambda x: inner(x).realize())
  x = Tensor(X).realize()
  with pytest.raises(RuntimeError, match="jit"):
    for _ in range(4): outer(x)


def test_in_a_captured_training_step():
  w = Tensor(arr(4)).realize()
  @TinyJit
  def step(x):
    per_example = vmap(grad(lambda w, x: (w * x).sum().tanh()), in_axes=(None, 0))(w, x)
    w.assign(w - 0.1 * per_example.mean(0)).realize()
    return per_example.realize()
  want = w.numpy().astype(np.float64)
  for _ in range(4):
    x = arr(8, 4)
    g = x * (1 - np.tanh(x @ want) ** 2)[:, None]
    close(step(Tensor(x).realize()), g, 1e-4)
    want = want - 0.1 * g.mean(0)
  close(w, want, 1e-4)


def test_errors_name_what_is_wrong():
  x = Tensor(arr(3, 4))
  with pytest.raises(ValueError, match=r"argument 1 has 2 examples on axis 0 of shape \(2, 4\); others have 3"): vmap(lambda a, b: a)(x, x[:2])
  with pytest.raises(IndexError): vmap(lambda a: a, in_axes=2)(x)
  with pytest.raises(ValueError, match="2 axes"): vmap(lambda a: a, in_axes=(0, 0))(x)
  with pytest.raises(TypeError, match="a float; expected a Tensor"): vmap(lambda a: 1.0)(x)
  with pytest.raises(Exception, match="being traced, which has no data"): vmap(lambda a: a * a.sum().item())(x)
  with pytest.raises(RuntimeError, match="an argument is int"): jvp(lambda a: a, (Tensor([1]),), (Tensor([1.0]),))
  with pytest.raises(ValueError, match="differ in structure"): jvp(lambda a: a, (x,), (x, x))


Point = __import__("collections").namedtuple("Point", "w b")


def test_trees_and_keywords():
  p, x = Point(Tensor(arr(4, 2)), Tensor(arr(2))), Tensor(arr(5, 4))
  def loss(p, x, scale=1.0): return ((x @ p.w + p.b) ** 2).sum() * scale
  whole = grad(loss)(p, x, scale=3.0)
  assert isinstance(whole, Point)
  each = vmap(grad(loss), in_axes=(None, 0))(p, x, scale=3.0)
  close(each.w.sum(0), whole.w, 1e-4)
  out = vmap(lambda d, k, none: {"a": d["x"][0] * k, "b": (d["x"][1], none)}, in_axes=(0, None, None))({"x": [x, x * 2]}, 3.0, None)
  close(out["a"], x * 3)
  assert out["b"][1] is None and out["b"][0].shape == (5, 4)
  _, back = vjp(lambda x: {"a": x * 2, "b": x * 3}, Tensor(arr(3)))
  close(back({"b": Tensor.ones(3), "a": Tensor.zeros(3)})[0], np.full(3, 3.0))  # by name, not by order
  close(jvp(lambda x, k=1: x * k, (x,), (x,), k=3)[1], x * 3)
  y, none, tag = checkpoint(lambda x, k=1: ((x * k).sin(), None, "tag"))(x, k=2)
  close(y, (x * 2).sin())
  assert none is None and tag == "tag"


def test_axes_that_are_negative():
  a, b = Tensor(arr(4, 3, 5)), Tensor(arr(5, 3))
  close(vmap(lambda a, b: a @ b, in_axes=(-2, 1))(a, b), Tensor.stack(*[a[:, i] @ b[:, i] for i in range(3)]))
  nested = vmap(vmap(lambda r: r * r.sum(), out_axes=-1), in_axes=1, out_axes=1)(a)
  close(nested, Tensor.stack(*[Tensor.stack(*[a[i, j] * a[i, j].sum() for i in range(4)], dim=-1) for j in range(3)], dim=1))


def test_what_a_function_writes_into_tensors_from_outside_stays_written():
  x = Tensor(arr(4))
  for transform in (lambda f: grad(f)(x), lambda f: jvp(f, (x,), (x,)), lambda f: vjp(f, x)[0], lambda f: jacobian(f)(x)):
    state = Tensor.zeros(4).contiguous().realize()
    def f(x):
      state.assign(x.detach() * 2)
      state[1] = x.sum()
      return (x * x).sum()
    transform(f)
    want = 2 * x.numpy()
    want[1] = x.numpy().sum()
    close(state, want)
  norm, w, batch = nn.BatchNorm(3), Tensor(arr(3, 3)).realize(), Tensor(arr(5, 3))
  with whit.Context(TRAINING=1): grad(lambda w: (norm(batch @ w) ** 2).sum())(w).realize()
  close(norm.running_mean, 0.1 * (batch.numpy() @ w.numpy()).mean(0))


def test_vmap_refuses_to_write_examples_outside():
  state, x = Tensor.zeros(4).contiguous().realize(), Tensor(arr(3, 4))
  def f(r):
    state.assign(r)
    return r.sum()
  with pytest.raises(RuntimeError, match=r"differs between the 3 examples is stored into a tensor of shape \(4,\)"): vmap(f)(x)
  assert state.tolist() == [0.0] * 4
  def fails(r):
    state.assign(r)
    raise KeyError("mine")
  for transform in (vmap, grad, jacobian):
    with pytest.raises(KeyError): transform(fails)(x if transform is vmap else x[0])
  assert state.tolist() == [0.0] * 4 and not whit._whit.is_tracing()


def test_reading_an_argument_says_that_it_has_no_data():
  for read in (Tensor.numpy, Tensor.tolist, Tensor.data, lambda r: r[0].item(), memoryview, np.asarray):
    with pytest.raises((RuntimeError, BufferError), match="being traced, which has no data"): vmap(read)(Tensor(arr(3, 4)))


@pytest.mark.parametrize("call,error,text", [
  (lambda x: vmap(lambda a: a, out_axes=3)(x), IndexError, "out_axes 3 is out of range for 2 axes"),
  (lambda x: vmap(lambda a: a, out_axes=None)(x), ValueError, "out_axes is None"),
  (lambda x: vmap(lambda a: a, in_axes=None)(x), ValueError, "none of 1 arguments is mapped"),
  (lambda x: vmap(lambda a: a, in_axes=1.5)(x), TypeError, "in_axes has 1.5 for a tensor"),
  (lambda x: vmap(lambda a: a, in_axes=(0,))(x, x), ValueError, r"in_axes has 1 axes \(0,\) for 2 arguments"),
  (lambda x: vmap(lambda d: d["a"], in_axes=({"b": 0},))({"a": x}), ValueError, r"in_axes names \['b'\]; expected \['a'\]"),
  (lambda x: vmap(lambda a, k: a * k)(x, 3.0), TypeError, "an argument is a float, which has no axis 0"),
  (lambda x: grad(lambda a: a.sum(), argnums=2)(x), IndexError, r"\[grad\] argnums 2 is out of range for 1 arguments"),
  (lambda x: jacobian(lambda a: a, argnums=(0, "x"))(x), TypeError, r"\[jacobian\] argnums holds a str"),
  (lambda x: grad(lambda a, b: (a * b).sum(), argnums=(0, -2))(x, x), ValueError, "names an argument twice"),
  (lambda x: grad(lambda a: None)(x), AssertionError, "expected one scalar"),
  (lambda x: grad(lambda a: a)(3.0), TypeError, r"\[grad\] a float; expected a Tensor"),
  (lambda x: jvp(lambda a: a, x, x), TypeError, "primals is a Tensor; expected a tuple"),
  (lambda x: vjp(lambda a: (a, a), x)[1](x), ValueError, "do not have the structure"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_wrong_arguments_are_named(call, error, text):
  with pytest.raises(error, match=text): call(Tensor(arr(3, 4)))


def test_empty_batches_and_symbolic_sizes():
  assert vmap(lambda r: (r * 2).sum())(Tensor.zeros(0, 4)).shape == (0,) and vmap(lambda r: r @ r.T)(Tensor.zeros(0, 4, 3)).numpy().shape == (0, 4, 4)
  close(vmap(lambda r: r.sum())(Tensor.zeros(3, 0)), np.zeros(3))
  n, x = whit.Variable("n", 1, 4).bind(3), Tensor(arr(5, 4))
  close(vmap(lambda r: r[:n].sum())(x), x.numpy()[:, :3].sum(1))
  with pytest.raises(NotImplementedError, match="expected sizes that are numbers"): vmap(lambda r: r.sum())(x[:n])


@pytest.mark.parametrize("devices", (("CPU:0", "CPU:1"), ("CPU:1", "CPU:2", "CPU:3", "CPU:0")))
def test_pmap(devices):
  def loss(w, x, y): return (((x * w["a"]).sum() + w["b"].sum()) - y) ** 2
  w = {"a": Tensor([1.0, -2.0, 0.5]), "b": Tensor([0.25])}
  x, y = (Tensor.arange(24).reshape(8, 3) / 10).clone(), Tensor.arange(8).float().clone()
  axes = (None, 0, 0)
  for one in (loss, grad(loss), checkpoint(loss), lambda w, x, y: jvp(lambda v: loss(w, v, y), (x,), (x,))[1]):
    want, have = (m(one, *d, in_axes=axes)(w, x, y) for m, d in ((vmap, ()), (pmap, (devices,))))
    for a, b in zip(*([t["a"], t["b"]] if isinstance(t, dict) else [t] for t in (have, want))):
      assert len(a.device) == len(devices) and a.shape == b.shape and np.array_equal(a.numpy(), b.numpy())
  total = grad(lambda w: pmap(loss, devices, in_axes=axes)(w, x, y).sum())(w)["a"]
  assert np.allclose(total.numpy(), grad(lambda w: vmap(loss, in_axes=axes)(w, x, y).sum())(w)["a"].numpy())
  step = TinyJit(lambda x: pmap(loss, devices, in_axes=axes)(w, x, y).realize())
  for i in range(4): assert np.array_equal(step((x + i).realize()).numpy(), vmap(loss, in_axes=axes)(w, x + i, y).numpy())
  assert pmap(lambda x: x * 2, devices, in_axes=1, out_axes=1)(x.T).shape == (3, 8)
  with pytest.raises(Exception, match="shard"): pmap(lambda x: x, devices)(Tensor.ones(len(devices) + 1, 2))
