#!/usr/bin/env python3
"""Which rewrite rules fire in models and in fuzzers: writes tests/rules/fired.txt and prints the rules that neither fires.

  tools/rule_coverage.py [SECONDS]    build-release has test_fuzz, test_rules and whit-opt, python/whit its module; SECONDS a fuzzer

Models are the networks of bench/models.py and the examples, on LLVM and on C, and for the device NULL; programs are those of
tests/rules/programs_test.cpp and the texts of index_test.cpp. A rule that none fires is one too many.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "tests/rules/fired.txt"
MODELS = [["bench/models.py", "resnet50"], ["bench/models.py", "gpt2"], ["bench/models.py", "resnet18"], ["bench/models.py", "mlp", "jit"],
          ["examples/cnn.py", "--steps", "2"], ["examples/chars.py", "--steps", "2"], ["examples/linear.py", "--steps", "2"],
          ["examples/mixed.py", "--steps", "2"], ["examples/data_parallel.py"], ["examples/tensor_parallel.py"]]
FUZZERS = [("test_fuzz", "FuzzGraph.RealizeEqualsTheReference"), ("test_fuzz", "FuzzState.ProgramOrderIsTheTruth"),
           ("test_fuzz", "TransformFuzz.CompositionsEqualDifferencesAndLoops"), ("test_rules", "IndexFuzz.SimplifiedMeansTheSame")]


def fired(command: list[str], **env: str) -> set[str]:
    """The rules that fire in a program, from what it prints at its end."""
    full = os.environ | {"TRACK_MATCH_STATS": "1", "PYTHONPATH": str(ROOT / "python")} | env
    done = subprocess.run(command, cwd=ROOT, env=full, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr[-800:]}")
    rules = set(re.findall(r"^ *\d+ fired +[\d.]+ ms  (\S+)$", done.stderr, re.M))
    print(f"{len(rules):4} rules  {' '.join(command[1:])} {' '.join(env.values())}", flush=True)
    return rules


def main(seconds: str = "60") -> None:
    python = str(ROOT / ".venv/bin/python")
    build = ROOT / "build-release"
    by = {"models": set(), "fuzzers": set(), "programs": set()}
    for program in MODELS:
        by["models"] |= fired([python, *program])
    by["models"] |= fired([python, "examples/cnn.py", "--steps", "1"], DEV="CPU:C")
    for executable, test in FUZZERS:
        by["fuzzers"] |= fired([str(build / "tests" / executable), f"--gtest_filter={test}"], WHIT_FUZZ_SECONDS=seconds)
    by["programs"] |= fired([str(build / "tests/test_rules"), "--gtest_filter=Rules/Programs.*:Index.*"])
    rules = subprocess.run([build / "tools/whit-opt", "--rules"], capture_output=True, text=True, check=True).stdout.split()
    lines = ["# What fires each rule, beside its own test: tools/rule_coverage.py writes it."]
    for rule in sorted(set(rules)):
        who = [name for name, names in by.items() if rule in names]
        lines.append(f"{rule} {' '.join(who) or '-'}")
        if not who:
            print(f"never fired: {rule}")
    FILE.write_text("\n".join(lines) + "\n")
    print(f"{len(set(rules))} rules, {len(by['models'])} fired by models, {len(by['fuzzers'])} by fuzzers, {len(by['programs'])} by programs")


if __name__ == "__main__":
    main(*sys.argv[1:])
