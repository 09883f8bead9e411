"""Modules and names that programs import, and programs written for tinygrad."""
import importlib
import os
import pathlib
import pickle
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# What example programs of the reference import, by module.
NAMES = {
  "whit": "Tensor dtypes nn Device TinyJit GlobalCounters Context Variable UOp getenv function fetch",
  "whit.device": "Device Buffer Compiled CompileError canonicalize_device enumerate_devices_str",
  "whit.dtype": """dtypes DType DTypeLike _from_torch_dtype _to_torch_dtype _to_np_dtype _from_np_dtype truncate float_to_fp16 float_to_bf16 float_to_fp8
    fp8_to_float least_upper_dtype least_upper_float DTYPES_DICT INVERSE_DTYPES_DICT to_dtype strong_dtype weak_dtype can_lossless_cast sum_acc_dtype
    Invalid InvalidType AddrSpace ConstFloat bitcast storage_fmt_for_dtype to_storage_scalar from_storage_scalar""",
  "whit.engine.jit": "TinyJit JitError",
  "whit.engine.realize": "run_linear compile_linear get_runtime estimate_uop",
  "whit.helpers": """fetch getenv Context colored trange DEBUG Timing get_child tqdm profile_marker Profiling prod TRAINING GlobalCounters DEV flatten BEAM
    round_up partition WINO JIT OSX WIN CI diskcache to_mv temp dedup to_function_name FUSE_OPTIM diskcache_clear argfix NUM_CPU_THREADS argsort all_same
    mv_address flat_mv from_mv ansistrip ContextVar cpu_profile cpu_events unwrap get_single_element ceildiv cdiv cmod ProfileRangeEvent
    ProfilePointEvent ProfileEvent TracingKey disable_gc polyN diskcache_get diskcache_put db_connection VERSION time_to_str TC_SELECT TC_OPT
    colorize_float word_wrap count merge_dicts strip_parens fully_flatten getbits get_shape system T Target EMULATED_DTYPES VIZ""",
  "whit.nn": "Conv2d Linear BatchNorm BatchNorm2d optim Embedding LayerNorm GroupNorm state LayerNorm2d RMSNorm InstanceNorm ConvTranspose2d LSTMCell",
  "whit.nn.datasets": "mnist",
  "whit.nn.optim": "SGD Optimizer Adam OptimizerGroup LAMB LARS AdamW",
  "whit.nn.state": "load_state_dict torch_load get_parameters get_state_dict safe_load safe_save safe_load_metadata TensorIO",
  "whit.nn.onnx": "OnnxRunner", "whit.llm.gguf": "gguf_load",
  "whit.tensor": "Tensor dtypes _to_np_dtype cast",
  "whit.uop.ops": """UOp Ops GroupOp UPat PatternMatcher graph_rewrite KernelInfo AxisType resolve sym_infer python_alu exec_alu buffers Variable
    BottomUpGate _broadcast_shape ssimplify smax smin sint identity_element""",
  "whit.uop.symbolic": "sym symbolic symbolic_simple",
  "whit.uop.upat": "UPat PatternMatcher",
  "whit.uop": "Ops GroupOp",
  "whit.schedule": "create_schedule",
  "whit.schedule.memory": "memory_plan",
  "whit.codegen": "to_program full_rewrite_to_sink",
  "whit.renderer": "Renderer Estimates",
}


@pytest.mark.parametrize("module", NAMES)
def test_names(module):
  m = importlib.import_module(module)
  assert [n for n in NAMES[module].split() if not hasattr(m, n) and importlib.util.find_spec(f"{module}.{n}") is None] == []


def test_modules_of_the_package_without_an_import_of_their_own():
  code = "import sys, whit; assert 'whit.nn' not in sys.modules; print(whit.nn.Linear(2, 3).weight.shape, whit.nn.optim.SGD.__name__, whit.distributed.__name__, 'llm' in dir(whit))"
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
  assert done.stdout == "(3, 2) SGD whit.distributed True\n", done.stderr


