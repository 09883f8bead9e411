#!/usr/bin/env python3
"""Fails when a file of src/ includes a header of a layer it must not see."""
import pathlib
import re
import sys

# Each layer and the layers whose headers it may include (besides its own).
BASE = {"base"}
IR = BASE | {"ir"}
REWRITE = IR | {"rewrite"}
RULES = REWRITE | {"rules"}
SCHEDULE = RULES | {"schedule"}
RENDER = RULES | {"render"}
CODEGEN = RENDER | {"codegen"}
RUNTIME = IR | {"runtime"}
ENGINE = SCHEDULE | CODEGEN | RUNTIME | {"engine"}
TENSOR = ENGINE | {"tensor"}
TOP = TENSOR | {"nn", "io", "viz"}
ALLOWED = {
    "base": BASE,
    "ir": IR,
    "rewrite": REWRITE,
    "rules": RULES,
    "schedule": SCHEDULE,
    "render": RENDER,
    "codegen": CODEGEN,
    "runtime": RUNTIME,
    "engine": ENGINE,
    "tensor": TENSOR,
    "nn": TENSOR | {"nn", "io"},
    "io": TENSOR | {"io"},
    "viz": TOP,
}
# Headers of third parties that are slow to compile, and the one folder that may include them.
THIRD_PARTY = {
    re.compile(r"^(llvm|llvm-c|lld|clang)/"): "src/runtime/llvm/",
    re.compile(r"^nanobind/"): "python/",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
HEADER_BANS = {"iostream", "regex", "format"}


def problems(root: pathlib.Path):
    """Yields one line of text for each forbidden include."""
    for folder in ("src", "include", "tools", "python", "tests", "examples", "bench"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".def"):
                continue
            name = path.relative_to(root).as_posix()
            parts = name.split("/")
            layer = parts[1] if folder == "src" else None
            if layer is not None and len(parts) > 2 and layer not in ALLOWED:
                yield f"{name}:1: folder src/{layer} is in no layer; add it to tools/check_layers.py"
                continue
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                bracket, header = match.groups()
                for pattern, home in THIRD_PARTY.items():
                    if pattern.match(header) and not name.startswith(home):
                        yield f"{name}:{number}: <{header}> may be included under {home} only"
                if path.suffix == ".h" and bracket == "<" and header in HEADER_BANS:
                    yield f"{name}:{number}: no header may include <{header}>"
                target = header.split("/")[0]
                if layer in ALLOWED and bracket == '"' and target in ALLOWED and target not in ALLOWED[layer]:
                    yield f"{name}:{number}: src/{layer} may not include \"{header}\""


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent.parent
    found = list(problems(root))
    for text in found:
        print(text)
    print(f"layers: {len(found)} problems" if found else "layers: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
