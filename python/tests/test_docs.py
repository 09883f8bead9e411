"""Documentation that runs: every docstring's examples, README's Python listing, the commands' help."""
import doctest
import importlib
import pathlib
import pkgutil
import re

import pytest

import whit
from whit import Context, Tensor, dtypes, nn

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NAMES = {"Tensor": Tensor, "dtypes": dtypes, "nn": nn, "Context": Context}
MEMBERS = [n for n in dir(Tensor) if not n.startswith("_")]
MODULES = ["whit", *(m.name for m in pkgutil.walk_packages(whit.__path__, "whit.") if "._" not in m.name)]


def run_examples(name: str, doc: str, names: dict) -> int:
  test = doctest.DocTestParser().get_doctest(doc, dict(names), name, None, 0)
  out: list = []
  result = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(test, out=out.append)
  assert result.failed == 0, "".join(out)
  return result.attempted


@pytest.mark.parametrize("name", MEMBERS)
def test_tensor_member(name):
  doc = getattr(Tensor, name).__doc__ or ""
  assert ">>>" in doc, f"Tensor.{name} has no example in python/docs.def"
  assert run_examples(name, doc, NAMES) > 0


def test_every_row_is_used():
  rows = re.findall(r'^WHIT_DOC\("(\w+)"', (ROOT / "python/docs.def").read_text(), re.M)
  assert sorted(set(rows)) == sorted(rows)
  assert [r for r in rows if r not in MEMBERS and r != "__init__"] == []
  run_examples("__init__", Tensor.__init__.__doc__, NAMES)


@pytest.mark.parametrize("name", MODULES)
def test_module(name):
  module = importlib.import_module(name)
  assert module.__doc__, f"{name} has no docstring"
  for test in doctest.DocTestFinder().find(module, name):
    out: list = []
    result = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(test, out=out.append)
    assert result.failed == 0, "".join(out)


@pytest.mark.parametrize("name", MODULES)
def test_public_names_have_an_example(name):
  module = importlib.import_module(name)
  bare = [k for k, v in vars(module).items() if not k.startswith("_") and callable(v) and
          getattr(v, "__module__", None) == name and ">>>" not in (v.__doc__ or "")]
  assert bare == []


def test_readme_listing(capsys):
  listings = re.findall(r"^```python\n(.*?)^```\n+^```text\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
  assert listings, "README.md has no Python listing with its output"
  for code, expected in listings:
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == expected