def test_what_is_not_there_says_what_to_do():
  from whit import helpers
  with pytest.raises(ImportError, match="CompiledRunner is not there: `whit.engine.realize.get_runtime"): exec("from whit.engine.realize import CompiledRunner")
  with pytest.raises(ImportError, match="get_kernel is not there: `whit.codegen.optimize"): exec("from whit.engine.realize import get_kernel")
  with pytest.raises(ImportError, match="memory_planner is not there: .*memory_plan"): exec("from whit.schedule.memory import memory_planner")
  with pytest.raises(ModuleNotFoundError, match="'whit.nn.torch': whit is no PyTorch backend; .*dlpack"): importlib.import_module("whit.nn.torch")
  with pytest.raises(ModuleNotFoundError, match="'whit.lazy': `Tensor.uop` is the graph"): importlib.import_module("whit.lazy")
  with pytest.raises(ModuleNotFoundError, match="No module named 'whit.no_such'"): importlib.import_module("whit.no_such")
  with pytest.raises(ImportError, match="whit.viz is not there: .*track_rewrites"): exec("from whit import viz")
  from whit import nn
  with pytest.raises(AttributeError, match=r"whit.nn.Sequential is not there: `x.sequential"): nn.Sequential
  with pytest.raises(ImportError, match=r"whit.nn.ReLU is not there: `x.relu\(\)`, in a list of layers `Tensor.relu`"): exec("from whit.nn import ReLU")
  with pytest.raises(AttributeError, match="whit.helpers.no_such is not there"): helpers.no_such
  assert not hasattr(helpers, "no_such") and getattr(helpers, "no_such", 5) == 5


def run_compat(tmp_path, source, *args):
  program = tmp_path / "program.py"
  program.write_text(source)
  env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
  return subprocess.run([sys.executable, "-m", "whit.compat", program, *args], env=env, capture_output=True, text=True)


PROGRAM = '''
import sys, pickle
import tinygrad, tinygrad.nn as nn
from tinygrad import Tensor, TinyJit, GlobalCounters, Context, Device, dtypes, getenv
from tinygrad.nn.optim import Adam
from tinygrad.nn.state import get_parameters, get_state_dict
from tinygrad.helpers import Timing, trange, colored, prod
from tinygrad.uop.ops import UOp, Ops, PatternMatcher, UPat, graph_rewrite

class Net:
  def __init__(self): self.l1, self.l2 = nn.Linear(4, 8), nn.Linear(8, 2)
  def __call__(self, x): return self.l2(self.l1(x).relu())

Tensor.manual_seed(3)
net = Net()
opt = Adam(get_parameters(net), lr=0.05)
x, y = Tensor.rand(32, 4).realize(), Tensor.randint(32, high=2).realize()

@TinyJit
def step():
  with Context(TRAINING=1):
    opt.zero_grad()
    loss = net(x).sparse_categorical_crossentropy(y).backward()
    opt.step()
    return loss

first = step().item()
with Timing("time ", enabled=False):
  for _ in trange(40, disable=True): last = step()
assert last.item() < first, (last.item(), first)
assert GlobalCounters.kernel_count > 0 and sorted(get_state_dict(net)) == ["l1.bias", "l1.weight", "l2.bias", "l2.weight"]
assert pickle.loads(pickle.dumps(dtypes.float32)) is dtypes.float32 and __name__ == "__main__"
try: from tinygrad.lazy import LazyBuffer
except ImportError as e: print(e)
print(sys.argv[1:], tinygrad.Tensor.__module__, Device.DEFAULT)
'''


def test_a_program_for_tinygrad_runs_unchanged(tmp_path):
  done = run_compat(tmp_path, PROGRAM, "--epochs", "3")
  assert done.returncode == 0, done.stderr
  lines = done.stdout.splitlines()
  assert lines[0] == "No module named 'tinygrad.lazy': `Tensor.uop` is the graph" and lines[1].startswith("['--epochs', '3'] whit")


def test_an_error_of_the_program_is_its_own(tmp_path):
  done = run_compat(tmp_path, "import tinygrad\nimport module_of_nobody\n")
  assert done.returncode == 1 and "No module named 'module_of_nobody'" in done.stderr
  done = run_compat(tmp_path, "import sys\nsys.exit(7)\n")
  assert done.returncode == 7


