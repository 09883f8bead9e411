"""whit-opt: passes over the text of a graph."""
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOL = next((p for p in (ROOT / f"build-{b}/tools/whit-opt" for b in ("release", "dev", "debug")) if p.exists()), None)
pytestmark = pytest.mark.skipif(TOOL is None, reason="tools/whit-opt is not built")

INDEX = """
%x = VARIABLE weakint {"x", 0, 7}
%4 = CONST weakint 4
%m = MUL weakint (%x, %4)
%r = FLOORDIV weakint (%m, %4)
"""
VALUE_WITH_AXES = """
%0 = PARAM float32 [0, 8]
%1 = NEG float32 (%0)
%2 = SINK void (%1) {"k"}
"""
KERNEL = """
%0 = PARAM float32 [0, 8]
%1 = RANGE weakint [0, 0, 8]
%2 = INDEX float32 (%0, %1)
%3 = PARAM float32 [1, 8]
%4 = INDEX float32 (%3, %1)
%5 = LOAD float32 (%4)
%6 = ADD float32 (%5, %5)
%7 = STORE void (%2, %6)
%8 = END void (%7, %1)
%9 = SINK void (%8) {"twice"}
"""


def run(text, *args):
    return subprocess.run([TOOL, *args], input=text, capture_output=True, text=True)


def test_no_pass_prints_what_was_read():
    done = run(INDEX)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "%3 = FLOORDIV weakint (%2, %1)"
    assert run(done.stdout).stdout == done.stdout


def test_rules_and_their_trace():
    done = run(INDEX, "rules/index", "--trace")
    assert done.stdout == '%0 = VARIABLE weakint {"x", 0, 7}\n' and "; index index/" in done.stderr
    assert run(INDEX, "simplify").stdout == done.stdout


def test_a_kernel_to_source():
    assert run(KERNEL, "verify-kernel").returncode == 0
    assert re.search(r"RANGE weakint \[\d+, 10, ", run(KERNEL, "optimize").stdout)  # AxisType 10: lanes
    assert run(KERNEL, "lower").stdout.splitlines()[-1].split()[2] == "PROGRAM"
    assert "_body(buffers[0], buffers[1], " in run(KERNEL, "--renderer", "c", "lower", "render").stdout


def test_errors():
    for args, text, message in ((["nothing"], INDEX, "there is no pass nothing; `whit-opt --list`"), ([], "%0 = NOTHING int32", "NOTHING"),
                                (["verify-kernel"], VALUE_WITH_AXES, "kernel graph"), (["-f", "/no/such/file"], "", "/no/such/file: cannot be read")):
        done = run(text, *args)
        assert done.returncode == 1 and message in done.stderr and done.stdout == ""
    assert "simplify" in run("", "--list").stdout
