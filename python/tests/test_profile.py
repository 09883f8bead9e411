"""PROFILE=1: a timeline that is complete also after an exception, and agrees with what DEBUG=2 adds up."""
import json, os, re, subprocess, sys

import pytest

PROGRAM = """
from whit import Tensor, TinyJit, GlobalCounters
from whit.helpers import cpu_profile, profile_marker
@TinyJit
def step(x): return (x @ x).relu().realize()
with cpu_profile("warm up"):
  for _ in range(4): step(Tensor.ones(32, 32).contiguous().realize())
profile_marker("end of the warm up")
(Tensor([1.0, 2, 3]).to("CPU:1") + 1).realize()
print(GlobalCounters.time_sum_s)
with cpu_profile("fails"): END
"""


def run(tmp_path, end, **flags):
  path = tmp_path / "timeline.json"
  env = {**os.environ, "PROFILE": "1", "PROFILE_PATH": str(path), "DEV": "CPU", "NO_COLOR": "1", "XDG_CACHE_HOME": str(tmp_path / "cache"), **flags}  # a cold cache: kernels are lowered
  out = subprocess.run([sys.executable, "-c", PROGRAM.replace("END", end)], env=env, capture_output=True, text=True)
  return out, json.loads(path.read_text())["traceEvents"]


def test_timeline(tmp_path):
  out, events = run(tmp_path, "pass", DEBUG="2")
  assert out.returncode == 0, out.stderr
  spans = [e for e in events if e["ph"] == "X"]
  assert {"build", "schedule", "lower", "realize", "replay", "capture", "kernel", "copy", "python", "load"} <= {e["cat"] for e in spans}
  devices = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
  assert {devices[e["pid"]] for e in spans if e["cat"] in ("kernel", "copy")} == {"CPU", "CPU:1"}
  assert any(e["ph"] == "C" and e["args"]["bytes"] > 0 for e in events) and any(e["ph"] == "i" and e["name"].startswith("end of") for e in events)
  # The time of DEBUG=2's last line, of the counters, and of the timeline is one.
  total = sum(e["dur"] for e in spans if e["cat"] in ("kernel", "copy")) * 1e-3
  assert abs(total - float(out.stdout) * 1e3) < 1e-5
  assert abs(total - float(re.findall(r"us/ *([\d.]+)ms", out.stderr)[-1])) < 0.006
  # Spans of one thread nest.
  for device, thread in {(e["pid"], e["tid"]) for e in spans}:
    open_until = []
    for e in sorted((e for e in spans if (e["pid"], e["tid"]) == (device, thread)), key=lambda e: (e["ts"], -e["dur"])):
      while open_until and open_until[-1] <= e["ts"]: open_until.pop()
      assert not open_until or e["ts"] + e["dur"] <= open_until[-1] + 1e-2, e
      open_until.append(e["ts"] + e["dur"])


def test_after_an_exception(tmp_path):
  out, events = run(tmp_path, "Tensor([1.0]).reshape(7)")
  assert out.returncode == 1 and "reshape" in out.stderr
  assert {"warm up", "fails"} <= {e["name"] for e in events} and sum(e.get("cat") == "kernel" for e in events) >= 5


# A program in the background of a shell begins with SIGINT ignored.
INTERRUPT = "import os, signal, time; signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"


@pytest.mark.parametrize("end, code", (("raise SystemExit(3)", 3), (INTERRUPT, -2)))
def test_after_other_ends(tmp_path, end, code):
  out, events = run(tmp_path, end)
  assert out.returncode == code and out.stderr.count("profile: ") == 1
  assert {"warm up", "fails"} <= {e["name"] for e in events}


def test_a_forked_child_leaves_the_timeline_to_its_parent(tmp_path):
  out, events = run(tmp_path, "import os, sys; child = os.fork(); child or sys.exit(0); os.waitpid(child, 0); (Tensor([1.0]) + 7).realize(); profile_marker('later')")
  assert out.returncode == 0 and out.stderr.count("profile: ") == 1 and any(e["name"] == "later" for e in events)


def test_a_path_that_cannot_be_written(tmp_path):
  env = {**os.environ, "PROFILE": "1", "PROFILE_PATH": str(tmp_path / "no" / "such.json")}
  out = subprocess.run([sys.executable, "-c", "from whit import Tensor; (Tensor([1.0]) + 1).realize()"], env=env, capture_output=True, text=True)
  assert out.returncode == 0 and "profile: [profile] cannot write" in out.stderr
