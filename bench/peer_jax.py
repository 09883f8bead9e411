"""JAX, compiled by XLA for the CPU, on NPROC threads: the single kernels that bench/run.py compares whit with."""
import os

os.environ["JAX_PLATFORMS"] = "cpu"
import jax
import jax.numpy as jnp
import numpy as np
import peer_protocol


def expression(fn, *shapes):
  rng = np.random.default_rng(0)
  inputs = [jnp.asarray(rng.standard_normal(s, dtype=np.float32)) for s in shapes]
  compiled = jax.jit(fn)
  return lambda: compiled(*inputs).block_until_ready()


def layer_norm(x):
  return (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)


def attention(q, k, v, bias):
  scores = jnp.einsum("bhid,bhjd->bhij", q, k) / 8
  return jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(bias(scores), -1), v)


def causal(scores):
  return jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e30)


HEADS = (1, 12, 1024, 64)
KERNELS = {
  **{f"matmul{n}": lambda n=n: expression(lambda a, b: a @ b, (n, n), (n, n)) for n in (512, 1024, 2048)},
  "conv": lambda: expression(lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME"), (8, 64, 56, 56), (64, 64, 3, 3)),
  "softmax": lambda: expression(lambda a: jax.nn.softmax(a, axis=1), (4096, 4096)),
  "layernorm": lambda: expression(layer_norm, (8192, 1024)),
  "elementwise": lambda: expression(lambda a, b: jnp.tanh(a * b + a) * jnp.exp(-(b * b)) + jnp.sqrt(jnp.abs(a)), (4096, 2048), (4096, 2048)),
  "attention": lambda: expression(lambda q, k, v: attention(q, k, v, causal), HEADS, HEADS, HEADS),
  "attention-mask": lambda: expression(lambda q, k, v, m: attention(q, k, v, lambda s: s + m), HEADS, HEADS, HEADS, (1024, 1024)),
  "attention-full": lambda: expression(lambda q, k, v: attention(q, k, v, lambda s: s), HEADS, HEADS, HEADS),
}

if __name__ == "__main__":
  peer_protocol.serve("JAX (XLA)", jax.__version__, KERNELS)
