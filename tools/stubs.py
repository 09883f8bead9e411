#!/usr/bin/env python3
"""Writes python/whit/_whit.pyi, the types of the extension module: `tools/stubs.py`; `--check` only compares.

Run it with the Python of .venv after a build of the module (`PRESET=python ./dev build`). nanobind's generator does the work; two things are put
right here: inside Tensor, `int`, `float` and `bool` are methods, and the exceptions are defined rather than imported.
"""
import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STUB = ROOT / "python/whit/_whit.pyi"


def generate() -> str:
    sys.path.insert(0, str(ROOT / "python"))
    import whit._whit
    from nanobind.stubgen import StubGen
    generator = StubGen(module=whit._whit, include_docstrings=False, quiet=True)
    generator.put(whit._whit)
    text = generator.get()
    errors = "\n".join(f"class {name}(RuntimeError): ..." for name in ("CompileError", "DeviceError", "InternalError", "JitError"))
    text, n = re.subn(r"from whit import \(\n(?: +\w+Error as \w+Error,?\n)+\)\n", f"\n\n{errors}\n", text)
    assert n == 1, "the import of the exceptions has changed"
    at = text.index("class Tensor:")
    end = re.compile(r"^\S", re.M).search(text, at + 1).start()
    body = re.sub(r"(?<!def )\b(int|float|bool)\b", r"builtins.\1", text[at:end])
    return ("# The types of the extension module. Written by tools/stubs.py; python/tests/test_types.py compares.\n"
            "import builtins\n" + text[:at] + body + text[end:]).rstrip() + "\n"


def main() -> int:
    new = generate()
    if "--check" not in sys.argv[1:]:
        STUB.write_text(new)
        return 0
    old = STUB.read_text() if STUB.exists() else ""
    sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(STUB), "the module"))
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main())
