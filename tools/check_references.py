#!/usr/bin/env python3
"""Fails when a file of the project refers to something outside it: a path of one machine, a folder above the root, a
package index. What the project needs comes from Debian's folders, from the environment or from arguments."""
import pathlib
import re
import subprocess
import sys

SYSTEM_FOLDERS = {"usr", "tmp", "dev", "proc", "etc", "sys", "bin", "lib", "var", "run", "path", "no", "nonexistent"}
ABSOLUTE = re.compile(r"""(?:^|[\s"'`=(:,])/([A-Za-z][\w.-]*)/[\w.-]""")
UPWARDS = re.compile(r"""(?:^|[\s"'`=(:,])((?:\.\./)+)""")
INDEX = re.compile(r"https?://[^\s/]*(?:pypi|registry|mirror|proxy|artifact)|--(?:extra-)?index-url|--find-links")
BASE64 = re.compile(r'"b64": "[^"]*"')
SKIP = {"tools/check_references.py", "tests/tools/test_checks.py", "CMakeLists.txt", ".gitignore"}
BINARY = (".png", ".gz", ".safetensors", ".npy", ".npz")


def problems(root: pathlib.Path):
    """Yields one line of text for each reference to something outside the project."""
    names = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                           check=True, capture_output=True, text=True).stdout.split("\0")
    own_folders = {n.split("/")[0] for n in names if "/" in n}
    for name in sorted(set(n for n in names if n)):
        path = root / name
        if name in SKIP or name.endswith(BINARY) or not path.is_file():
            continue
        depth = name.count("/")
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            line = BASE64.sub("", line)
            for match in ABSOLUTE.finditer(line):
                if match[1] not in SYSTEM_FOLDERS | own_folders:
                    yield f"{name}:{number}: absolute path /{match[1]}/..."
            for match in UPWARDS.finditer(line):
                if len(match[1]) // 3 > depth:
                    yield f"{name}:{number}: {match[1]} leaves the project"
            if INDEX.search(line):
                yield f"{name}:{number}: names a package index"


def main() -> int:
    found = list(problems(pathlib.Path(__file__).resolve().parent.parent))
    for text in found:
        print(text)
    print(f"references: {len(found)} problems" if found else "references: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
