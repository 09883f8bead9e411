"""Runs an unchanged program that was written for tinygrad: `python -m whit.compat PROGRAM [ARGS]`, or `-m MODULE [ARGS]`.

While it runs, `import tinygrad` and its submodules give whit's. What whit does not have is an ImportError or AttributeError that names it.
"""
from __future__ import annotations

import importlib, importlib.abc, importlib.machinery, os, runpy, sys, types

from whit.hints import missing_module


class _Loader(importlib.abc.Loader):
  def __init__(self, name: str) -> None: self.name = name
  def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
    module = importlib.import_module(self.name)
    self.spec = module.__spec__
    return module
  def exec_module(self, module: types.ModuleType) -> None: module.__spec__ = self.spec  # which the import system has replaced


class _Finder(importlib.abc.MetaPathFinder):
  """tinygrad.X is whit.X, the same module object."""

  def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
    top, _, rest = name.partition(".")
    if top != "tinygrad": return None
    ours = f"whit.{rest}" if rest else "whit"
    try: module = importlib.import_module(ours)
    except ModuleNotFoundError as e:
      if e.name != ours: raise  # something that our module wants
      raise missing_module(name) from None
    spec = importlib.machinery.ModuleSpec(name, _Loader(ours), is_package=hasattr(module, "__path__"))
    return spec


def install() -> None:
  """From now on `import tinygrad` gives whit, unless tinygrad was imported already.

  >>> install()
  >>> import tinygrad, whit
  >>> tinygrad.Tensor is whit.Tensor
  True
  """
  if "tinygrad" in sys.modules and sys.modules["tinygrad"] is not sys.modules["whit"]:
    raise RuntimeError("[compat] tinygrad is imported already; install() comes first")
  if not any(isinstance(f, _Finder) for f in sys.meta_path): sys.meta_path.insert(0, _Finder())


def main(argv: list[str]) -> None:
  """Runs a program with its arguments.

  >>> main([])
  Traceback (most recent call last):
  SystemExit: usage: python -m whit.compat PROGRAM [ARGS]
  """
  as_module = argv[:1] == ["-m"]
  argv = argv[as_module:]
  if not argv: raise SystemExit("usage: python -m whit.compat PROGRAM [ARGS]")
  if not as_module and not os.path.exists(argv[0]): raise SystemExit(f"whit.compat: there is no file {argv[0]}")
  install()
  sys.argv = argv
  if as_module:
    sys.path.insert(0, os.getcwd())
    runpy.run_module(argv[0].replace("tinygrad", "whit", 1) if argv[0].split(".")[0] == "tinygrad" else argv[0], run_name="__main__", alter_sys=True)
  else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(argv[0])))
    runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__": main(sys.argv[1:])
