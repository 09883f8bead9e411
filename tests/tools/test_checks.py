"""The checks of `make test` find what they are for."""
import argparse
import importlib.util
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def load(name):
    spec = importlib.util.spec_from_file_location(pathlib.Path(name).stem, ROOT / name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path):
    """A function that writes files into a fresh git work tree; its attribute `root` is the tree."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)

    def write(files, commit=None):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        if commit:
            git = ["git", "-C", tmp_path, "-c", "user.name=t", "-c", "user.email=t@t"]
            subprocess.run([*git, "add", "-A"], check=True)
            subprocess.run([*git, "commit", "-qm", commit], check=True)
            subprocess.run([*git, "tag", commit], check=True)

    write.root = tmp_path
    return write


@pytest.mark.parametrize("name, line, text", [
    ("src/base/a.h", '#include "ir/uop.h"', 'src/base/a.h:1: src/base may not include "ir/uop.h"'),
    ("src/runtime/cpu/a.cpp", '#include "render/llvm.h"', 'src/runtime may not include "render/llvm.h"'),
    ("src/schedule/a.cpp", '#include "codegen/a.h"', 'src/schedule may not include "codegen/a.h"'),
    ("src/nn/a.cpp", '#include "viz/a.h"', 'src/nn may not include "viz/a.h"'),
    ("src/extra/a.cpp", "", "src/extra is in no layer"),
    ("src/render/a.cpp", "#include <llvm/IR/Module.h>", "may be included under src/runtime/llvm/ only"),
    ("tests/unit/a.cpp", "#include <nanobind/nanobind.h>", "may be included under python/ only"),
    ("src/ir/a.h", "#include <iostream>", "no header may include <iostream>"),
])
def test_layers_refuse(tree, name, line, text):
    tree({name: line + "\n"})
    found = list(load("tools/check_layers.py").problems(tree.root))
    assert len(found) == 1 and text in found[0]


def test_layers_accept(tree):
    tree({"src/engine/a.cpp": '#include "runtime/device.h"\n#include "codegen/a.h"\n#include "engine/b.h"\n',
          "src/runtime/llvm/a.cpp": '#include <llvm/IR/Module.h>\n#include "ir/uop.h"\n', "src/ir/a.cpp": "#include <iostream>\n",
          "tools/a.cpp": '#include "viz/a.h"\n'})
    assert not list(load("tools/check_layers.py").problems(tree.root))


@pytest.mark.parametrize("text, problem", [
    ('open("/home/me/data")', "absolute path /home/..."),
    ("see `/mnt/disk/x`", "absolute path /mnt/..."),
    ("cp ../../x .", "../../ leaves the project"),
    ("pip install --index-url x", "names a package index"),
    ("https://pypi.example/simple", "names a package index"),
])
def test_references_refuse(tree, text, problem):
    tree({"docs/a.md": f"\n{text}\n"})
    assert list(load("tools/check_references.py").problems(tree.root)) == [f"docs/a.md:2: {problem}"]


def test_references_accept(tree):
    tree({"docs/a.md": "see [b](../src/b.h), /usr/share/x, /docs/a.md, a/b/c and 1 / 2\n", "src/b.h": "// a //comment\n"})
    assert not list(load("tools/check_references.py").problems(tree.root))


def test_size_counts_the_core_and_compares(tree, monkeypatch, capsys):
    size = load("tools/size.py")
    monkeypatch.setattr(size, "ROOT", tree.root)
    tree({"src/ir/a.cpp": "one\n\n  \ntwo\n", "src/runtime/cuda/a.cpp": "x\n" * 7, "src/runtime/cpu/a.cpp": "x\n",
          "src/runtime/device.h": "x\n", "src/io/a.cpp": "x\n" * 9, "README.md": "x\n"}, commit="old")
    tree({"src/ir/a.cpp": "one\n", "tests/unit/a.cpp": "x\n" * 3}, commit="new")
    tree({"src/ir/b.def": "x\n" * 5})
    assert size.main([]) == 0
    assert "       8  core, of 25000\n" in capsys.readouterr().out
    assert size.main(["old", "new"]) == 0
    out = capsys.readouterr().out
    assert "       3  core, of 25000  -1\n" in out and "       3  tests/unit  +3\n" in out
    monkeypatch.setattr(size, "BUDGET_CORE", 7)
    assert size.main([]) == 1
    assert "the core is 1 lines over its budget" in capsys.readouterr().out


def test_runner_sums_parts_and_survives_a_broken_one(monkeypatch, capsys, tmp_path):
    runner = load("tools/ci/run_tests.py")
    result = runner.Result

    def broken(args):
        raise RuntimeError("no disk")

    monkeypatch.setattr(runner, "PARTS", {"a": lambda args: result(3, 0, 1), "b": broken, "c": lambda args: result(2)})
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--summary", str(tmp_path / "s")])
    assert runner.main() == 1
    assert capsys.readouterr().out.endswith("\n5 passed, 1 failed, 1 skipped\n")
    assert (tmp_path / "s").read_text() == "5 passed, 1 failed, 1 skipped\n"
    monkeypatch.setattr(sys, "argv", ["run_tests.py", "--only", "c"])
    assert runner.main() == 0
    assert capsys.readouterr().out.endswith("\n2 passed, 0 failed\n")


def test_runner_counts_a_dead_test_program_as_a_failure(monkeypatch, tmp_path):
    runner = load("tools/ci/run_tests.py")
    monkeypatch.setattr(runner, "LOGS", ROOT / "build-logs/self-test")
    dead = tmp_path / "test_dead"
    dead.write_text("#!/bin/sh\nkill -SEGV $$\n")
    dead.chmod(0o755)
    found = runner.gtest("dead", dead)
    assert (found.passed, found.failed) == (0, 1) and "died" in found.note


def test_conformance_part_reads_the_last_summary(monkeypatch, tmp_path):
    runner = load("tools/ci/run_tests.py")
    monkeypatch.setattr(runner, "has_python", lambda: True)
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(runner, "PYTHON", sys.executable)
    script = tmp_path / "tests/conformance/run.py"
    script.parent.mkdir(parents=True)
    args = argparse.Namespace(all=False)
    for text, status, want in [("1 passed, 0 failed\n95 passed, 4 failed, 2 skipped", 1, (95, 4, 2)),
                               ("7 passed, 0 failed", 3, (7, 1, 0)), ("nothing", 0, (0, 1, 0))]:
        script.write_text(f"print({text!r})\nraise SystemExit({status})\n")
        found = runner.part_conformance(args)
        assert (found.passed, found.failed, found.skipped) == want


def test_every_function_of_the_cpp_tensor_is_called_by_a_cpp_test():
    import re

    page = load("tools/tensor_api.py")
    tests = "".join(p.read_text() for p in (ROOT / "tests").rglob("*") if p.suffix in (".cpp", ".h"))
    called = lambda name: re.search(rf"(?:\.|->|Tensor::){name}(?:<\w+>)?\(|&Tensor::{name}\b|WHIT_FN\({name}\)", tests)
    missing = [name for name in page.declarations() if name != "Tensor" and not called(name)]
    assert not missing, f"no test in C++ calls Tensor's {', '.join(missing)}"
