"""What programs add from Python: ops, passes, renderers, devices; and the examples that show it, in both languages."""
import importlib.util
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

from whit import Context, Device, GlobalCounters, Tensor, TinyJit, codegen, device, renderer
from whit.codegen import Pass
from whit.schedule import create_schedule
from whit.uop.ops import Ops, PatternMatcher, UPat, track_rewrites

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SAYS = {
  "extend_op": ["0.0, 0.25, 0.5, 1.0", "1.0, 4.0, 4.0, 1.0"],
  "extend_pass": ["kernels as it is: 2", "kernels without barriers: 1", "a division by 3.0", "kernel r_8_64 with"],
  "extend_renderer": ["[[14.0, 32.0], [32.0, 77.0]]", "[[0, 1], [2, 3]]", "must: []"],
  "extend_device": ["[43.0, 65.0]", "<Device BYTES> ran", "breaks: []"],
}
SAYS_IN_CPP = {
  "extend_op": ["0.00 0.25 0.50 1.00", "1.00 4.00 4.00 1.00"],
  "extend_pass": ["kernels as it is: 2", "kernels without barriers: 1", "divisions in its kernels: 1, after the rule: 0"],
  "extend_renderer": ["4.67 -8.00 -8.00 25.67 on PLAIN"],
  "extend_device": ["7 10 15 22 on HEAP"],
}


