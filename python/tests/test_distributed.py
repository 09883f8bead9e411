"""Several processes under mpirun: the numbers of several devices in one process, to the bit; and what happens when one of them goes wrong."""
import os, pathlib, re, shutil, subprocess, sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MPIRUN = shutil.which("mpirun")
pytestmark = pytest.mark.skipif(MPIRUN is None, reason="mpirun (Debian's openmpi-bin) is not installed")

TRAINING = """
import sys
from whit import Context, Tensor, TinyJit, distributed, nn
n, folder, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
devices = distributed.devices() if distributed.size() > 1 else tuple(f"CPU:{i}" for i in range(n))
assert len(devices) == n, devices
class Model:
  def __init__(self): self.l1, self.norm, self.l2 = nn.Linear(12, 32), nn.LayerNorm(32), nn.Linear(32, 4)
  def __call__(self, x): return self.l2(self.norm(self.l1(x)).gelu())
AXES = {"l1.weight": 0, "l1.bias": 0, "l2.weight": 1} if kind == "tensor" else {}
Tensor.manual_seed(3)
model, truth = Model(), Tensor.randn(12, 4).realize()
for name, p in nn.state.get_state_dict(model).items(): p.shard_(devices, AXES.get(name))
opt = nn.optim.Adam(nn.state.get_parameters(model), lr=0.01)
@TinyJit
@Context(TRAINING=1)
def step(x, y):
  opt.zero_grad()
  loss = model(x).sparse_categorical_crossentropy(y).backward()
  return loss.realize(*opt.schedule_step())
for i in range(20):
  x = Tensor.randn(16, 12)
  y = (x @ truth).argmax(1)
  axis = None if kind == "tensor" else 0
  loss = step(x.shard(devices, axis).realize(), y.shard(devices, axis).realize())
  if distributed.rank() == 0: print(loss.item().hex())  # what all have, one may read
whole = {name: p.to("CPU").realize() for name, p in nn.state.get_state_dict(model).items()}
dropped = Tensor.rand(4 * n, 3).shard(devices, axis=0).dropout(0.5).tolist()  # cut: all read it
if distributed.rank() == 0: nn.state.safe_save(whole, f"{folder}/{kind}-{distributed.size()}.safetensors")
open(f"{folder}/read-{distributed.size()}-{distributed.rank()}", "w").write(repr(dropped))
"""


def mpirun(n, program, *args, **rest):
  return mpirun_of(n, [sys.executable, "-c", program, *map(str, args)], **rest)


