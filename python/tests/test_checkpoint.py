"""A run that was stopped and resumed in a fresh process is the run that was not, bit for bit."""
import hashlib
import json
import subprocess
import sys

import pytest

from whit import Context, Tensor, TinyJit, nn


class Run:
  def __init__(self, jit: bool):
    self.l1, self.norm, self.l2 = nn.Linear(3, 8), nn.BatchNorm(8), nn.Linear(8, 1)
    model = [self.l1, self.norm, self.l2]
    self.opt = nn.optim.AdamW(nn.state.get_parameters(model), lr=0.05)
    self.plan = nn.lr_scheduler.OneCycleLR(self.opt, 0.1, total_steps=12)
    self.state = {"model": model, "opt": self.opt, "plan": self.plan}

    def step():
      self.opt.zero_grad()
      x = Tensor.randn(16, 3)
      y = self.l2(self.norm(self.l1(x)).relu().dropout(0.2))
      loss = (y - x.sum(1, keepdim=True)).square().mean().backward()
      nn.utils.clip_grad_norm_(self.opt.params, 1.0)
      return loss.realize(*self.opt.schedule_step(), *self.plan.schedule_step())

    self.step = TinyJit(step) if jit else step

  def train(self, n: int):
    with Context(TRAINING=1):
      for _ in range(n): self.step()

  def digests(self): return {k: hashlib.sha256(bytes(v.data())).hexdigest() for k, v in nn.state.get_state_dict(self.state).items()}


def resumed(fn: str, jit: bool, seed: int):
  Tensor.manual_seed(seed)
  Tensor.rand(5).realize()
  run = Run(jit)
  run.train(seed % 4)  # what is loaded must overrule this, in a captured step as well
  meta = nn.state.load_checkpoint(fn, run.state)
  run.train(10 - int(meta["step"]))
  return run.digests()


@pytest.mark.parametrize("jit", [False, True])
def test_ten_steps_are_five_and_five_more(jit, tmp_path):
  fn = str(tmp_path / "run.safetensors")
  Tensor.manual_seed(3)
  whole = Run(jit)
  whole.train(10)
  Tensor.manual_seed(3)
  first = Run(jit)
  first.train(5)
  nn.state.save_checkpoint(fn, first.state, {"step": 5})
  assert len(nn.state.safe_load(fn)) == len({id(t) for t in nn.state.get_parameters(first.state)}) + 4  # one of each, and the streams
  out = subprocess.run([sys.executable, __file__, fn, str(int(jit))], capture_output=True, text=True, check=True).stdout
  assert json.loads(out) == whole.digests()
  assert resumed(fn, jit, seed=7) == whole.digests()


def test_another_run_is_refused_and_unchanged(tmp_path):
  fn = str(tmp_path / "x")
  a = {"w": Tensor([1.0, 2.0]), "n": Tensor([3])}
  nn.state.save_checkpoint(fn, a)
  w = Tensor([7.0, 8.0])
  for other, error in (({"w": w}, KeyError), ({"w": w, "n": a["n"], "m": Tensor([1])}, KeyError), ({"w": w, "n": Tensor([3.0])}, ValueError),
                       ({"w": w, "n": Tensor([3, 4])}, ValueError)):
    with pytest.raises(error, match="load_checkpoint"): nn.state.load_checkpoint(fn, other)
  assert w.tolist() == [7.0, 8.0]
  with pytest.raises(OSError): nn.state.load_checkpoint(str(tmp_path / "none"), a)


if __name__ == "__main__": print(json.dumps(resumed(sys.argv[1], sys.argv[2] == "1", 5)))
