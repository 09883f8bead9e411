"""Several processes, on one machine or more: `mpirun -np 4 python train.py`.

Every process runs the same program and has one device of the job, "MPI:0" .. "MPI:3"; tensors that are sharded over them
are spread over the processes. What is cut over the processes (or lies on one of them) is read by all; what each has whole
may be read by any one of them once it is realised, so that `if distributed.rank() == 0: print(loss.item())` works.
"""
from __future__ import annotations

import sys

from whit import _whit

__all__ = ["rank", "size", "devices", "abort"]


def rank() -> int:
  """The number of this process, 0 .. size() - 1; 0 when mpirun did not start the program.

  >>> rank()
  0
  """
  return _whit.distributed_rank()


def size() -> int:
  """How many processes run the program; 1 when mpirun did not start it.

  >>> size()
  1
  """
  return _whit.distributed_size()


def devices() -> tuple[str, ...]:
  """The device of each process, for `Tensor.shard`; the default device alone when mpirun did not start the program.

  The first call gives every process the random seed of process 0 and its share of the machine's cores. From then on an
  exception that nobody catches ends all processes of the job. errors: RuntimeError when OpenMPI is missing or does not start

  >>> len(devices()) == size()
  True
  """
  all_devices = tuple(_whit.distributed_devices())
  if size() > 1 and sys.excepthook is not _end_of_job: sys.excepthook = _end_of_job
  return all_devices


def abort(exit_code: int = 1) -> None:
  """Ends all processes of the job with this exit code, for a program that found an error in one of them.

  >>> abort(3)  # doctest: +SKIP
  """
  sys.stdout.flush()
  sys.stderr.flush()
  _whit.distributed_abort(exit_code)


def _end_of_job(kind: type[BaseException], error: BaseException, trace: object) -> None:
  """An uncaught exception in one process: the others would wait for it."""
  print(f"process {rank()} of {size()}:", file=sys.stderr)
  sys.__excepthook__(kind, error, trace)  # type: ignore[arg-type]
  abort(1)