def mpirun_of(n, words, prefix=(), options=(), **env):
  more = ("--allow-run-as-root", "--oversubscribe") if os.geteuid() == 0 else ("--oversubscribe",)
  command = [*prefix, MPIRUN, *more, "-np", str(n), *options, *words]
  return subprocess.run(command, env={**os.environ, "DEV": "CPU", **env}, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("n, kind, env", [(2, "data", {}), (4, "data", {}), (2, "tensor", {}), (4, "tensor", {}), (4, "data", {"RING": "2"}),
                                          (4, "data", {"ALL2ALL": "2"}), (4, "data", {"TREE": "2"})])
def test_training_equals_one_process(n, kind, env, tmp_path):
  alone = subprocess.run([sys.executable, "-c", TRAINING, str(n), tmp_path, kind], env={**os.environ, "DEV": "CPU", **env}, capture_output=True, text=True)
  assert alone.returncode == 0, alone.stderr
  many = mpirun(n, TRAINING, n, tmp_path, kind, **env)
  assert many.returncode == 0, many.stderr
  assert many.stdout == alone.stdout and alone.stdout.count("0x") == 20
  # Random numbers of a cut tensor and a host read of it are the same in every process.
  assert {(tmp_path / f"read-{n}-{i}").read_text() for i in range(n)} == {(tmp_path / "read-1-0").read_text()}
  assert (tmp_path / f"{kind}-{n}.safetensors").read_bytes() == (tmp_path / f"{kind}-1.safetensors").read_bytes()


@pytest.mark.parametrize("name", ("data_parallel.py", "tensor_parallel.py", "data_parallel"))
def test_examples(name):
  built = sorted(ROOT.glob(f"build-*/examples/{name}"), key=lambda p: p.stat().st_mtime)
  if not built and name == "data_parallel": pytest.skip("examples are not built")
  words = [sys.executable, str(ROOT / "examples" / name)] if name.endswith(".py") else [str(built[-1])]
  many = mpirun_of(2, words, STEPS="12")
  alone = subprocess.run(words, env={**os.environ, "DEV": "CPU", "STEPS": "12", "DEVICES": "2"}, capture_output=True, text=True)
  assert many.returncode == 0 and many.stdout == alone.stdout and "on 2 devices" in alone.stdout, many.stdout + many.stderr + alone.stderr


FAULTS = """
import os, signal, sys, time
from whit import Tensor, TinyJit, distributed, nn
devices, rank, fault, folder = distributed.devices(), distributed.rank(), sys.argv[1], sys.argv[2]
x, w = Tensor.arange(8).float().shard(devices, axis=0).realize(), Tensor([2.0]).shard(devices).realize()
if fault == "one has another program":
  (x * w).sum().realize() if rank else (x * w).reshape(2, 4).sum(0).realize()
if fault == "one computes another thing of the same size": print((x * w).max().item() if rank else (x * w).sum().item())
if fault == "one captures another step":
  step = TinyJit(lambda t: (t * w).max().realize() if rank > 1 else (t * w).sum().realize())
  for i in range(4): print(step(x).item())
if fault == "one reads what is cut": (x * w).tolist() if rank == 0 else time.sleep(60)
if fault == "one ends early" and rank == 1: sys.exit(0)
if fault == "one does less" and rank == 1: devices = ()
if fault == "memory of another":
  t = Tensor([float(rank)], device="MPI:1").realize()
  try: own = repr(t.tolist())
  except RuntimeError as e: own = str(e)
  open(f"{folder}/{rank}", "w").write(own + repr(t.to("CPU").tolist()))
for i in range(50 if devices else 0):
  w.assign(w + 1).realize()
  total = (x * w).sum().realize()
  if i == 3 and rank == 0: nn.state.safe_save({"w": Tensor([w.item()])}, folder + "/checkpoint.safetensors")
  if i == 5 and rank == 1 and fault == "one is killed": os.kill(os.getpid(), signal.SIGKILL)
  if i == 5 and rank == 1 and fault == "one raises": raise ValueError("the disk of this one is full")
"""


SAME_SIZE = r"process \d waits for message (\d+) of 4 bytes from process \d for call (\d+) of schedule (\w{8}), which sent message \1 of 4 bytes for call \d+ of schedule (?!\3)\w{8}; "


@pytest.mark.parametrize("n, fault", [(2, "one computes another thing of the same size"), (4, "one computes another thing of the same size"), (4, "one captures another step")])
def test_messages_of_one_size_are_told_apart(n, fault, tmp_path):
  done = mpirun(n, FAULTS, fault, tmp_path, MPI_TIMEOUT="5")
  assert done.returncode != 0 and re.search(SAME_SIZE, done.stderr), done.stdout + done.stderr


@pytest.mark.parametrize("fault, text", [
  ("one has another program", "every process must run the same program"), ("one reads what is cut", "has waited 2 s (MPI_TIMEOUT) for message"),
  ("one ends early", "waits for message 0 of 4 bytes from process 1, which has ended"), ("one does less", "which has ended"),
  ("one is killed", "exited on signal 9"), ("one raises", "process 1 of 2:\nTraceback")])
def test_a_fault_of_one_ends_all(fault, text, tmp_path):
  done = mpirun(2, FAULTS, fault, tmp_path, MPI_TIMEOUT="2")
  assert done.returncode != 0 and text in done.stderr, done.stderr
  if fault in ("one is killed", "one raises"):
    from whit import nn
    assert nn.state.safe_load(str(tmp_path / "checkpoint.safetensors"))["w"].tolist() == [6.0]


def test_memory_of_another_process(tmp_path):
  done = mpirun(2, FAULTS, "memory of another", tmp_path)
  assert done.returncode == 0, done.stderr
  assert (tmp_path / "1").read_text() == "[1.0][1.0]"
  assert (tmp_path / "0").read_text() == "[copyout] MPI:1 is process 1 of this job, and this is process 0; copy the tensor to CPU in all of them[1.0]"


def test_the_seed_is_that_of_the_first(tmp_path):
  program = """
import os, sys
from whit import Tensor, distributed
Tensor.manual_seed(int(os.environ["OMPI_COMM_WORLD_RANK"]) + 5)
distributed.devices()
open(f"{sys.argv[1]}/{distributed.rank()}", "w").write(repr(Tensor.rand(2).tolist()))
"""
  done = mpirun(3, program, tmp_path)
  assert done.returncode == 0, done.stderr
  from whit import Tensor
  Tensor.manual_seed(5)
  assert [(tmp_path / str(i)).read_text() for i in range(3)] == [repr(Tensor.rand(2).tolist())] * 3


def test_without_mpirun():
  from whit import Device, distributed
  assert (distributed.rank(), distributed.size(), distributed.devices()) == (0, 1, (Device.DEFAULT,))


@pytest.fixture
def two_machines(tmp_path):
  """Two network namespaces with a wire between them; gives what starts mpirun in the first one, and its agent for the second."""
  if os.geteuid() != 0 or not shutil.which("ip"): pytest.skip("network namespaces need root and iproute2")
  a, b = f"whit{os.getpid()}a", f"whit{os.getpid()}b"
  def ip(*words): return subprocess.run(["ip", *words], capture_output=True, text=True)
  try:
    made = [ip("netns", "add", a), ip("netns", "add", b), ip("link", "add", "wire0", "netns", a, "type", "veth", "peer", "name", "wire1", "netns", b)]
    if any(m.returncode for m in made): pytest.skip("no network namespaces here: " + " ".join(m.stderr for m in made))
    for name, wire, address in ((a, "wire0", "10.77.0.1/24"), (b, "wire1", "10.77.0.2/24")):
      for words in (("addr", "add", address, "dev", wire), ("link", "set", "lo", "up"), ("link", "set", wire, "up")):
        done = ip("-n", name, *words)
        assert done.returncode == 0, done.stderr
    agent = tmp_path / "agent.sh"
    agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {b} unshare --uts sh -c "hostname second; $*"\n')
    agent.chmod(0o755)
    yield ("ip", "netns", "exec", a, "unshare", "--uts"), agent, lambda: ip("-n", b, "-s", "link", "show", "wire1").stdout
  finally:
    for name in (a, b): ip("netns", "del", name)


def test_over_a_network(two_machines, tmp_path):
  prefix, agent, traffic = two_machines
  net = "10.77.0.0/24"
  options = ("-H", "10.77.0.1:2,10.77.0.2:2", "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", net,
             "--mca", "oob_tcp_if_include", net, "-x", "PYTHONPATH", "-x", "DEV", "-x", "CACHEDB")
  before = traffic()
  many = mpirun(4, TRAINING, 4, tmp_path, "data", prefix=prefix, options=tuple(map(str, options)), CACHEDB=str(tmp_path / "cache.db"))
  assert many.returncode == 0, many.stderr
  alone = subprocess.run([sys.executable, "-c", TRAINING, "4", tmp_path, "data"], env={**os.environ, "DEV": "CPU"}, capture_output=True, text=True)
  assert many.stdout == alone.stdout and alone.stdout.count("0x") == 20
  assert traffic() != before
