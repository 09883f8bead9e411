"""The texts of errors, exactly: operation, offender with its numbers, expectation. tests/error/python.txt holds an expression and, below it, its error.

WHIT_BLESS=1 rewrites the errors.
"""
import functools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from whit import Context, Tensor, nn

GOLDEN = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/error/python.txt"


def error_of(expression: str) -> str:
  try: eval(expression, {"Context": Context, "Tensor": Tensor, "nn": nn})
  except Exception as e: return f"  {type(e).__name__}: {e}"
  return "  no error"


if os.environ.get("WHIT_BLESS"):
  GOLDEN.write_text("".join(f"{e}\n{error_of(e)}\n" for e in GOLDEN.read_text().splitlines()[::2]))
LINES = GOLDEN.read_text().splitlines()
CASES = list(zip(LINES[::2], LINES[1::2]))


@functools.cache
def errors_of_all() -> dict:
  # In a process of their own: some texts list devices, and other tests add some.
  env = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).resolve().parent.parent), "WHIT_BLESS": ""}
  return json.loads(subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


@pytest.mark.parametrize("expression,expected", CASES, ids=[c[0] for c in CASES])
def test_text(expression, expected): assert errors_of_all()[expression] == expected


if __name__ == "__main__": print(json.dumps({e: error_of(e) for e, _ in CASES}))
