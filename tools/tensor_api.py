#!/usr/bin/env python3
"""Writes docs/tensor-api.md, the names of Tensor in Python and in C++ side by side: `tools/tensor_api.py`; `--check` only compares.

Python's forms come from python/tests/tensor_surface.txt, the list that the tests hold Python to; C++'s from include/whit/tensor.h. A name without
a declaration of the same name needs a row in OTHER.
"""
import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/tensor-api.md"

# What is spelled otherwise in C++.
OTHER = {
    "float": "x.to_float()", "half": "x.to_half()", "int": "x.to_int()", "bool": "x.to_bool()", "bfloat16": "x.cast(DType::BFloat16)",
    "double": "x.cast(DType::Float64)", "long": "x.cast(DType::Int64)", "short": "x.cast(DType::Int16)", "max_shape": "x.shape()",
    "max_numel": "x.numel()", "invalids": "Tensor::empty(shape, o)", "const": "Tensor::constant(v, dtype)", "ufix": "x.const_like(v)",
    "usum": "x + a + b", "uprod": "x * a * b", "alu": "Tensor(alu(op, {x.uop(), ..}))", "image_dot": "x.dot(w)", "image_conv2d": "x.conv2d(w)",
    "sequential": "f(g(x))", "data": "x.bytes()", "tolist": "x.to_vector<T>()", "numpy": "x.to_vector<T>()", "linear_with_vars":
    "engine::schedule({x.uop()})", "schedule_linear": "engine::schedule({x.uop()})", "from_url": "(Python only: fetching files)", "decode_hevc_frame":
    "(on no device of whit)",
}
OPERATORS = {
    "neg": "-x", "invert": "~x", "add": "x + y", "sub": "x - y", "mul": "x * y", "truediv": "x / y", "floordiv": "x.floordiv(y)", "mod": "x % y", "and": "x & y",
    "or": "x | y", "xor": "x ^ y", "lt": "x < y", "gt": "x > y", "ge": "x >= y", "le": "x <= y", "ne": "x != y", "eq": "x == y", "lshift": "x << y",
    "rshift": "x >> y", "pow": "x.pow(y)", "matmul": "x.matmul(y)", "getitem": "x.get({..}), x[i]", "setitem": "x.set({..}, v)", "init": "Tensor(v), Tensor::from<T>({..})",
    "del": "(the handle)", "repr": "x.repr()", "hash": "x.id()", "bool": "(none)", "len": "x.size(0)", "delitem": "(none)", "iadd": "x += y", "isub": "x -= y",
    "imul": "x *= y", "itruediv": "x /= y",
}


def declarations() -> dict[str, list[str]]:
    """name -> its declarations in class Tensor, each on one line, without what stands for the compiler."""
    text = (ROOT / "include/whit/tensor.h").read_text()
    body = text[text.index("class Tensor {"):text.index("  struct Impl;")]
    body = re.sub(r"//.*", "", body)
    out: dict[str, list[str]] = {}
    for m in re.finditer(r"^  (?:explicit )?((?:static )?)((?:const )?[\w:<>, ]+?[&*]? )(\w+)(\((?:[^()]|\([^()]*\))*\))(?: const)?\s*(?=;|\{)", body, re.M):
        static, result, name, params = m.groups()
        form = re.sub(r"\s+", " ", f"{'Tensor::' if static else ''}{name}{params}")
        for old, new in (("const ", ""), ("&", ""), ("std::", ""), ("int64_t", "int"), ("string_view", "string"), (" ,", ","), (" )", ")")):
            form = form.replace(old, new)
        out.setdefault(name, []).append(form)
    return out


def page() -> str:
    found, rows, dunders, missing = declarations(), [], [], []
    for line in (ROOT / "python/tests/tensor_surface.txt").read_text().splitlines():
        if line.startswith("#"): continue
        kind, name, sig = re.fullmatch(r"(?:@(\w+) )?(\w+)(?:\((.*)\))?", line).groups()
        if kind == "helper": continue
        if kind == "dunder":
            bare = name.strip("_")
            reflected = bare[1:] if bare[0] in "ri" and bare[1:] in OPERATORS and bare not in OPERATORS else ""
            cpp = OPERATORS.get(bare) or ("x.assign(" + OPERATORS[reflected] + ")" if bare[0] == "i" else OPERATORS[reflected].replace("x", "2", 1) if reflected else "")
            (dunders.append((name, cpp)) if cpp else missing.append(name))
            continue
        python = f"{'Tensor.' if kind in ('cls', 'static') else ''}{name}" + ("" if kind == "prop" else f"({sig})")
        cpp = found.get(name) or ([OTHER[name]] if name in OTHER else [])
        if cpp: rows.append((python, "<br>".join(f"`{c}`" if not c.startswith("(") else c.strip("()") for c in cpp)))
        else: missing.append(name)
    if missing: raise SystemExit(f"tensor_api: include/whit/tensor.h has no {', '.join(missing)}; declare it, or say in OTHER how C++ spells it")
    cell = lambda s: s.replace("|", "\\|")
    return ("# Tensor in Python and in C++\n\nWritten by `tools/tensor_api.py` from the list that the tests hold Python to, and from `include/whit/tensor.h`. What each does: the "
            "docstrings (`help(Tensor.sort)`), the comments of the header, and docs/tensor.md. In C++ references and `const` are left out here; `o` structs take "
            "designated initialisers.\n\n| Python | C++ |\n|---|---|\n" + "".join(f"| `{cell(p)}` | {cell(c)} |\n" for p, c in rows) +
            "\n## Operators and protocols\n\n| Python | C++ |\n|---|---|\n" + "".join(f"| `{n}` | `{cell(c)}` |\n" for n, c in dunders))


def main() -> int:
    new = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(new)
        return 0
    old = PAGE.read_text() if PAGE.exists() else ""
    sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(PAGE), "the header"))
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main())
