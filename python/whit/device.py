"""Devices by name. `python -m whit.device` probes each and says what works and why not."""
from __future__ import annotations

from whit import _whit
from whit.helpers import DEV, ProfileEvent, ProfilePointEvent, ProfileRangeEvent  # noqa: F401
from whit.hints import missing

CompileError = _whit.CompileError
Buffer = _whit.Buffer


class Compiled:
  """An opened device.

  >>> from whit import Device
  >>> Device["CPU"]
  <Device CPU>
  """

  def __init__(self, device: str): self.device = device
  def synchronize(self):
    """Returns when all earlier work of the device is done."""
    _whit.synchronize(self.device)
  @property
  def arch(self) -> str: return _whit.device_arch(self.device)
  def __repr__(self): return f"<Device {self.device}>"


class _Devices:
  def __init__(self): self._opened: dict[str, Compiled] = {}

  @property
  def DEFAULT(self) -> str: return _whit.default_device()

  @property
  def default(self) -> Compiled: return self[self.DEFAULT]

  @property
  def _opened_devices(self) -> set[str]: return set(_whit.opened_devices())

  def canonicalize(self, device: str | None) -> str:
    """The device's full name: upper-case family, `:0` dropped; the default for None."""
    return _whit.canonicalize_device(device) if device is not None else self.DEFAULT

  def __getitem__(self, device: str) -> Compiled:
    name = self.canonicalize(device)
    if name not in self._opened:
      _whit.open_device(name)
      self._opened[name] = Compiled(name)
    return self._opened[name]

  def get_class(self, device: str) -> type: return type(self[device])

  def get_available_devices(self):
    """The names of the devices that open."""
    return iter(_whit.available_devices())


Device = _Devices()


def canonicalize_device(device):
  """The full name of a device; of several, a tuple, or the one name where it is one.

  >>> canonicalize_device("cpu:0")
  'CPU'
  """
  if not isinstance(device, (tuple, list)): return Device.canonicalize(device)
  names = tuple(Device.canonicalize(d) for d in device)
  return names[0] if len(names) == 1 else names


def enumerate_devices_str():
  """The lines of the device table.

  >>> next(enumerate_devices_str()).split()
  ['device', 'renderer', 'result', 'detail']
  """
  return iter(_whit.device_table().splitlines())


def __getattr__(name: str): raise missing(__name__, name)


if __name__ == "__main__":
  import sys
  from whit.helpers import NO_COLOR
  print(_whit.device_table(sys.stdout.isatty() and not NO_COLOR), end="")
