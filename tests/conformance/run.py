#!/usr/bin/env python3
"""Runs the conformance cases as `make test` does: every case is evaluated, in worker processes, on each path.

  tests/conformance/run.py [--all] [--paths CPU,REF,C] [--update] [GROUP ...]

The C path starts a compiler for each kernel, so it takes a third of the groups, chosen by the commit, unless --all or
groups are given.

A case that is known to fail stands in known_failures.json with its reason and still runs: when it passes, its entry is out
of date and that is a failure. The last line is `N passed, N failed`; a known failure counts as neither.
The cases themselves and one-off runs: runner.py --help.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
KNOWN = HERE / "known_failures.json"
# A path is what DEV selects.
PATHS = {"CPU": "CPU", "REF": "REF", "C": "CPU:C"}


def groups():
    return sorted(p.stem for p in HERE.glob("*.json") if p != KNOWN)


def is_chosen(path, group, args):
    if path != "C" or args.all or args.group:
        return True
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    return int(hashlib.sha256(f"{commit} {group}".encode()).hexdigest(), 16) % 3 == 0


def run_group(path, group):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        done = subprocess.run([sys.executable, HERE / "runner.py", "--group", group, "--json", report, "--show", "0"],
                              env={**os.environ, "DEV": PATHS[path]}, capture_output=True, text=True)
        if not report.exists():
            return path, group, None, (done.stdout + done.stderr)[-2000:]
        return path, group, json.loads(report.read_text()), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", nargs="*")
    parser.add_argument("--all", action="store_true", help="all cases on every path")
    parser.add_argument("--paths", default="CPU,REF,C")
    parser.add_argument("--update", action="store_true", help="write known_failures.json anew; reasons of kept entries stay")
    args = parser.parse_args()
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    paths = list(PATHS) if args.all else args.paths.split(",")
    passed = failed = 0
    now_failing, table = {}, collections.defaultdict(dict)
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count() or 2))) as pool:
        jobs = [pool.submit(run_group, p, g) for p in paths for g in (args.group or groups()) if is_chosen(p, g, args)]
        for job in concurrent.futures.as_completed(jobs):
            path, group, report, text = job.result()
            if report is None:
                print(f"--- {group} on {path}: the process died\n{text}")
                failed += 1
                continue
            table[group][path] = (sum(not p for p in report.values()), len(report))
            for case, problems in report.items():
                key = f"{'CPU' if path == 'C' else path} {case}"  # C is to be equal to CPU
                if problems:
                    now_failing[key] = known.get(key, problems[0])
                if bool(problems) == (key in known):
                    passed += not problems
                    continue
                failed += 1
                print(f"--- {key}: " + ("; ".join(problems[:2]) if problems else "passes now: take it off known_failures.json"))
    for group in sorted(table):
        print(f"{group:18s} " + "  ".join(f"{p} {ok}/{n} {100 * ok / n:5.1f} %" for p, (ok, n) in sorted(table[group].items())))
    if args.update:
        kept = {k: v for k, v in known.items() if not any(k.startswith(p + " ") for p in paths)} if not args.group else dict(known)
        KNOWN.write_text(json.dumps(dict(sorted({**kept, **now_failing}.items())), indent=1) + "\n")
    print(f"{len(now_failing)} known or new failures")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
