#!/usr/bin/env python3
"""Writes python/whit/_whit.pyi, the types of the extension module: `tools/stubs.py`; `--check` only compares.

Run it with the Python of .venv after a build of the module (`PRESET=python ./dev build`). nanobind's generator does the work; two things are put
right here: inside Tensor, `int`, `float` and `bool` are methods, and the exceptions are defined rather than imported.
"""
import difflib
import importlib
import importlib.util
import inspect
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STUB = ROOT / "python/whit/_whit.pyi"


def generate() -> str:
    from nanobind.stubgen import StubGen
    # Without its package, which adds methods to UOp that the generator does not know how to write.
    spec = importlib.util.spec_from_file_location("whit._whit", next((ROOT / "python/whit").glob("_whit*.so")))
    sys.modules["whit._whit"] = extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    generator = StubGen(module=extension, include_docstrings=False, include_private=True, quiet=True)
    generator.put(extension)
    text = generator.get()
    errors = "\n".join(f"class {name}(RuntimeError): ..." for name in ("CompileError", "DeviceError", "InternalError", "JitError"))
    text, n = re.subn(r"from whit import \(\n(?: +\w+Error as \w+Error,?\n)+\)\n", f"\n\n{errors}\n", text)
    assert n == 1, "the import of the exceptions has changed"
    sys.path.insert(0, str(ROOT / "python"))
    for module in ("whit.uop.ops", "whit.surface"):
        cls, names = (getattr(importlib.import_module(module), n) for n in ("EXTENDED", "added"))
        at = re.compile(r"^\S", re.M).search(text, text.index(f"class {cls.__name__}:") + 1).start()
        text = text[:at].rstrip() + "\n\n" + "\n\n".join(added_methods(cls, names)) + "\n\n" + text[at:]
    at = text.index("class Tensor:")
    end = re.compile(r"^\S", re.M).search(text, at + 1).start()
    body = re.sub(r"(?<!def )\b(int|float|bool)\b", r"builtins.\1", text[at:end])
    text = text[:at] + body + text[end:]
    # What `mypy --strict` wants and the generator leaves out: types of *args, what is in a dict, and that == gives nodes.
    lines = []
    for line in text.splitlines():
        if " def " in f" {line}" or re.match(r" *\w+: ", line):
            line = re.sub(r"(\(|, )(\*{1,2}\w+)(?=[,)])", r"\1\2: Any", line)
            for bare, full in (("dict", "dict[Any, Any]"), ("list", "list[Any]"), ("tuple", "tuple[Any, ...]"), ("Callable", "Callable[..., Any]")):
                line = re.sub(rf"((?:-> |: |\[|\| |, )(?:builtins\.|collections\.abc\.)?){bare}\b(?![\[\w(])(?!: \w)", rf"\1{full}", line)
        line = re.sub(r"-> object: \.\.\.$", "-> Any: ...", line)
        if re.search(r"def __(eq|ne)__\(.*-> (UOp|Tensor): \.\.\.$", line):
            line += "  # type: ignore[override]"
        lines.append(line)
    text = "\n".join(lines).replace("from collections.abc import ", "from collections.abc import Iterator, ", 1) + "\n\n__version__: str"
    return ("# The types of the extension module. Written by tools/stubs.py; python/tests/test_types.py compares.\n"
            "import builtins\n" + text).rstrip() + "\n"


def added_methods(cls, names):
    """The methods of a class that are written in Python."""
    for name in names:
        value = inspect.getattr_static(cls, name)
        kind = {property: "    @property\n", staticmethod: "    @staticmethod\n"}.get(type(value), "")
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        signature, types = inspect.signature(function), {}
        star_self = next(iter(signature.parameters.values())).kind is inspect.Parameter.VAR_POSITIONAL if not kind else False
        params = []
        for p in signature.parameters.values():
            given = p.annotation if isinstance(p.annotation, str) else "Any"
            types[p.name] = re.sub(r"\b(dict|list|tuple)$", r"\1[Any, ...]" if given == "tuple" else r"\1[Any]", given).replace("dict[Any]", "dict[Any, Any]")
            text = p.name if p.name == "self" else f"{p.name}: {types[p.name]}"
            stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
            if p.kind is p.KEYWORD_ONLY and not any(q.startswith("*") for q in params): params.append("*")
            params.append(stars + text + (" = ..." if p.default is not p.empty else ""))
        result = signature.return_annotation if isinstance(signature.return_annotation, str) else "Any"
        result = {"dict": "dict[UOp, None]", "list": f"list[{cls.__name__}]"}.get(result, result)
        if star_self: params.insert(0, "self")  # also called on the class, with all operands
        yield f"{kind}    def {name}({', '.join(params)}) -> {result}: ..."


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
