#!/usr/bin/env python3
"""What programs may use, as texts that are compared: `tools/api.py [--check]`.

tests/tools/api_cpp.txt is a declaration of include/whit/*.h a line; tests/tools/api_python.txt is a name of the modules of python/whit a line, with its
arguments (the extension module has its own golden text, python/whit/_whit.pyi). Without --check both are written. docs/stability.md says what may change when.
"""
import difflib
import inspect
import pathlib
import pkgutil
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/tools"


def declarations(text: str) -> list[str]:
    """The declarations of a header, members with their class in front. Bodies, comments and private parts are left out."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^\s*#.*(?:\\\n.*)*$", "", text, flags=re.M)
    out: list[str] = []
    scopes: list[tuple[str, bool]] = []  # name, is it public
    at, start = 0, 0
    while at < len(text):
        c = text[at]
        if c == "{" and (text[start:at].count("(") > text[start:at].count(")") or text[start:at].rstrip().endswith("=")):
            at = matching(text, at)  # a default value
        elif c in ";{}":
            piece = " ".join(text[start:at].split())
            for label in re.findall(r"\b(public|private|protected):", piece):
                scopes[-1] = (scopes[-1][0], label == "public")
            piece = re.sub(r"^.*\b(?:public|private|protected): ?", "", piece)
            visible = all(is_public for _, is_public in scopes)
            prefix = "".join(f"{name}::" for name, _ in scopes if name)
            kind = re.match(r"(?:template ?<.*?> )?(class|struct|enum class|enum|union) (\w+)(?! ?\()", piece)
            if c == "{" and (m := re.match(r"namespace ?([\w:]*)", piece)):
                scopes.append(("", not m[1].endswith("detail")))
            elif c == "{" and kind and not kind[1].startswith("enum"):
                if visible:
                    out.append(prefix + piece)
                scopes.append((kind[2], kind[1] != "class"))
            elif c == "}":
                if scopes:
                    scopes.pop()
            elif c == "{":  # a body, an initialiser, or an enum's values
                end = matching(text, at) + 1
                body = " ".join(text[at:end].split()) if kind else ""
                if visible and piece:
                    out.append(prefix + piece + (" " + body if body else ""))
                at = end
                start = at
                continue
            elif visible and piece:
                out.append(prefix + piece)
            start = at + 1
        at += 1
    return out


def matching(text: str, at: int) -> int:
    """Where the brace at `at` is closed."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return end
    raise ValueError(f"a brace is not closed: {text[at:at + 60]!r}")


def cpp() -> str:
    lines = []
    for header in sorted((ROOT / "include/whit").glob("*.h")):
        lines += [f"{header.name}: {d}" for d in declarations(header.read_text())]
    return "".join(line + "\n" for line in lines)


def python() -> str:
    sys.path.insert(0, str(ROOT / "python"))
    import importlib

    import whit
    lines = []
    for name in ["whit", *sorted(m.name for m in pkgutil.walk_packages(whit.__path__, "whit.") if "._" not in m.name)]:
        module = importlib.import_module(name)
        for key, value in sorted(vars(module).items()):
            if key.startswith("_") or getattr(value, "__module__", None) != name or not callable(value):
                continue
            lines.append(f"{name}.{key}{signature(value)}")
            if inspect.isclass(value):
                members = [k for k in vars(value) if not k.startswith("_") and callable(getattr(value, k))]
                lines += [f"{name}.{key}.{k}{signature(getattr(value, k))}" for k in sorted(members)]
    return "".join(line + "\n" for line in lines)


def signature(value) -> str:
    try:
        return re.sub(r" at 0x\w+", "", str(inspect.signature(value)))
    except ValueError:
        return "(...)"


def main() -> int:
    status = 0
    for name, text in (("api_cpp.txt", cpp()), ("api_python.txt", python())):
        path = GOLDEN / name
        if "--check" not in sys.argv:
            path.write_text(text)
            continue
        old = path.read_text().splitlines(keepends=True)
        diff = list(difflib.unified_diff(old, text.splitlines(keepends=True), f"tests/tools/{name}", "what there is", n=0))
        if diff:
            status = 1
            sys.stdout.writelines(diff)
            print(f"tools/api.py writes tests/tools/{name} anew; docs/stability.md says what may change when")
    return status


if __name__ == "__main__":
    sys.exit(main())