def test_helpers(tmp_path, monkeypatch):
  from whit import helpers as h
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  h.db_connection.cache_clear()
  calls = []

  @h.diskcache
  def slow(x):
    calls.append(x)
    return x * 2
  assert [slow(4), slow(4), slow(5)] == [8, 8, 10] and calls == [4, 5]
  h.diskcache_clear()
  assert slow(4) == 8 and calls == [4, 5, 4]
  h.db_connection.cache_clear()
  with pytest.raises(ValueError, match="inhomogeneous"): h.get_shape([[1], [1, 2]])
  with pytest.raises(RuntimeError, match="exit status 3"): h.system("exit 3")
  with pytest.raises(TimeoutError): h.wait_cond(lambda: False, timeout_ms=1)
  before = len(h.cpu_events)
  with h.Context(PROFILE=1):
    with h.cpu_profile("block"): h.profile_marker("here")
  assert [e.name for e in h.cpu_events[before:]] == ["marker", "block"]
  del h.cpu_events[before:]
  h._whit.clear_timeline()
  assert pickle.loads(pickle.dumps(h.count(5))).n == 5


def test_dtype_numbers():
  from whit.dtype import bitcast, dtypes, float_to_fp8, fp8_to_float, from_storage_scalar, to_storage_scalar, truncate
  assert truncate[dtypes.uint8](300) == 44 and truncate[dtypes.int8](200) == -56 and truncate[dtypes.float16](1e6) == float("inf")
  assert [fp8_to_float(float_to_fp8(1e6, d), d) for d in (dtypes.fp8e4m3, dtypes.fp8e5m2)] == [448, 57344]
  assert all(fp8_to_float(float_to_fp8(v, d), d) == v for d in dtypes.fp8s for v in (0.5, -1.5, 2.0))
  assert bitcast(bitcast(-1, dtypes.int32, dtypes.uint32), dtypes.uint32, dtypes.int32) == -1
  assert from_storage_scalar(to_storage_scalar(3.5, dtypes.bfloat16), dtypes.bfloat16) == 3.5
  with pytest.raises(ValueError, match="has 4 bytes"): bitcast(1, dtypes.int32, dtypes.int8)
  with pytest.raises(ValueError, match="no 8-bit float"): float_to_fp8(1.0, dtypes.float32)


def test_import_loads_little():
  # What `import whit` takes is these modules' time: they come when something needs them.
  slow = "numpy typing re pathlib tempfile shutil inspect dataclasses warnings sqlite3 urllib.request hashlib".split()
  program = f"import sys; before = set(sys.modules); import whit; print(sorted((set(sys.modules) - before) & set({slow})))"
  done = subprocess.run([sys.executable, "-S", "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True)
  assert done.stdout.strip() in ("[]", "['warnings']"), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["codegen", "device", "dtype", "engine.jit", "engine.realize", "function", "helpers", "llm.gguf", "nn", "nn.datasets", "nn.onnx", "nn.optim",
                                  "nn.state", "renderer", "renderer.cstyle", "schedule", "schedule.memory", "tensor", "uop", "uop.ops", "uop.symbolic", "uop.upat"])
def test_a_name_that_is_not_there_is_named(name):
  module = importlib.import_module(f"whit.{name}")
  with pytest.raises(AttributeError, match=rf"^whit\.{name}\.no_such_name is not there"): module.no_such_name
  with pytest.raises(ImportError, match=rf"^whit\.{name}\.no_such_name is not there"): exec(f"from whit.{name} import no_such_name")


def test_parts_of_tinygrad_that_are_not_here_say_what_is():
  from whit.hints import _HINTS, _MODULES
  for module, names in _HINTS.items():
    for name in names:
      if name != "*": assert not hasattr(importlib.import_module(module), name), f"{module}.{name} is there: its hint can go"
  for module in _MODULES:
    with pytest.raises(ModuleNotFoundError, match="No module named"): importlib.import_module(f"whit.{module}.part" if module == "llm" else f"whit.{module}")
