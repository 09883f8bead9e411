"""Every operation of Tensor on several devices, value and gradients, against one device."""
import numpy as np
import pytest

from test_multi import check, data
from whit import Tensor

X, Y = data(4, 6), data(4, 6, seed=9)
P = np.abs(X) + 0.5  # positive
U = np.tanh(X) * 0.9  # within (-1, 1)
I = (np.arange(24, dtype=np.int32).reshape(4, 6) * 7) % 11
IMAGE = data(4, 2, 6, 6)
WEIGHT = data(4, 2, 3, 3)

# name: function, arrays; exact unless a reduction is involved.
EXACT = {
  "unary": (lambda x: Tensor.stack(*[getattr(x, n)() for n in UNARY]), X),
  "of positive numbers": (lambda x: Tensor.stack(*[getattr(x, n)() for n in ("log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "acosh")]), P + 1),
  "within one": (lambda x: Tensor.stack(*[getattr(x, n)() for n in ("acos", "asin", "atanh")]), U),
  "of two": (lambda x, y: Tensor.stack(*[getattr(x, n)(y) for n in ("add", "sub", "mul", "div", "maximum", "minimum", "copysign", "logaddexp")]), X, P),
  "lerp": (lambda x, y: x.lerp(y, 0.3), X, Y),
  "pow": (lambda x, y: x.pow(y), P, Y),
  "fmod": (lambda x, y: x.fmod(y).cat(x.mod(y)), X, P),
  "comparisons": (lambda x, y: Tensor.stack(*[f.cast("int32") for f in (x < y, x <= y, x > y, x >= y, x.eq(y), x.ne(y), x.isclose(y))]), X, Y),
  "predicates": (lambda x: Tensor.stack(*[f.cast("int32") for f in (x.isnan(), x.isinf(), x.isfinite(), x.logical_not())]), X),
  "bits": (lambda x, y: Tensor.stack(x.bitwise_and(y), x.bitwise_or(y), x.bitwise_xor(y), x.bitwise_not(), x << 1, x >> 1, x // 3, x % 3), I, I.T.reshape(4, 6)),
  "casts": (lambda x: Tensor.stack(*[x.cast(d).float() for d in ("float16", "bfloat16", "int32", "int8", "bool", "float64")]), X),
  "named casts": (lambda x: x.half().float() + x.int() + x.long() + x.short() + x.double().float() + x.bool() + x.bfloat16().float(), X),
  "bitcast": (lambda x: x.bitcast("int32"), X),
  "clamp": (lambda x: x.clamp(-0.5, 0.5).cat(x.clip(0, 1)), X),
  "where": (lambda x, y: (x > 0).where(x, y), X, Y),
  "masked_fill": (lambda x: x.masked_fill(x > 0, 3.0), X),
  "reshape": (lambda x: x.reshape(2, 2, 6).reshape(8, 3).reshape(-1), X),
  "flatten": (lambda x: x.flatten() * 2, X),
  "unflatten": (lambda x: x.unflatten(0, (2, 2)).unflatten(2, (3, 2)), X),
  "permute": (lambda x: x.permute(1, 0) + x.T + x.transpose(0, 1), X),
  "expand": (lambda x: x.unsqueeze(1).expand(4, 3, 6).squeeze(), X),
  "flip": (lambda x: x.flip(0) + x.flip((0, 1)), X),
  "shrink": (lambda x: x.shrink(((1, 3), (0, 5))), X),
  "shrink_to, pad_to": (lambda x: x.shrink_to(3, 5).pad_to(6, 6), X),
  "pad": (lambda x: x.pad((1, 2, 1, 0)), X),
  "pad reflect": (lambda x: x.reshape(1, 4, 6).pad((1, 2, 1, 0), mode="reflect"), X),
  "pad circular": (lambda x: x.reshape(1, 4, 6).pad((1, 2, 1, 1), mode="circular"), X),
  "pad replicate": (lambda x: x.reshape(1, 4, 6).pad((1, 2, 1, 1), mode="replicate"), X),
  "repeat": (lambda x: x.repeat(2, 3), X),
  "repeat_interleave": (lambda x: x.repeat_interleave(2, 0).repeat_interleave(3, 1), X),
  "roll": (lambda x: x.roll(1, 0).roll(-2, 1), X),
  "cat, stack": (lambda x, y: x.cat(y, dim=0).cat(y.cat(x, dim=0), dim=1), X, Y),
  "split": (lambda x: x.split(2, 0)[1].cat(x.chunk(2, 0)[0]), X),
  "unfold": (lambda x: x.unfold(0, 2, 1), X),
  "getitem": (lambda x: x[1:3, ::2].cat(x[::-1][:2, 1::2]), X),
  "getitem by tensor": (lambda x: x[Tensor([2, 0, 3], device=x.device)], X),
  "gather": (lambda x: x.gather(1, Tensor([[0, 1]] * 4, device=x.device)), X),
  "index_put": (lambda x: x.scatter(1, Tensor([[0, 2]] * 4, device=x.device), 7.0), X),
  "triu, tril": (lambda x: x.triu() + x.tril(1), X),
  "diag": (lambda x: x[0].diag(), X),
  "diagonal": (lambda x: x.diagonal(), X),
  "rearrange": (lambda x: x.rearrange("(a b) c -> b (a c)", a=2), X),
  "meshgrid": (lambda x: x[:, 0].meshgrid(x[0])[0], X),
  "sort": (lambda x: x.sort(0)[0] + x.sort(1, descending=True)[0], X),
  "argsort": (lambda x: x.argsort(0), X),
  "topk": (lambda x: x.topk(3, 1)[0].cat(x.topk(2, 0)[0][:, :3]), X),
  "argmax": (lambda x: x.argmax(0) + x.argmin(0), X),
  "max": (lambda x: x.max(0) + x.min(0) + x.max(), X),
  "any, all": (lambda x: (x > 0).any(0).cast("int32") + (x > -1).all(0).cast("int32"), X),
  "cummax": (lambda x: x.cummax(0)[0], X),
  "cummin": (lambda x: x.cummin(0)[0], X),
  "one_hot": (lambda x: x.one_hot(11), I),
  "like": (lambda x: x.zeros_like() + x.ones_like() + x.full_like(3) + x.const_like(2), X),
  "detach": (lambda x: x.detach() + x.contiguous() + x.clone() + x.contiguous_backward(), X),
  "max_pool2d": (lambda x: x.max_pool2d(2), IMAGE),
  "interpolate": (lambda x: x.interpolate((3, 3), mode="nearest"), IMAGE),
  "hash": (lambda x: x.flatten().bitcast("uint8").hash(), X),
}
UNARY = ("abs ceil floor round trunc sign neg exp exp2 sin cos tan sinh cosh tanh asinh atan erf relu relu6 sigmoid silu swish mish elu celu selu gelu "
         "quick_gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid softplus softsign square").split()
CLOSE = {
  "sums": (lambda x: x.sum(0) + x.mean(0) + x.std(0) + x.var(0) + x.sum() + x.prod(0), P),
  "std_mean": (lambda x: x.std_mean(0)[0] + x.var_mean(0)[1], X),
  "cumsum": (lambda x: x.cumsum(0) + x.cumprod(0), P),
  "logcumsumexp": (lambda x: x.logcumsumexp(0), X),
  "logsumexp": (lambda x: x.logsumexp(0), X),
  "softmax": (lambda x: x.softmax(0) + x.log_softmax(0) + x.softmin(0), X),
  "normalize": (lambda x: x.layernorm(), X),
  "batchnorm": (lambda x, w: x.batchnorm(w, w, x.mean((0, 2, 3)), x.var((0, 2, 3)).add(1e-5).rsqrt()), IMAGE, np.float32([1, 2])),
  "dot": (lambda x, y: x.dot(y.T).matmul(x), X, Y),
  "linear": (lambda x, w, b: x.linear(w.T, b), X, Y, data(4)),
  "einsum": (lambda x, y: Tensor.einsum("ab,cb->ac", x, y), X, Y),
  "conv2d": (lambda x, w: x.conv2d(w, padding=1), IMAGE, WEIGHT),
  "conv2d grouped": (lambda x, w: x.conv2d(w[:, :1], groups=2), IMAGE, WEIGHT),
  "conv_transpose2d": (lambda x, w: x.conv_transpose2d(w.transpose(0, 1)[:2], stride=2), IMAGE, WEIGHT),
  "avg_pool2d": (lambda x: x.avg_pool2d(2), IMAGE),
  "interpolate linear": (lambda x: x.interpolate((4, 4), mode="linear"), IMAGE),
  "attention": (lambda q, k, v: q.scaled_dot_product_attention(k, v), data(4, 2, 6, 8), data(4, 2, 6, 8, seed=1), data(4, 2, 6, 8, seed=2)),
  "losses": (lambda x, y: x.cross_entropy(y.softmax(1)) + x.sigmoid().binary_crossentropy(y.sigmoid()) + x.binary_crossentropy_logits(y.sigmoid()), X, Y),
  "nll_loss": (lambda x: x.log_softmax(1).nll_loss(Tensor([0, 1, 2, 3], device=x.device)) + x.sparse_categorical_crossentropy(Tensor([0, 1, 2, 3], device=x.device)), X),
  "newton_schulz": (lambda x: x.newton_schulz(2, (3.4445, -4.775, 2.0315)), X),
  "scatter_reduce": (lambda x: x.scatter_reduce(0, Tensor([[0, 1, 2, 3, 0, 1]] * 4, device=x.device), x, "sum"), X),
  "qr": (lambda x: x.qr()[1].abs(), X[:, :4] + 3 * np.eye(4, dtype=np.float32)),
  "svd": (lambda x: x.svd()[1], X[:, :4] + 3 * np.eye(4, dtype=np.float32)),
}
AXES = ((0, 0, 0), (1, None, None), (None, 1, None))


@pytest.mark.parametrize("name", EXACT)
def test_exact(name):
  fn, *arrays = EXACT[name]
  check(fn, *arrays, axes=AXES)


@pytest.mark.parametrize("name", CLOSE)
def test_close(name):
  fn, *arrays = CLOSE[name]
  check(fn, *arrays, axes=[a for a in AXES if all(x is None or x < b.ndim and b.shape[x] % 2 == 0 for x, b in zip(a, arrays))], exact=False, grad=name not in ("qr", "svd"))
