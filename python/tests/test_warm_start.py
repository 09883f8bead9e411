"""The cache on disk: a second process lowers, renders and compiles nothing, unless something that changes kernels differs."""
import json, os, subprocess, sys

import pytest

from whit import _whit

PROGRAM = """
from whit import Tensor
x = (Tensor.arange(12, dtype="float32").reshape(3, 4) * 0.5).contiguous().realize()
print(((x @ x.T).relu() + x.sum()).tolist(), x.softmax().tolist())
"""


def run(folder, **flags):
  path = folder / "timeline.json"
  env = {**os.environ, "PROFILE": "1", "PROFILE_PATH": str(path), "CACHEDB": str(folder / "cache.db"), "DEV": "CPU", "SPEC": "0", "CCACHE": "1",
         "CACHELEVEL": "2", "DEBUG": "0", **flags}
  out = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
  assert out.returncode == 0, out.stderr
  categories = [e.get("cat") for e in json.loads(path.read_text())["traceEvents"]]
  return out.stdout, categories.count("lower"), categories.count("compile"), categories.count("kernel")


@pytest.mark.skipif("CPU" not in _whit.available_devices(), reason="no compiler")
def test_warm_start(tmp_path):
  values, lowered, compiled, kernels = run(tmp_path)
  assert lowered == compiled > 0 and kernels >= lowered
  assert run(tmp_path) == (values, 0, 0, kernels)
  assert run(tmp_path, ASSERT_COMPILE="1") == (values, 0, 0, kernels)
  assert run(tmp_path, SPEC="1")[1] == lowered  # who verifies passes wants to see them run
  assert run(tmp_path, CCACHE="0")[1:3] == (lowered, compiled)
  assert run(tmp_path, NOOPT="1")[1] == lowered and run(tmp_path, NOOPT="1")[1] == 0
  assert run(tmp_path, NUM_CPU_THREADS="1")[0] == values


def test_equal_kernels_are_compiled_once():
  program = """
from whit import Tensor
x, ws = Tensor.rand(8, 32).realize(), [Tensor.rand(32, 32).realize() for _ in range(6)]
for w in ws: x = (x @ w).relu().contiguous()
print("here")
x.realize()
"""
  done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "DEBUG": "3", "CACHELEVEL": "0"}, capture_output=True, text=True, check=True)
  last = (done.stdout + done.stderr).splitlines()
  lines = last[max(i for i, line in enumerate(last) if line.startswith("scheduled")):]
  assert lines[0].split()[1] == "6" and sum(line.startswith("compiled") for line in lines) == 1, lines
