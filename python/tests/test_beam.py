"""BEAM: what a search finds computes the same bits, is kept, and survives bad candidates, a full clock and a killed process."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import hashlib
import numpy as np
from whit import Tensor
rng = np.random.default_rng(1)
def make(*shape): return Tensor(rng.standard_normal(shape, dtype=np.float32)).realize()
x, image, weight = make(96, 80), make(1, 6, 15, 15), make(8, 6, 3, 3)
for y in (x @ x.T, image.conv2d(weight, padding=1).relu(), x.softmax(), x.T.contiguous() + 1):
  print(hashlib.sha256(y.numpy().tobytes()).hexdigest())
"""


def environment(tmp_path, **flags):
  return {**os.environ, "CACHEDB": str(tmp_path / "cache.db"), "BEAM_DEBUG": "1", **{k: str(v) for k, v in flags.items()}}


def run(env, program=PROGRAM):
  done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=300)
  assert done.returncode == 0, done.stderr
  out = (done.stdout + done.stderr).splitlines()
  return [line for line in out if not line.startswith("BEAM")], [line for line in out if line.startswith("BEAM")]


def test_a_search_changes_no_bit_and_is_kept(tmp_path):
  want, none = run(environment(tmp_path, BEAM=0))
  assert none == []
  got, searched = run(environment(tmp_path, BEAM=1))
  assert got == want and len(searched) >= 4 and sum(int(line.split("candidates")[0].split()[-1]) for line in searched) > 20
  assert run(environment(tmp_path, BEAM=1)) == (want, [])  # the winners are in the cache


def test_a_budget_ends_it(tmp_path):
  start = time.monotonic()
  _, searched = run(environment(tmp_path, BEAM=4, BEAM_BUDGET=1))
  assert any("not finished" in line for line in searched)
  assert time.monotonic() - start < 60


def script(tmp_path, what):
  """A C compiler whose first call works (the model's own program) and whose others do `what`."""
  path = tmp_path / "cc"
  path.write_text(f"""#!/bin/sh
case "$*" in *--version*) exec cc "$@";; esac
if [ -e {tmp_path}/armed ]; then {what}; fi
exec cc "$@"
""")
  path.chmod(0o755)
  return path


ARMED = """
import pathlib, os
from whit import Tensor, Context
a, b = Tensor.empty(40, 40).realize(), Tensor.empty(40, 40).realize()
with Context(BEAM=0): (a @ b + 1).realize()
pathlib.Path(os.environ["ARM"]).touch()
(a @ b + 1).realize()
print("done")
"""


@pytest.mark.parametrize("what", ["kill -9 $PPID", "exit 1", "sleep 30"])
def test_a_bad_candidate_costs_itself(tmp_path, what):
  env = environment(tmp_path, BEAM=1, DEV="CPU:C", CC=script(tmp_path, what), ARM=tmp_path / "armed", BEAM_TIMEOUT_SEC=1, BEAM_BUDGET=6)
  got, searched = run(env, ARMED)
  assert got[-1] == "done" and len(searched) == 1
  words = searched[0].replace(",", " ").split()
  tried, failed = int(words[words.index("candidates") - 1]), int(words[words.index("failed") - 1])
  assert tried == failed > 0 and "1.00 x" in searched[0]


def test_a_killed_search_goes_on(tmp_path):
  env = environment(tmp_path, BEAM=2, BEAM_DEBUG=2)
  first = subprocess.Popen([sys.executable, "-c", PROGRAM], env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
  for line in first.stderr:
    if line.startswith("BEAM r_"): break
  children = pathlib.Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
  first.send_signal(signal.SIGKILL)
  first.wait()
  for _ in range(100):  # no candidate outlives the search
    if not any(pathlib.Path(f"/proc/{c}").exists() for c in children): break
    time.sleep(0.1)
  else: pytest.fail(f"children {children} are still there")
  assert run(env)[0] == run(environment(tmp_path, BEAM=0))[0]


def test_a_search_without_a_cache(tmp_path):
  got, searched = run({**environment(tmp_path, BEAM=1, BEAM_BUDGET=3), "CACHEDB": "/dev/null/none"})
  assert searched and len(got) >= 4
