#!/usr/bin/env python3
"""README's C++ listing is examples/readme.cpp, and prints what README says. `check_readme.py [BUILD_FOLDER]`, default build-release.

Its Python listing is run by python/tests/test_docs.py.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main() -> int:
    build = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "build-release")
    listing = re.search(r"^```cpp\n(.*?)^```\n+^```text\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    if not listing:
        print("README.md has no C++ listing with its output")
        return 1
    code, expected = listing.groups()
    if code != (ROOT / "examples/readme.cpp").read_text():
        print("README.md's C++ listing is not examples/readme.cpp")
        return 1
    printed = subprocess.run([build / "examples/readme"], capture_output=True, text=True, timeout=60)
    if printed.returncode or printed.stdout != expected:
        print(f"examples/readme printed\n{printed.stdout}{printed.stderr}and not, as README.md says,\n{expected}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
