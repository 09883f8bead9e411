#!/usr/bin/env python3
"""What `make test` runs: every part in turn, its time, and at the end one line `N passed, N failed`.

  tools/ci/run_tests.py [--all] [--only PART,PART] [--list] [--summary FILE]

With --summary the last line goes into FILE as well. A part that has nothing to run yet (no Python tests, say) is named
with "nothing to run" and counts for nothing. Exit status 1 when anything failed.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
JOBS = int(os.environ.get("JOBS", os.cpu_count() or 2))
BUDGET_S = 35 * 60
PYTHON = ROOT / ".venv/bin/python"
LOGS = ROOT / "build-logs"
OWN_FOLDERS = ("src", "include", "tools", "examples", "tests", "python", "bench")
# Tests that start threads carry one of these words in their name; the thread sanitizer runs them.
THREAD_FILTER = "*Thread*:*Pool*:*Intern*:*Concurrent*:*Parallel*:*Queue*:*Race*:*Finalis*:*Lru*:*DiskCache*"
SUM_LINE = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\b")


@dataclasses.dataclass
class Result:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""

    def add(self, other: "Result") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.note = ", ".join(n for n in (self.note, other.note) if n)


def run(name: str, command: list, limit_s: int = 1800, env: dict | None = None, show: bool = True):
    """Runs a command with its output in a log file, whose end is shown when it fails. Returns (status, text)."""
    LOGS.mkdir(exist_ok=True)
    log = LOGS / (re.sub(r"[^\w.-]", "_", name) + ".log")
    # The verifier stands between all passes in tests; SPEC=0 from outside takes it away.
    full_env = {"SPEC": "1", **os.environ, "XDG_CACHE_HOME": str(LOGS / "cache"), **(env or {})}
    try:
        with open(log, "wb") as out:
            status = subprocess.run([str(c) for c in command], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT,
                                    stdin=subprocess.DEVNULL, timeout=limit_s, env=full_env).returncode
    except subprocess.TimeoutExpired:
        status = -1
        with open(log, "a") as out:
            out.write(f"\nstopped after {limit_s} s\n")
    text = log.read_text(errors="replace")
    if status and show:
        print(f"--- {name}: {shlex.join(str(c) for c in command)} -> status {status}; the end of {log.relative_to(ROOT)}:")
        print("\n".join(text.splitlines()[-60:]))
    return status, text


def check(name: str, command: list, **kwargs) -> Result:
    """A part that passes or fails as a whole."""
    status, _ = run(name, command, **kwargs)
    return Result(failed=1) if status else Result(passed=1)


def gtest(name: str, exe: pathlib.Path, filter_: str = "*", env: dict | None = None, prefix: tuple = ()) -> Result:
    report = LOGS / f"{re.sub(r'[^a-z0-9_.-]', '_', name)}.json"
    LOGS.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    status, _ = run(name, [*prefix, exe, "--gtest_brief=1", f"--gtest_filter={filter_}", f"--gtest_output=json:{report}"],
                    env=env)
    result = Result()
    try:
        for suite in json.loads(report.read_text()).get("testsuites", []):
            for case in suite.get("testsuite", []):
                if case.get("failures"):
                    result.failed += 1
                elif case.get("result") == "SKIPPED":
                    result.skipped += 1
                elif case.get("result") == "COMPLETED":
                    result.passed += 1
    except (OSError, ValueError):
        return Result(failed=1, note=f"{exe.name} died with status {status}")
    if status and not result.failed:  # died at the end: a leak, say
        result.failed = 1
        result.note = f"{exe.name} ended with status {status}"
    return result


def gtests(part: str, preset: str, folders, filter_: str, env: dict | None = None, prefix: tuple = ()) -> Result:
    result = Result()
    for folder in folders:
        exe = ROOT / f"build-{preset}/tests/test_{folder}"
        if list((ROOT / "tests" / folder).glob("*.cpp")):
            result.add(gtest(f"{part}-{folder}", exe, filter_, env, prefix) if exe.exists()
                       else Result(failed=1, note=f"test_{folder} was not built"))
    if not (result.passed or result.failed or result.skipped):
        result.note = "nothing to run"
    return result


def build(part: str, preset: str, targets=(), options=()) -> Result:
    if run(f"{part}-configure", ["cmake", "--preset", preset, f"-DPython_EXECUTABLE={PYTHON}", *options])[0]:
        return Result(failed=1, note="configure failed")
    flags = [x for t in targets for x in ("--target", t)]
    if run(f"{part}-build", ["cmake", "--build", f"build-{preset}", "-j", JOBS, *flags, "--", "-k", "0"])[0]:
        return Result(failed=1, note="build failed")
    return Result(passed=1)


def test_folders(*names):
    return [n for n in names if list((ROOT / "tests" / n).glob("*.cpp"))]


def has_python() -> bool:
    return bool(list((ROOT / "python").glob("*.cpp")))


# The parts, in order.

def part_format(args):
    return check("format", [sys.executable, "tools/ci/format.py", "--check"])


def part_layers(args):
    return check("layers", [sys.executable, "tools/check_layers.py"])


def part_size(args):
    result = check("size", [sys.executable, "tools/size.py"])
    lines = [line for line in (LOGS / "size.log").read_text().splitlines() if "core, of" in line]
    result.note = lines[0].strip() if lines else ""
    return result


def part_references(args):
    return check("references", [sys.executable, "tools/check_references.py"])


def part_build(args):
    return build("build", "release", options=[f"-DWHIT_PYTHON={'ON' if has_python() else 'OFF'}"])


def part_docs(args):
    """docs/ops.md and docs/flags.md are what the tables say; README's C++ listing prints what it says."""
    result = check("docs-tables", [ROOT / "build-release/tools/opdoc", "--check", "docs"])
    result.add(check("docs-readme", [sys.executable, "tools/ci/check_readme.py"]))
    return result


