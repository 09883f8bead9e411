"""Data parallel training: each device has the whole model and a part of every batch.

DEVICES=2 STEPS=30 python examples/data_parallel.py            devices of one process
mpirun -np 2 python examples/data_parallel.py                  a device a process
"""
from whit import Context, Device, Tensor, TinyJit, distributed, getenv, nn


class Model:
  def __init__(self): self.l1, self.norm, self.l2 = nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 4)
  def __call__(self, x: Tensor) -> Tensor: return self.l2(self.norm(self.l1(x)).gelu())


if __name__ == "__main__":
  kind = Device.DEFAULT.split(":")[0]
  devices = tuple(f"{kind}:{i}" for i in range(getenv("DEVICES", 2)))
  if distributed.size() > 1: devices = distributed.devices()
  Tensor.manual_seed(1)
  model, truth = Model(), Tensor.randn(16, 4).realize()
  params = nn.state.get_parameters(model)
  for p in params: p.shard_(devices)  # the model is on every device
  opt = nn.optim.Adam(params, lr=0.01)

  @TinyJit
  @Context(TRAINING=1)
  def step(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = model(x).sparse_categorical_crossentropy(y).backward()  # gradients are summed over the devices
    return loss.realize(*opt.schedule_step())

  for i in range(getenv("STEPS", 30)):
    x = Tensor.randn(64, 16)
    y = (x @ truth).argmax(1)
    loss = step(x.shard(devices, axis=0).realize(), y.shard(devices, axis=0).realize())  # rows are dealt out
    if i % 10 == 0 and distributed.rank() == 0: print(f"step {i:3d}  loss {loss.item():.4f}")
  if distributed.rank() == 0: print(f"loss {loss.item():.4f} on {len(devices)} devices")
