"""Symbolic sizes: Variables in shapes, slices and jits."""
import numpy as np
import pytest

from whit import Tensor, TinyJit, UOp, Variable

A = np.arange(24, dtype=np.float32).reshape(3, 8) - 11


def test_variables():
  v = Variable("i", 2, 9)
  i = v.bind(4)
  assert (i.unbind(), i.expr, i.vmin, i.vmax) == ((v, 4), "i", 2, 9)
  assert (i * 2 + 1).unbind_all() == (v * 2 + 1, {v: 4})
  with pytest.raises(AssertionError, match="10 is out of the range 2..9 of 'i'"): v.bind(10)
  with pytest.raises(ValueError): int(i)
  assert Variable("j", 4, 16, multiple_of=4).bind(8).vmax == 16
  with pytest.raises(AssertionError, match="6 is no multiple of 4"): Variable("j", 4, 16, multiple_of=4).bind(6)
  assert Tensor(i).item() == 4 and (Tensor([1, 2]) + i).tolist() == [5, 6] and (i + Tensor([1, 2])).tolist() == [5, 6]


def test_shapes():
  t, v = Tensor(A).realize(), Variable("i", 1, 8)
  i = v.bind(5)
  part = t[:, :i]
  assert part.shape == (3, i) and part.max_shape == (3, 8) and part.size(1) is i and isinstance(part.numel(), UOp)
  assert part.reshape(3, i, 1).shape == (3, i, 1) and part.permute(1, 0).shape == (i, 3) and part.pad((1, 2)).shape[1].render() == "(i+3)"
  assert Tensor.zeros(2, i).shape == (2, i) and Tensor.empty(i).shape == (i,) and Tensor.arange(i).shape == (i,)
  np.testing.assert_array_equal(Tensor.arange(2, i + 2, 2).pad_to(9).numpy(), [2, 4, 6, 0, 0, 0, 0, 0, 0][:9])
  with pytest.raises(AssertionError, match="symbolic"): part.numpy()
  with pytest.raises(AssertionError): part.item()
  np.testing.assert_array_equal(part[:, :5].numpy(), A[:, :5])
  np.testing.assert_array_equal(part.shrink(((0, 2), (0, 3))).numpy(), A[:2, :3])
  with pytest.raises(ValueError, match="is no part of axis 1"): part[:, :6]
  with pytest.raises(ValueError, match="symbolic"): Tensor.rand(i)


def test_jit_and_cache():
  cache = Tensor.zeros(2, 8).contiguous().realize()

  @TinyJit
  def step(x, i):
    cache[:, i:i + 1].assign(x).realize()
    return cache[:, :i + 1].sum(1).realize()

  v, total = Variable("i", 0, 7), np.zeros(2, np.float32)
  for k in range(8):
    x = np.array([[k + 1.0], [2.0 * k]], np.float32)
    total += x[:, 0]
    np.testing.assert_allclose(step(Tensor(x).realize(), v.bind(k)).numpy(), total)


def test_triangles():
  x, v = Tensor(A).realize(), Variable("i", 1, 8)
  q = Tensor(np.random.default_rng(1).standard_normal((2, 8, 4)).astype(np.float32)).realize()
  for n in (1, 5, 8):
    i, part = v.bind(n), q[:, :n]
    for k in (-(1 << 62), -1, 0, 2, 1 << 31, 1 << 62):
      np.testing.assert_array_equal(x[:, :i].tril(k).pad_to(3, 8).numpy()[:, :n], np.tril(A[:, :n], k))
      np.testing.assert_array_equal(x[:, :i].triu(k).pad_to(3, 8).numpy()[:, :n], np.triu(A[:, :n], k))
    some = q[:, :i]
    got, want = (t.scaled_dot_product_attention(t, t, is_causal=True) for t in (some, part))
    np.testing.assert_allclose(got.pad_to(2, 8, 4).numpy()[:, :n], want.numpy(), atol=1e-6)
    of_some, of_part = ((y ** 2).sum().gradient(q)[0] for y in (got, want))
    np.testing.assert_allclose(of_some.numpy(), of_part.numpy(), atol=1e-5)
