#!/usr/bin/env python3
"""Reports the lines of each part and fails when the core is over its budget.

  tools/size.py          the work tree
  tools/size.py A        the work tree against commit A
  tools/size.py A B      commit B against commit A

A line is a line of code in a .h, .cpp or .def file: neither blank nor a comment alone, so that nothing is saved by explaining
less. The core is src/ without src/io, src/viz and the devices other than cpu, null and ref.
"""
import collections
import pathlib
import subprocess
import sys

BUDGET_CORE = 25_000
BUDGET_FILE = 800  # a longer file is listed, not refused
SUFFIXES = (".h", ".cpp", ".def")
CORE_DEVICES = {"cpu", "null", "ref", "llvm"}  # llvm is the compiler of cpu
ROOT = pathlib.Path(__file__).resolve().parent.parent  # tests point it elsewhere


def git(*args: str, data: bytes | None = None) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *args], input=data, check=True, capture_output=True).stdout


def count(text: bytes) -> int:
    return sum(1 for line in map(bytes.strip, text.splitlines()) if line and not line.startswith(b"//"))


def files_of_work_tree() -> dict[str, int]:
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").decode().split("\0")
    return {n: count((ROOT / n).read_bytes()) for n in set(names) if n.endswith(SUFFIXES) and (ROOT / n).is_file()}


def files_of_commit(commit: str) -> dict[str, int]:
    names = [n for n in git("ls-tree", "-r", "-z", "--name-only", commit).decode().split("\0") if n.endswith(SUFFIXES)]
    out = git("cat-file", "--batch", data="".join(f"{commit}:{n}\n" for n in names).encode())
    counts, at = {}, 0
    for name in names:
        end = out.index(b"\n", at)
        n_bytes = int(out[at:end].split()[-1])
        counts[name] = count(out[end + 1:end + 1 + n_bytes])
        at = end + 2 + n_bytes
    return counts


def part_of(name: str) -> tuple[str, bool]:
    """The part that a file is reported under, and whether it counts as core."""
    parts = name.split("/")
    if parts[0] == "include":
        return "include", False
    if parts[0] != "src":
        return parts[0] if len(parts) == 1 or parts[0] != "tests" else "/".join(parts[:2]), False
    if len(parts) > 3 and parts[1] == "runtime":
        return "/".join(parts[:3]), parts[2] in CORE_DEVICES
    return "/".join(parts[:2]), parts[1] not in ("io", "viz")


def totals(files: dict[str, int]) -> tuple[collections.Counter, int]:
    by_part, core = collections.Counter(), 0
    for name, n in files.items():
        part, is_core = part_of(name)
        by_part[part] += n
        core += n if is_core else 0
    return by_part, core


def main(argv: list[str]) -> int:
    if len(argv) > 2 or any(a.startswith("-") for a in argv):
        print(__doc__)
        return 2
    files = files_of_commit(argv[1]) if len(argv) == 2 else files_of_work_tree()
    by_part, core = totals(files)
    old_parts, old_core = totals(files_of_commit(argv[0])) if argv else (by_part, core)
    for part in sorted(by_part.keys() | old_parts.keys(), key=lambda p: (not part_of(p + "/x.h")[1], p)):
        change = f"  {by_part[part] - old_parts[part]:+d}" if argv else ""
        print(f"{by_part[part]:8d}  {part}{change}")
    print(f"{core:8d}  core, of {BUDGET_CORE}" + (f"  {core - old_core:+d}" if argv else ""))
    long_files = [f"{n} ({k})" for n, k in sorted(files.items(), key=lambda x: -x[1]) if k > BUDGET_FILE]
    if long_files:
        print(f"files over {BUDGET_FILE} lines: " + ", ".join(long_files))
    if core > BUDGET_CORE:
        print(f"size: the core is {core - BUDGET_CORE} lines over its budget")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
