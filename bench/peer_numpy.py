"""NumPy's OpenBLAS on OPENBLAS_NUM_THREADS threads: matmuls."""
import numpy as np
import peer_protocol


def matmul(n):
  rng = np.random.default_rng(0)
  a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
  return lambda: a @ b


if __name__ == "__main__":
  peer_protocol.serve("OpenBLAS (NumPy)", np.__version__, {f"matmul{n}": lambda n=n: matmul(n) for n in (512, 1024, 2048)})