def part_gtest(args):
    """Tests named *_all are what `make test` samples."""
    return gtests("gtest", "release", ("unit", "ir", "rules", "ops", "error", "device", "fuzz", "perf"),
                  "*" if args.all else "-*_all")


def part_fuzz(args):
    """The fuzzers for 60 seconds each from seed 1 on, at once: so a run is red for the change at hand only."""
    sys.path.insert(0, str(ROOT / "tools"))
    import fuzz
    env = {"WHIT_FUZZ_SECONDS": "60", "WHIT_FUZZ_SEED": "1"}
    result = Result()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(gtest, f"fuzz-{name}", ROOT / "build-release/tests" / executable, test, env)
                for name, (executable, test, _) in fuzz.FUZZERS.items()]
        for done in runs:
            result.add(done.result())
    return result


def part_clang(args):
    """clang 19 with the flags of the release build, syntax and warnings only; one result for all files."""
    database = ROOT / "build-release/compile_commands.json"
    if not database.exists():
        return Result(failed=1, note="no release build")
    jobs = []
    for entry in json.loads(database.read_text()):
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in OWN_FOLDERS:
            continue
        words = shlex.split(entry["command"])
        at = next(i for i, w in enumerate(words) if w.endswith(("c++", "g++")))
        flags = [w for i, w in enumerate(words) if i > at and w not in ("-c", "-o") and words[i - 1] != "-o"]
        # The database is that of g++; CMakeLists.txt says why deprecation is off for clang.
        flags += ["-fsyntax-only", "-Wno-unknown-warning-option", "-Wno-deprecated-declarations"]
        jobs.append((path, ["clang++-19", *flags], entry["directory"]))

    def compile_one(job):
        path, command, folder = job
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        return path, done.returncode, done.stderr

    bad = 0
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for path, status, text in pool.map(compile_one, jobs):
            if status:
                bad += 1
                print(f"--- clang: {path.relative_to(ROOT)}\n" + "\n".join(text.splitlines()[:30]))
    return Result(failed=1 if bad else 0, passed=0 if bad else 1, note=f"{len(jobs)} files, {bad} with errors")


