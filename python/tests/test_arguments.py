"""Functions and constructors beside Tensor: they take what the reference's take (module_surface.txt), and say what is wrong with the rest."""
import importlib
import inspect
import pathlib
import re

import pytest

from test_surface import actual_parameters, parameters
from whit import Context, Tensor, nn
from whit.arguments import _KIND_OF

HERE = pathlib.Path(__file__).parent
ROWS = [r for r in (HERE / "module_surface.txt").read_text().splitlines() if not r.startswith("#")]
EXCEPTIONS = {"nn.state.fs_load": "a network device that is absent", "nn.state.fs_store": "a network device that is absent"}
ELSEWHERE = {"nn.datasets.cifar": "test_datasets.py", "nn.datasets.mnist": "test_datasets.py", "llm.gguf.gguf_load": "test_gguf.py", "helpers.fetch": "test_package.py",
             "nn.BatchNorm3d": "is BatchNorm"}
RUN_BY_CASES = "".join(p.read_text() for p in (HERE.parents[1] / "tests/conformance").glob("*_api.json")) + "".join(p.read_text() for p in HERE.glob("test_*.py"))


@pytest.mark.parametrize("row", ROWS)
def test_name_and_parameters(row):
  path, sig = re.fullmatch(r"([\w.]+)\((.*)\)", row).groups()
  module, name = path.rsplit(".", 1)
  f = getattr(importlib.import_module("whit." + module), name, None)
  if path in EXCEPTIONS:
    assert f is None, f"{path} is there: take it off the exceptions"
    return
  assert f is not None, f"{path} is missing"
  default = "Tensor" in sig and sig.replace("=Tensor", "=None") or sig
  want = [(k, n) for k, n, _ in parameters(f"def f({default}): pass")]
  if f.__module__ == "itertools": return  # Python's own
  got = actual_parameters(f)
  assert [(k, n) for k, n, _ in got][:len(want)] == want and all(d != "required" for _, _, d in got[len(want):])
  for (_, n, d), (_, _, e) in zip(got, parameters(f"def f({default}): pass")):
    assert n in ("tensor_type", "fused") or d == e, f"{n}={d!r} instead of {e!r}"
  doc = f.__doc__ or ""
  shown = ">>>" in doc and re.search(rf"\b{name}\b", doc) or re.search(rf"\b{name}\b", RUN_BY_CASES.replace("ELSEWHERE", ""))
  assert shown or path in ELSEWHERE, f"no test executes {path}"


def fitting(f) -> dict:
  """Arguments that a function takes."""
  values = {"in_channels": 2, "out_channels": 3, "kernel_size": 2, "in_features": 2, "out_features": 3, "sz": 3, "num_features": 2, "num_groups": 1, "num_channels": 2,
            "vocab_size": 4, "embed_size": 3, "dim": 3, "input_size": 2, "hidden_size": 3, "normalized_shape": 3, "params": [Tensor([1.0])], "parameters": [Tensor([1.0])],
            "lr": 0.1, "optimizer": nn.optim.SGD([Tensor([1.0])]), "T_max": 3, "milestones": [1, 2], "base_lr": 0.1, "end_lr": 0.2, "warmup_steps": 1, "decay_steps": 2,
            "max_lr": 1.0, "total_steps": 4, "max_norm": 1.0, "clip_value": 1.0, "obj": [Tensor([1.0])], "model": [Tensor([1.0])], "state_dict": {"0": Tensor([1.0])},
            "tensors": {}, "n": 1, "ggml_type": 0, "fn": "x", "t": Tensor([1], dtype="uint8")}
  return {p.name: values[p.name] for p in inspect.signature(f).parameters.values() if p.name in values}


def public():
  for module in (nn, nn.optim, nn.lr_scheduler, nn.utils, nn.state, nn.datasets):
    for name, f in vars(module).items():
      if name.startswith("_") or not callable(f) or getattr(f, "__module__", "") != module.__name__ or isinstance(f, type) and f.__name__ != name: continue
      for p in inspect.signature(f).parameters.values():
        if p.name in _KIND_OF and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD): yield pytest.param(f, p.name, id=f"{name}-{p.name}")


@pytest.mark.parametrize("f,name", list(public()))
def test_wrong_types_are_named(f, name, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for wrong in (object(), b"x", [object()], "a", {1: 2}, 1.5j, None):
    test, said = _KIND_OF[name]
    if test(wrong) or wrong is inspect.signature(f).parameters[name].default or isinstance(wrong, bytes) and said == "tensors": continue
    with pytest.raises(TypeError, match=rf"^\[{f.__name__}\] '{name}' is .*; expected {said}$"): f(**{**fitting(f), name: wrong})


@pytest.mark.parametrize("call", ["nn.Linear(2, 3)('a')", "nn.Conv2d(2, 3, 2)(None)", "nn.BatchNorm(3)(object())", "nn.Embedding(3, 2)(1.5)", "nn.LSTMCell(2, 3)([])",
                                  "nn.LayerNorm(3)(3)", "nn.GroupNorm(1, 2)(b'x')", "nn.RMSNorm(3)({})", "nn.InstanceNorm(2)(3)", "nn.LayerNorm2d(3)(3)", "nn.ConvTranspose2d(2, 3, 2)(3)"])
def test_a_layer_takes_a_tensor(call):
  name = re.match(r"nn\.(\w+)", call)[1]
  with pytest.raises(TypeError, match=rf"^\[{name}\] '(x|idx)' is .*; expected a tensor$"): eval(call)


def test_loading_says_what_the_reference_says(capsys):
  model, weights = nn.Linear(2, 3), {**nn.state.get_state_dict(nn.Linear(2, 3)), "more": Tensor([1.0])}
  with Context(DEBUG=1): nn.state.load_state_dict(model, weights)
  said = capsys.readouterr().out
  assert "WARNING: unused weights in state_dict ['more']\n" in said
  assert re.search(r"^loaded weights in +[\d.]+ ms, -?[\d.]+ GB loaded at -?[\d.]+ GB/s\n", said, re.M)
  nn.state.load_state_dict(model, weights, verbose=False)
  assert capsys.readouterr().out == ""
