"""How bench/run.py talks with a peer: the peer prepares its workloads when it is asked for the first time, then runs
them on demand, so that two peers can take turns within one run.

  <- {"ready": ..., "version": ...}      when imports are done
  -> WORK N                              run workload WORK n times
  <- {"seconds": [...], "cpu_s": ...}    each run's time; cpu_s: CPU time of all threads a run, which other work on the machine changes less
"""
import json
import resource
import sys
import time


def serve(name, version, workloads):
  """`workloads`: name -> function that prepares it and returns a function which runs it once, to the end."""
  out = sys.stdout
  sys.stdout = sys.stderr
  prepared = {}
  print(json.dumps({"ready": name, "version": version}), file=out, flush=True)
  for line in sys.stdin:
    work, n = line.split()
    try:
      reply = {}
      if work not in prepared:
        prepared[work] = workloads[work]()
        for _ in range(4): prepared[work]()
      seconds, cpu = [], time.process_time()
      for _ in range(int(n)):
        start = time.perf_counter()
        prepared[work]()
        seconds.append(time.perf_counter() - start)
      reply["seconds"], reply["cpu_s"] = seconds, (time.process_time() - cpu) / max(len(seconds), 1)
      reply["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6  # of the whole process
    except Exception as error:  # a peer that cannot do it is a row of the table too
      reply = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), file=out, flush=True)
