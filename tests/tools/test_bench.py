"""bench/run.py: its rows, its table, and a row with the peers that are there."""
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import run as bench

HAS_MODULE = any((ROOT / "python/whit").glob("_whit*.so"))


def call(*args, env=None):
    return subprocess.run([sys.executable, ROOT / "bench/run.py", *map(str, args)], capture_output=True, text=True, env=env)


def test_rows_are_told_and_documented():
    told = call("--help").stdout
    written = (ROOT / "docs/benchmarks.md").read_text()
    assert bench.ROWS and call("--list").stdout.split() == list(bench.ROWS)
    for name, row in bench.ROWS.items():
        assert row.__doc__ in told and re.search(rf"`whit bench {name}[` ]", written), name


@pytest.mark.parametrize("args, text", [(["nonsense"], "no row nonsense; there are matmul"), (["--pairs", "0"], "--pairs 0; expected at least 1")])
def test_a_wrong_call_says_why(args, text):
    done = call(*args)
    assert done.returncode == 2 and text in done.stderr


def test_a_ratio_is_to_the_peers_that_the_row_names(tmp_path):
    b = bench.Bench(tmp_path, 1)
    turns = {"torch": {"name": "PyTorch 1", "seconds": [2e-3, 4e-3, 5e-3]}, "jax": {"name": "XLA 1", "seconds": [1e-3, 1e-3, 9e-3]},
             "openvino": {"name": "openvino", "error": "not there"}, "whit": {"name": "whit", "seconds": [1.5e-3, 3e-3, 4e-3]}}
    best = b.add_turns("work", turns, 0.8, ["torch"])
    assert best == {"torch": 2e-3, "jax": 1e-3, "whit": 1.5e-3}
    ours, absent = b.lines[-1], b.lines[2]
    assert ours["shares"] == pytest.approx([0.75 / 0.8, 0.75 / 0.8]) and ours["verdict"] == "met" and ours["reach"] == "<= 0.8 x PyTorch"
    assert "1.50 x, 3.00 x of XLA 1" in ours["beside"] and absent["value"] == "not there" and not absent["verdict"]
    b.add_turns("work", turns, 0.8)
    assert b.lines[-1]["shares"] == pytest.approx([1.5 / 0.8, 3 / 0.8]) and b.lines[-1]["verdict"] == "SHORT"
    b.add_turns("work", {"torch": turns["torch"], "whit": {"name": "whit", "error": "died"}}, 0.8)
    assert b.lines[-1]["verdict"] == "FAILED" and b.lines[-1]["value"] == "failed: died"
    b.add_number("share", 80, "%", 87, True)
    assert b.lines[-1]["shares"] == [pytest.approx(87 / 80)] and b.lines[-1]["verdict"] == "SHORT"


def test_a_program_that_fails_says_so(tmp_path):
    b = bench.Bench(tmp_path, 1)
    b.add_program("no such program")
    assert b.lines[-1]["verdict"] == "FAILED" and "no such program" in b.lines[-1]["value"]


@pytest.mark.skipif(not HAS_MODULE or not bench.VENV.exists(), reason="python/whit has no module")
def test_a_row_runs(tmp_path):
    """Of its peers whit from Python alone is there."""
    import os
    done = call("replay", "--pairs", "1", "--build", tmp_path, "--results", tmp_path / "results", env={**os.environ, "BENCH_PEERS": str(tmp_path / "python")})
    assert done.returncode == 0, done.stderr
    row = json.loads((tmp_path / "results/latest.json").read_text())["replay"]
    lines = {x["what"]: x for x in row["lines"]}
    assert lines["call of 3 tiny kernels: torch"]["value"] == "not there"
    assert lines["call of 3 tiny kernels: whit"]["verdict"] == "FAILED"
    assert re.match(r"min [\d.]+ us, median", lines["call of 3 tiny kernels: whit from Python"]["value"])
    table = (tmp_path / "results/latest.md").read_text()
    assert "## replay" in table and "whit from Python" in table and "no picture" in done.stdout


@pytest.mark.skipif(not HAS_MODULE or not bench.VENV.exists(), reason="python/whit has no module")
def test_results_have_the_same_bits_on_any_number_of_threads(tmp_path):
    b, digests = bench.Bench(tmp_path, 1), set()
    for threads in ("1", "3"):
        done = b.run("peer_whit.py", "--results", 3, "adam", "cnn-1", env={"NUM_CPU_THREADS": threads})
        assert done.returncode == 0, done.stderr
        digests.add(done.stdout)
    assert len(digests) == 1 and digests.pop().count("digest") == 2