def output(command: list) -> str:
  done = subprocess.run([*map(str, command)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return done.stdout


@pytest.mark.parametrize("name", SAYS)
def test_example(name):
  text = output([sys.executable, f"examples/{name}.py"])
  assert [s for s in SAYS[name] if s not in text] == [], text


@pytest.mark.parametrize("name", SAYS_IN_CPP)
def test_example_in_cpp(name):
  built = [p for b in ("build-release", "build-dev") if (p := ROOT / b / "examples" / name).exists()]
  if not built: pytest.skip(f"examples/{name}.cpp is not built")
  text = output([built[0]])
  assert [s for s in SAYS_IN_CPP[name] if s not in text] == [], text


def load(name):
  spec = importlib.util.spec_from_file_location(name, ROOT / f"examples/{name}.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


x = UPat.var("x")
MORE = PatternMatcher([(x.alu(Ops.ADD, UPat.cvar("c")), lambda x, c: x + (c.arg + 1) if c.arg == 0.5 else None)])


@pytest.mark.parametrize("stage", ["tensor", "kernel", "loops"])
def test_a_pass_of_rules(stage):
  t = Tensor([1.0, 2.0]).realize()
  for _ in range(2):  # what was compiled with a pass is not used without it, and the other way round
    assert (t + 0.5).tolist() == [1.5, 2.5]
    with Pass(stage, MORE, name="more"):
      out, rewrites = track_rewrites(lambda: (t + 0.5).tolist())
      assert out == [2.5, 3.5] and any(r[0] == "more" for r in rewrites) is (stage == "tensor" or rewrites != [])
    del rewrites  # its nodes hold what was computed
  step = TinyJit(lambda t: (t + 0.5).realize())
  with Pass(stage, MORE): captured = [step(t).tolist() for _ in range(3)]
  assert captured == [[2.5, 3.5]] * 3 and step(t).tolist() == [2.5, 3.5]  # a captured graph is what it was captured as


def test_passes_may_look_and_fail():
  seen = []
  t = Tensor([1.0, 2.0]).realize()
  with Pass("kernel", lambda sink: seen.append(sink.op)): (t * 3 + 7).realize()
  assert seen == [Ops.SINK]
  with Pass("kernel", lambda sink: 1 / 0), pytest.raises(ZeroDivisionError): (t * 3 + 8).realize()
  with Pass("kernel", lambda sink: "no"), pytest.raises(TypeError, match="expected a UOp or None, got a str"): (t * 3 + 8).realize()
  with Pass("tensor", lambda sink: sink.src[0], name="half"), pytest.raises(TypeError, match="pass half"): (t * 3 + 8).realize()
  assert (t * 3 + 8).tolist() == [11.0, 14.0]
  with pytest.raises(ValueError, match="there is no stage early; there are tensor, kernel, loops"): Pass("early", lambda s: s).__enter__()
  with pytest.raises(TypeError, match="expected a PatternMatcher or a function"): Pass("tensor", 3)


def test_a_pass_runs_in_threads_that_compile():
  ts = [Tensor([float(i)]).realize() for i in range(4)]
  results = [None] * 4
  def work(i): results[i] = (ts[i] * (i + 2) + 0.5).tolist()
  with Pass("kernel", MORE), Context(PARALLEL=2):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
  assert results == [[i * (i + 2) + 1.5] for i in range(4)]


def test_a_renderer_is_checked():
  kernel = create_schedule(Tensor([1.0, 2.0]) + 1).kernels[0][0]

  class Nothing(renderer.Renderer): name = "nothing"
  with pytest.raises(NotImplementedError, match="Nothing has no 'render'"): Nothing().register().render(codegen.lower(kernel, "nothing"))
  with pytest.raises(ValueError, match="there is a renderer nothing already"): Nothing().register()

  class NoName(renderer.Renderer): pass
  with pytest.raises(ValueError, match="NoName has no name"): NoName().register()


def test_devices_from_python_keep_the_contracts_and_run_everything():
  bytes_, checked = load("extend_device"), load("extend_renderer")
  Device.register("BYTES", bytes_.BytesDevice)
  checked.CheckedC().register()
  Device.register("CHECKED", checked.CheckedDevice)
  rng = np.random.default_rng(5)
  a, b = rng.standard_normal((6, 5)).astype(np.float32), rng.standard_normal((5, 4)).astype(np.float32)
  for name in ("BYTES", "CHECKED"):
    assert device.check_device(name) == []
    x, y = Tensor(a, device=name), Tensor(b, device=name)
    np.testing.assert_allclose((x @ y).softmax().numpy(), Tensor(a).matmul(Tensor(b)).softmax().numpy(), rtol=1e-5)
    w = Tensor(b, device=name).realize()
    loss = (x @ w).square().mean()
    np.testing.assert_allclose(loss.gradient(w)[0].numpy(), (Tensor(a) @ (t := Tensor(b))).square().mean().gradient(t)[0].numpy(), rtol=1e-5)
    w.assign(w * 2).realize()
    np.testing.assert_array_equal(w.numpy(), b * 2)
    assert Device[name] is Device[name] and type(Device[name]).__module__ in ("extend_device", "extend_renderer")
  assert Tensor([1.0], device="BYTES").to("BYTES:1").to("CHECKED").to("CPU").item() == 1.0
  assert Device["BYTES:1"].count() == 2 and Device["CPU"].count() == 64
  with pytest.raises(RuntimeError, match="BYTES:?1? is registered again while BYTES"): Device.register("BYTES", bytes_.BytesDevice)
  GlobalCounters.reset()
  before = GlobalCounters.mem_used
  held = Tensor(a, device="BYTES").realize()
  assert GlobalCounters.mem_used - before >= a.nbytes
  del held


def test_a_device_that_is_wrong_says_so():
  class Upside(device.HostAllocator):
    def _offset(self, buf, size, offset): return buf
  class Lossy(device.Compiled):
    def __init__(self, name): super().__init__(name, Upside())
  Device.register("LOSSY", Lossy)
  broken = device.check_device("LOSSY")
  assert any("reads 500 bytes from 500 on" in b for b in broken) and any("a view of a view" in b for b in broken)
  assert (Tensor([1.0], device="LOSSY") + 1).tolist() == [2.0]  # computed elsewhere

  class Bare(device.Compiled):
    def __init__(self, name): super().__init__(name, device.Allocator())
  Device.register("BARE", Bare)
  with pytest.raises(NotImplementedError, match="Allocator has no '_alloc'"): Tensor([1.0], device="BARE").realize()

  class Broken(device.Compiled):
    renderers = {"LLVM": lambda arch: 1 / 0}
    def __init__(self, name): super().__init__(name, device.HostAllocator(), device.CPUProgram)
  Device.register("BROKEN", Broken)
  with pytest.raises(RuntimeError, match="no compiler for BROKEN: LLVM does not work .division by zero"): (Tensor([1.0], device="BROKEN") + 1).realize()
  with pytest.raises(TypeError, match="is no class derived from Compiled"): Device.register("ODD", int)
  with pytest.raises(ValueError, match="upper-case"): Device.register("odd", Broken)
  class Raises(device.Compiled):
    def __init__(self, name): raise OSError("no such card")
  Device.register("RAISES", Raises)
  with pytest.raises(OSError, match="no such card"): Device["RAISES"]


def test_what_is_compiled_with_a_cachekey_is_kept_on_disk(tmp_path):
  program = tmp_path / "program.py"
  program.write_text('''
from whit import Device, Tensor
from whit.device import CCompiler, Compiled, Compiler, CPUProgram, HostAllocator
class Counting(Compiler):
  cachekey, n = KEY, 0
  def compile(self, src):
    Counting.n += 1
    return CCompiler().compile(src)
class Dev(Compiled):
  renderers = {"C": Counting}
  def __init__(self, name): super().__init__(name, HostAllocator(), CPUProgram)
Device.register("COUNTED", Dev)
assert (Tensor([1.0, 2.0], device="COUNTED") * 3).tolist() == [3.0, 6.0]
print(Counting.n)
''')
  def runs(key):
    source = program.with_name(f"{key}.py")
    source.write_text(program.read_text().replace("KEY", repr(key)))
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "XDG_CACHE_HOME": str(tmp_path)}
    return [int(subprocess.run([sys.executable, source], env=env, capture_output=True, text=True, check=True).stdout) for _ in range(2)]
  assert runs("counting-1") == [1, 0] and runs(None) == [1, 1]