def part_asan(args):
    folders = test_folders("unit", "ir", "rules", "error", *(("ops", "device", "fuzz") if args.all else ()))
    result = build("asan", "asan", [f"test_{f}" for f in folders])
    if not result.failed:
        env = {"ASAN_OPTIONS": "detect_stack_use_after_return=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
        result.add(gtests("asan", "asan", folders, "*" if args.all else "-*_slow", env))
    return result


def part_tsan(args):
    folders = test_folders("unit", "device")
    result = build("tsan", "tsan", [f"test_{f}" for f in folders])
    if not result.failed:
        # The sanitizer's shadow memory needs the addresses of a process without randomisation on newer kernels.
        result.add(gtests("tsan", "tsan", folders, "*" if args.all else THREAD_FILTER, prefix=("setarch", "-R")))
    return result


def pytest(name: str, folder: str) -> Result:
    report = LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    status, _ = run(name, [PYTHON, "-m", "pytest", "-q", folder, f"--junitxml={report}"],
                    env={"PYTHONPATH": str(ROOT / "python")})
    try:
        suite = xml.parse(report).getroot().find("testsuite")
        n, bad, skipped = (int(suite.get(k)) for k in ("tests", "failures", "skipped"))
        bad += int(suite.get("errors"))
    except (OSError, xml.ParseError, AttributeError, TypeError):
        return Result(failed=1, note=f"pytest ended with status {status}")
    if status and not bad:
        return Result(n - skipped, 1, skipped, f"pytest ended with status {status}")
    return Result(n - bad - skipped, bad, skipped)


def part_tools(args):
    return pytest("tools", "tests/tools")


def part_pytest(args):
    if not has_python() or not (ROOT / "python/tests").is_dir():
        return Result(note="nothing to run")
    return pytest("pytest", "python/tests")


def part_conformance(args):
    """tests/conformance/run.py prints a last line `N passed, N failed` (and `, N skipped`)."""
    script = ROOT / "tests/conformance/run.py"
    if not has_python() or not script.exists():
        return Result(note="nothing to run")
    status, text = run("conformance", [PYTHON, script, *(["--all"] if args.all else [])],
                       env={"PYTHONPATH": str(ROOT / "python")})
    for line in reversed(text.splitlines()):
        if match := SUM_LINE.match(line):
            result = Result(int(match[1]), int(match[2]), int(match[3] or 0))
            if status and not result.failed:
                result.failed, result.note = 1, f"ended with status {status}"
            return result
    return Result(failed=1, note=f"no summary; status {status}")


PARTS = {
    "format": part_format, "layers": part_layers, "size": part_size, "references": part_references,
    "build": part_build, "tools": part_tools, "docs": part_docs, "gtest": part_gtest, "fuzz": part_fuzz, "clang": part_clang, "asan": part_asan,
    "tsan": part_tsan, "pytest": part_pytest, "conformance": part_conformance,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="slow tests and wider sanitizer runs too")
    parser.add_argument("--only", default="", help="parts, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the parts")
    parser.add_argument("--summary", type=pathlib.Path, help="a file that gets the last line")
    args = parser.parse_args()
    if args.list:
        print("\n".join(PARTS))
        return 0
    chosen = [p for p in args.only.split(",") if p] or list(PARTS)
    if unknown := [p for p in chosen if p not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    total, rows, start = Result(), [], time.monotonic()
    for name in chosen:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        try:
            result = PARTS[name](args)
        except Exception as e:  # a broken part must not hide the others
            result = Result(failed=1, note=f"{type(e).__name__}: {e}")
        rows.append((name, time.monotonic() - began, result))
        total.add(dataclasses.replace(result, note=""))
    print("\n  part           seconds   passed  failed  skipped")
    for name, seconds, r in rows:
        print(f"  {name:12s} {seconds:9.1f} {r.passed:8d} {r.failed:7d} {r.skipped:8d}  {r.note}")
    took = time.monotonic() - start
    print(f"  {'all':12s} {took:9.1f}" + ("" if took < BUDGET_S or args.all else f"  over the budget of {BUDGET_S} s"))
    line = f"{total.passed} passed, {total.failed} failed" + (f", {total.skipped} skipped" if total.skipped else "")
    if args.summary:
        args.summary.parent.mkdir(parents=True, exist_ok=True)
        args.summary.write_text(line + "\n")
    print(line, flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
