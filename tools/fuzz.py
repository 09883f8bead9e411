#!/usr/bin/env python3
"""Runs the fuzzers from fresh seeds and adds a line a run to the log of totals, tests/fuzz/totals.tsv.

  tools/fuzz.py BUILD_FOLDER SECONDS [NAME...]    each fuzzer (or those named) for so many seconds, one after another
  tools/fuzz.py --totals                          what the log says in all

A fuzzer that finds something, or dies, has its seed in the log and its output in out/fuzz-NAME.txt; exit status 1.
"""
import collections
import datetime
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOG = ROOT / "tests/fuzz/totals.tsv"
# name: executable, test, what it counts
FUZZERS = {
    "compiler": ("test_fuzz", "FuzzGraph.RealizeEqualsTheReference", "graphs"),
    "state": ("test_fuzz", "FuzzState.ProgramOrderIsTheTruth", "programs"),
    "symbolic": ("test_rules", "IndexFuzz.SimplifiedMeansTheSame", "expressions"),
    "transform": ("test_fuzz", "TransformFuzz.CompositionsEqualDifferencesAndLoops", "compositions"),
}


def run(build: pathlib.Path, name: str, seconds: str) -> bool:
    executable, test, unit = FUZZERS[name]
    (ROOT / "out").mkdir(exist_ok=True)
    keep, output = ROOT / f"out/fuzz-{name}.seed", ROOT / f"out/fuzz-{name}.txt"
    keep.unlink(missing_ok=True)
    env = os.environ | {"WHIT_FUZZ_SECONDS": seconds, "WHIT_FUZZ_KEEP": str(keep)}
    with output.open("w") as out:
        status = subprocess.run([build / "tests" / executable, f"--gtest_filter={test}"], cwd=ROOT, env=env, stdout=out,
                                stderr=subprocess.STDOUT).returncode
    text = output.read_text()
    seed = re.search(r"first seed (\d+)", text)
    count = re.search(rf"^(\d+) {unit}(?:, (\d+) through C)?", text, re.M)
    found = sorted(set(re.findall(r"\bseed (\d+)[:,]", text)))
    if status < 0 or (status and not found):
        found.append((keep.read_text().strip() if keep.exists() else "unknown") + " (died)")
    row = [datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), name, seconds, seed[1] if seed else "?",
           count[1] if count else "0", ", ".join(found) or "-", (count and count[2]) or "-"]
    with LOG.open("a") as log:
        log.write("\t".join(row) + "\n")
    print(f"{name}: {row[4]} {unit} in {seconds} s from seed {row[3]}, found: {row[5]}")
    return not found


def totals() -> None:
    cases, seconds, through_c = collections.Counter(), collections.Counter(), 0
    for line in LOG.read_text().splitlines():
        if line.startswith("#"):
            continue
        _, name, took, _, n, _, *c = line.split("\t")
        through_c += int(c[0]) if c and c[0] != "-" else 0
        cases[name] += int(n)
        seconds[name] += float(took)
    for name in cases:
        also = f", {through_c} of them through C," if name == "compiler" else ""
        print(f"{name}: {cases[name]} {FUZZERS[name][2]}{also} in {seconds[name]:.0f} s")


def main(argv: list[str]) -> int:
    if argv == ["--totals"]:
        totals()
        return 0
    if len(argv) < 2 or any(n not in FUZZERS for n in argv[2:]):
        print(__doc__)
        return 2
    results = [run(ROOT / argv[0], name, argv[1]) for name in argv[2:] or FUZZERS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
