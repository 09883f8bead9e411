#!/usr/bin/env python3
"""clang-format over the project's C++: rewrites in place, or only reports with --check."""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys

FOLDERS = ("include", "src", "tools", "python", "tests", "examples", "bench")


def sources(root: pathlib.Path):
    return [p for f in FOLDERS for p in sorted((root / f).rglob("*")) if p.suffix in (".h", ".cpp") and p.is_file()]


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    check = "--check" in sys.argv[1:]
    named = [pathlib.Path(a) for a in sys.argv[1:] if not a.startswith("--")]
    tool = shutil.which("clang-format-19") or "/usr/lib/llvm-19/bin/clang-format"

    def run(path):
        flags = ["--dry-run", "--Werror"] if check else ["-i"]
        done = subprocess.run([tool, "--style=file", *flags, str(path)], capture_output=True, text=True)
        return path, done.returncode, done.stderr

    files = named or sources(root)
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, code, text in pool.map(run, files):
            if code:
                bad += 1
                print(f"{path.relative_to(root) if path.is_absolute() else path}: not formatted")
                print("\n".join(text.splitlines()[:3]))
    print(f"format: {len(files)} files, {bad} to change" if check else f"format: {len(files)} files")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
