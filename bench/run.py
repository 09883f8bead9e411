#!/usr/bin/env python3
"""Measures whit beside its peers, each ratio within one run.

  whit bench [ROW...] [--pairs N] [--build DIR]        the same as bench/run.py; without names all rows but those in brackets run

Peers that are compared take turns, so that a change of the machine's load meets all of them; minima and medians are printed, and the ratio
of both to the best of the peers that the row is measured against. A result is "met" when the ratio of the minima is within reach.
The rows that ran replace theirs in bench/results/latest.md, in the picture latest.png (each result as a part of its reach) and, with all
numbers, in latest.json. Peers come from .venv-bench (make bench-peers), or from the Python that BENCH_PEERS names; one that is not installed
is left out. whit's own programs come from --build (PRESET=bench ./dev build), its Python module from python/ (PRESET=python ./dev build).

rows:
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = ROOT / "bench"
VENV, PEERS = ROOT / ".venv/bin/python", pathlib.Path(os.environ.get("BENCH_PEERS", ROOT / ".venv-bench/bin/python"))

# Settings of a shell that would make a peer, or whit, another one than it is by default.
ENVIRONMENT = {k: v for k, v in os.environ.items() if not re.match(r"OPENBLAS_|MKL_|OMP_|GOMP_|KMP_|XLA_|ORT_|BEAM|CACHEDB$|NUM_CPU_THREADS$|DEV$|PYTHONDONTWRITEBYTECODE$", k)}
TURN_S = 0.06  # a turn has as many runs as fit, at least one
PEER_PROGRAMS = {"torch": "peer_torch.py", "torch.compile": "peer_torch.py compiled", "jax": "peer_jax.py", "numpy": "peer_numpy.py",
                 "openvino": "peer_onnx.py openvino", "onnxruntime": "peer_onnx.py onnxruntime", "tinygrad": "peer_tinygrad.py",
                 "whit": "serve", "whit-python": "peer_whit.py"}

SHORT_NAMES = {"torch": "PyTorch", "jax": "XLA", "openvino": "OpenVINO", "onnxruntime": "ONNX Runtime"}


class Peer:
  """A process that runs workloads on demand (peer_protocol.py)."""

  def __init__(self, name, command, env=None):
    self.name, self.process, self.peak_mb, self.cpu_s = name, None, 0, 0
    try:
      self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
                                      env={**ENVIRONMENT, **(env or {})}, stderr=None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL)
      hello = json.loads(self.process.stdout.readline() or "{}")
      self.name = f"{hello['ready']} {hello['version']}".strip()
    except (OSError, KeyError, ValueError):
      self.close()

  def run(self, work, n):
    """Seconds of n runs, or an error text."""
    if self.process is None: return "not there"
    try:
      self.process.stdin.write(f"{work} {n}\n")
      self.process.stdin.flush()
      reply = json.loads(self.process.stdout.readline() or '{"error": "died"}')
    except (OSError, ValueError) as error:
      return str(error)
    self.peak_mb, self.cpu_s = reply.get("peak_mb", 0), reply.get("cpu_s", 0)
    return reply.get("error") or reply["seconds"]

  def close(self):
    process, self.process = self.process, None
    if process is None: return
    try:
      process.stdin.close()
      process.wait(10)
    except (OSError, subprocess.TimeoutExpired):
      process.kill()
      process.wait()


class Bench:
  """What a row works with: processes of peers, which live as long as the row, and the table that it fills."""

  def __init__(self, build, pairs):
    self.build, self.pairs, self.peers, self.lines, self.numbers = build, pairs, {}, [], {}

  def __enter__(self): return self

  def __exit__(self, *_):
    for p in self.peers.values(): p.close()

  def command(self, name):
    """How a program of bench/ is called, built, in Python with whit, or in Python with peers: words, environment."""
    if not name.endswith(".py"): return [self.build / "bench" / name], {}
    is_own = name in ("peer_whit.py", "models.py")
    return [VENV if is_own else PEERS, HERE / name], {"PYTHONPATH": f"{ROOT / 'python'}:{HERE}"} if is_own else {}

  def peer(self, name, threads=2):
    if (name, threads) not in self.peers:
      n, words = str(threads), PEER_PROGRAMS[name].split()
      command, env = self.command(words[0])
      self.peers[name, threads] = Peer(name, [*command, *words[1:]], {**env, "BENCH_THREADS": n, "NUM_CPU_THREADS": n, "OPENBLAS_NUM_THREADS": n, "NPROC": n})
    return self.peers[name, threads]

  def take_turns(self, work, names, pairs=None, pause_s=0.05, threads=2):
    """name -> {"name", "seconds": [...], "peak_mb"} or {"name", "error"}. Every round runs each peer in turn, and the first run of a turn
    of several does not count. A name is a peer, or "peer:workload" when it runs another one than `work`."""
    of = {n: (self.peer(n.partition(":")[0], threads), n.partition(":")[2] or work) for n in names}
    seconds, cpu, errors = {n: [] for n in names}, {n: [] for n in names}, {}
    def run(name, n):
      got = of[name][0].run(of[name][1], n)
      if isinstance(got, str): errors[name] = got
      return [] if isinstance(got, str) else got
    slowest = max([1e-6, *(min(run(n, 2), default=0) for n in names)])  # prepares; these runs do not count
    each = int(min(max(TURN_S / slowest, 2 if slowest < 4 * TURN_S else 1), 2000))
    for _ in range(pairs or self.pairs):
      for n in names:
        if n in errors: continue
        time.sleep(pause_s)  # threads of the other peer that still spin go to sleep
        seconds[n] += run(n, each + (each > 1))[each > 1:]
        cpu[n].append(of[n][0].cpu_s)
    return {n: {"name": of[n][0].name, "error": errors[n]} if n in errors else
            {"name": of[n][0].name, "seconds": seconds[n], "cpu_s": min(cpu[n]), "peak_mb": of[n][0].peak_mb} for n in names}

  # ---- the table

  def add(self, what, value, beside="", reach="", share=None):
    """`share`: the measured part of the reach by minima, or (minima, medians); at most 1 is met, None is none."""
    shares = None if share is None else list(share) if isinstance(share, tuple) else [share]
    verdict = "" if shares is None else "met" if shares[0] <= 1 else "SHORT"
    if value.startswith(("failed", "not there")) and reach: verdict = "FAILED" if value.startswith("failed") else ""
    print(f"  {what}: {value}{'  (' + reach + ')' if reach else ''}{'  ' + beside if beside else ''}{'  ' + verdict if verdict else ''}", flush=True)
    self.lines.append({"what": what, "value": value, "beside": beside, "reach": reach, "shares": shares, "verdict": verdict})

  def add_number(self, what, value, unit, limit=None, at_least=False, beside="", reach=None):
    """A number whose reach is a number."""
    share = None if limit is None else limit / value if at_least else value / max(limit, 1e-12)
    self.add(what, f"{value:.4g} {unit}".strip(), beside, reach or (f"{'>=' if at_least else '<='} {limit:g} {unit}".strip() if limit is not None else ""), share)

  def failed(self, what, text, reach=""): self.add(what, "failed: " + " ".join(str(text).split())[-300:], reach=reach)

  def add_turns(self, what, turns, limit=None, against=None, ours=None, unit="ms"):
    """A line for each peer. Those of whit have the ratio to the best of the peers in `against` (default: all others), and their reach: `limit`
    times that; a peer that is better than those is named too. Gives the least seconds of each."""
    self.numbers[what] = {n: {**r, "seconds": r["seconds"][:200]} if "seconds" in r else r for n, r in turns.items()}
    scale = {"ms": 1e3, "us": 1e6}[unit]
    low = {n: min(t["seconds"]) for n, t in turns.items() if "seconds" in t}
    mid = {n: statistics.median(t["seconds"]) for n, t in turns.items() if "seconds" in t}
    def is_ours(n): return n in ours if ours else n.startswith("whit")
    others = [n for n in low if not is_ours(n) and not (n.startswith("whit") and not against)]
    named = [n for n in others if n in against] if against else others
    reach = f"<= {limit:g} x {' or '.join(SHORT_NAMES.get(n, n) for n in against) if against else 'the best peer'}" if limit else ""
    for n, t in turns.items():
      label = f"{what}: {t['name']}" + (f", {n.partition(':')[2]}" if ":" in n else "")
      if n not in low:
        if is_ours(n): self.failed(label, t["error"], reach or "runs")
        else: self.add(label, t["error"] if t["error"] == "not there" else "failed: " + t["error"])
        continue
      beside, share = "", None
      if is_ours(n) and others:
        def ratios(to): return low[n] / min(low[o] for o in to), mid[n] / min(mid[o] for o in to)
        best, best_named = min(others, key=low.get), min(named, key=low.get, default=None)
        if best_named: beside = "{:.2f} x (minima), {:.2f} x (medians) of {}".format(*ratios(named), turns[best_named]["name"])
        if best != best_named: beside += "{}{:.2f} x, {:.2f} x of {}".format("; " if beside else "", *ratios([best]), turns[best]["name"])
        if best_named: beside += f"; CPU time {t['cpu_s'] / turns[best_named]['cpu_s']:.2f} x" if turns[best_named].get("cpu_s") else ""
        if limit and best_named: share = tuple(r / limit for r in ratios(named))
      self.add(label, f"min {low[n] * scale:.4g} {unit}, median {mid[n] * scale:.4g} {unit} of {len(t['seconds'])}", beside, reach if is_ours(n) else "", share)
    return low

  def compare(self, what, work, names, limit=None, against=None, ours=None, unit="ms", **options):
    return self.add_turns(what, self.take_turns(work, names, **options), limit, against, ours, unit)

  # ---- programs

  def run(self, name, *args, env=None, timeout=900):
    """A program of bench/ to its end."""
    command, own = self.command(name)
    return subprocess.run([str(c) for c in (*command, *args)], cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=timeout,
                          env={**ENVIRONMENT, **own, **(env or {})})

  def program(self, name, *args, env=None, limit_s=900):
    """The JSON lines that a program of bench/ prints: what -> line; "error" -> text."""
    try: done = self.run(name, *args, env=env, timeout=limit_s)
    except (OSError, subprocess.TimeoutExpired) as error: return {"error": str(error)}
    lines = {}
    for line in done.stdout.splitlines():
      if line.startswith("{"):
        row = json.loads(line)
        lines[row["what"]] = row
    if done.returncode: lines["error"] = (done.stderr or done.stdout).strip()[-400:] or f"exit status {done.returncode}"
    return lines

  def add_program(self, name, *args, limits=None, rename=str, key=None, **options):
    """All numbers of a program as lines; `limits`: what -> (limit, at_least)."""
    lines = self.program(name, *args, **options)
    self.numbers[key or " ".join([name, *args])] = lines
    if "error" in lines: self.failed(rename(" ".join([name, *args])), lines["error"], "runs")
    for what, line in lines.items():
      if what == "error" or re.match(r"worst (?!10:)\d{2,}", what): continue  # of those the numbers have all
      self.add_number(rename(what).replace("_", " "), line["min"], line["unit"], *(limits or {}).get(what, ()))
    return lines


KERNEL_PEERS = ["torch", "torch.compile", "jax", "whit"]

# ---- the rows. The docstring of a row is its help.


def row_matmul(b):
  """matmul 512, 1024, 2048 beside XLA, OpenBLAS, PyTorch, and as a part of the multiply-add peak; a product written as a sum"""
  peaks, times = [b.program("peak")], {}
  for n in (512, 1024, 2048):
    times[n] = b.compare(f"matmul {n}", f"matmul{n}", ["numpy", "jax", "torch", "whit"], 1.0)
  b.compare("(a.reshape(N,1,N) * b.T.reshape(1,N,N)).sum(2), N = 1024", "matmul1024", ["whit", "whit:product-sum1024"], 1.05, ["whit"], ["whit:product-sum1024"])
  peaks.append(b.program("peak"))
  b.numbers["peak"] = peaks
  if "error" in peaks[0]: return b.failed("multiply-add peak", peaks[0]["error"], "runs")
  for what in peaks[0]: b.add_number(what.replace("_", " "), max(p[what]["max"] for p in peaks), "GFLOPS")
  top = max(p.get("fma_peak_2_threads", p["fma_peak_1_threads"])["max"] for p in peaks)
  for n in (1024, 2048):
    for name, seconds in times[n].items():
      share = 100 * 2e-9 * n ** 3 / seconds / top
      b.add_number(f"matmul {n}, share of the peak: {name}", share, "%", *((87, True) if name == "whit" else ()))


def row_shapes(b):
  """matmuls of m, n, k in {1, 3, 7, 17, 64, 100, 333, 1000}, all transposes, from C++ beside cblas_sgemm"""
  limits = {"ratio to cblas_sgemm, geometric mean": (0.9,), "shapes above 1.5 x": (0,)}
  b.add_program("matmul_shapes", limits=limits, rename=lambda w: w + ", one thread, CPU time")
  b.add_program("matmul_shapes", "--threads", "2", "100", "333", "1000", limits=limits, rename=lambda w: w + ", two threads")


def row_lowp(b):
  """matmuls of bfloat16 (sums in float32) and int8 (sums in int32), 512, 1024, 2048, beside PyTorch"""
  for dtype in ("bfloat16", "int8"):
    for n in (512, 1024, 2048): b.compare(f"matmul {n}, {dtype}", f"{dtype}-{n}", ["torch", "whit"], 1.0)


def row_kernels(b):
  """convolution, softmax, layer norm, an elementwise expression beside XLA, torch.compile, PyTorch"""
  b.compare("conv2d 8x64x56x56, 3x3", "conv", KERNEL_PEERS, 0.95)
  b.compare("softmax 4096x4096", "softmax", KERNEL_PEERS, 0.35, ["jax"])
  b.compare("layer norm 8192x1024", "layernorm", KERNEL_PEERS, 0.5, ["jax"])
  b.compare("tanh(ab+a)*exp(-bb)+sqrt(abs a), 4096x2048", "elementwise", KERNEL_PEERS, 0.6, ["jax"])


def row_attention(b):
  """attention of 12 heads, 1024, 64: causal, with a mask, neither, written out, with gradients"""
  for work, what in {"attention": "causal attention, 12 heads, 1024, 64", "attention-mask": "the same with an additive mask", "attention-full": "the same, not causal"}.items():
    b.compare(what, work, KERNEL_PEERS, 0.8, ["torch"])
  b.compare("causal, (q @ k.T * s + mask).softmax(-1) @ v", "attention", ["torch", "whit:attention-written-out"], 0.8, ["torch"])
  b.compare("causal, with its gradients", "attention-gradients", ["torch", "torch.compile", "whit"], 0.8, ["torch"])


def row_train(b):
  """training step of the small convolutional network, batch 512, beside torch.compile and PyTorch"""
  b.compare("training step, batch 512", "train", ["torch", "torch.compile", "whit", "whit-python"], 0.8, ["torch.compile"], pairs=max(b.pairs // 2, 1), pause_s=0.2)


def row_train_one_thread(b):
  """the same on one thread each: on a machine that does other work, threads that wait for each other count much"""
  b.compare("training step, batch 512, one thread", "train", ["torch", "whit"], pairs=max(b.pairs // 4, 1), pause_s=0.2, threads=1)


def row_networks(b):
  """inference from Python of an MLP, a small CNN, ResNet-18, batch 1 and 8, beside ONNX Runtime, OpenVINO, PyTorch"""
  limits, faster = {"mlp-1": (0.7, ["onnxruntime"]), "resnet18-1": (1.0, ["openvino"])}, []
  for name in ("mlp", "cnn", "resnet18"):
    for batch in (1, 8):
      best = b.compare(f"{name}, batch {batch}", f"{name}-{batch}", ["torch", "onnxruntime", "openvino", "whit-python"], *limits.get(f"{name}-{batch}", ()))
      if "torch" in best and "whit-python" in best: faster.append(best["torch"] / best["whit-python"])
  if len(faster) == 6: b.add_number("networks, times as fast as PyTorch eager, geometric mean of the minima", statistics.geometric_mean(faster), "x", 2, True)


def row_gpt(b):
  """one token of a GPT-2-small shape beside PyTorch; its training step beside torch.compile"""
  b.compare("GPT-2 small, one token, 127 before it", "gpt-token", ["torch", "whit-python"], 0.6)
  b.compare("GPT training step, AdamW", "gpt-step", ["torch", "torch.compile", "whit-python"], 0.85, ["torch.compile"], pairs=max(b.pairs // 3, 1))


def row_beam(b):
  """untuned kernels of all rows beside those that BEAM=2 finds (--beam-seconds for all searches; further runs go on)"""
  kernels = set()
  for name in ("serve", "peer_whit.py"):
    try: done = b.run(name, "--results", 1, env={"DEBUG": "5"})
    except (OSError, subprocess.TimeoutExpired) as error: return b.failed(f"kernels of {name}", error, "<= 1.25 x")
    if done.returncode: b.failed(f"kernels of {name}", done.stderr, "<= 1.25 x")
    is_call = False  # kernels that make inputs and weights do not count
    for line in done.stderr.splitlines():
      if re.match("(making|calling) ", line): is_call, text = line.startswith("calling"), []
      if not is_call or not re.match(r"%\w+ = [A-Z]\w* ", line): text = []
      else: text.append(line)
      if text and re.match(r"%\w+ = SINK ", line):  # a kernel is printed from its first node to its SINK
        kernels.add("\n".join(text) + "\n")
        text = []
  identity = hashlib.sha256((b.build / "bench/beam").read_bytes()).hexdigest()[:16] if (b.build / "bench/beam").exists() else ""
  database = b.build / f"bench/beam-{identity}.db"
  for old in b.build.glob("bench/beam-*.db*"):
    if not old.name.startswith(database.name): old.unlink()
  with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
    file.write("\n".join(sorted(kernels)))
    file.flush()
    b.add_program("beam", file.name, str(b.beam_seconds), key="beam", limits={"untuned to BEAM, geometric mean": (1.25,)},
                  rename=lambda w: "beam" if file.name in w else w, env={"CACHEDB": str(database)}, limit_s=b.beam_seconds + 900)


def row_bits(b):
  """the same bits of every row's results for 1, 2, 3, 4, 8 threads"""
  digests = {}  # workload -> threads -> digest
  for name in ("serve", "peer_whit.py"):
    for threads in (1, 2, 3, 4, 8):
      try: done = b.run(name, "--results", 3, env={"NUM_CPU_THREADS": str(threads)})
      except (OSError, subprocess.TimeoutExpired) as error: return b.failed(f"results of {name}", error, "equal")
      if done.returncode: b.failed(f"results of {name} on {threads} threads", done.stderr, "equal")
      for line in done.stdout.splitlines():
        row = json.loads(line)
        digests.setdefault(f"{name.partition('.')[0]} {row['what']}", {})[threads] = row["digest"]
  b.numbers["bits"] = digests
  different = [f"{w} on {t} threads" for w, of in digests.items() for t in of if of[t] != of[1]]
  b.add_number("workloads whose results were compared on 1, 2, 3, 4, 8 threads", len(digests), "")
  b.add_number("results of other bits", len(different), "", 0, beside=", ".join(different), reach="0")


def row_compile(b):
  """building, gradient, schedule, lowering without the compiler: the training step, ResNet-50, GPT-2 small"""
  runs = [b.program("compile_time") for _ in range(5)]
  b.numbers["compile"] = runs
  if "error" in runs[0]: b.failed("the training step", runs[0]["error"], "<= 60 ms")
  for what in [w for w in runs[0] if w != "error"]:
    values = [r[what]["min"] for r in runs if what in r]
    b.add_number(f"the training step: {what.replace('_', ' ')}", min(values), runs[0][what]["unit"], *((60,) if what == "all_without_compiler" else ()))
  for name, title, limit in (("resnet50", "ResNet-50, batch 64", 115), ("gpt2", "GPT-2 small, forward, backward, AdamW", 150)):
    runs = [b.program("models.py", name) for _ in range(3)]
    b.numbers[name] = runs
    if any("error" in r for r in runs):
      b.failed(title, next(r["error"] for r in runs if "error" in r), f"<= {limit} ms")
      continue
    for what in runs[0]:
      b.add_number(f"{title}: {what}", min(r[what]["min"] for r in runs), runs[0][what]["unit"], *((limit,) if what == "all without compiler" else ()))


def row_first(b):
  """from Python, after imports and weights: the first result of ResNet-18, the first training step of the GPT, cold and warm caches"""
  for name, title, cold_ms, warm_ms in (("resnet18", "ResNet-18, first result", 500, 60), ("gpt", "GPT, first training step", 3000, None)):
    with tempfile.TemporaryDirectory(prefix="whit-bench-") as folder:
      cold = [b.program("models.py", name, env={"CACHEDB": f"{folder}/{i}.db"}) for i in range(3)]
      warm = [b.program("models.py", name, env={"CACHEDB": f"{folder}/0.db"}) for _ in range(3)]
    b.numbers[name] = {"cold": cold, "warm": warm}
    errors = [r["error"] for r in cold + warm if "error" in r]
    if errors:
      b.failed(title, errors[0], f"<= {cold_ms} ms cold")
      continue
    def least(runs, what): return min(r[what]["min"] for r in runs)
    run = least(cold + warm, "later")
    b.add_number(f"{title}, cold caches", least(cold, "first"), "ms", cold_ms, beside=f"a later one {run:.4g} ms; CPU time of the first {least(cold, 'first, CPU time'):.4g} ms")
    if name == "resnet18": b.add_number("compile of ResNet-18, cold caches: the first result less a later one", least(cold, "first") - run, "ms", 470)
    b.add_number(f"{title}, warm caches", least(warm, "first"), "ms", warm_ms or run + 500, beside=f"CPU time {least(warm, 'first, CPU time'):.4g} ms")


def row_start(b):
  """from the start of a C++ process to the end of its first training step, cold and warm caches"""
  step = []
  def once(database):
    start = time.perf_counter()
    with subprocess.Popen([b.build / "bench/first_step"], cwd=ROOT, env={**ENVIRONMENT, "CACHEDB": str(database)}, stdout=subprocess.PIPE, text=True) as p:
      first = p.stdout.readline()
      seconds = time.perf_counter() - start
      rest = p.stdout.read()
    if p.returncode or not first: raise RuntimeError("first_step failed")
    step.extend(row["min"] for row in map(json.loads, rest.splitlines()) if row["what"] == "step_when_replayed")
    return seconds
  with tempfile.TemporaryDirectory(prefix="whit-bench-") as folder:
    try:
      cold, warm = [once(f"{folder}/cold{i}.db") for i in range(3)], [once(f"{folder}/cold0.db") for _ in range(5)]
    except (OSError, RuntimeError) as error:
      return b.failed("process start to first training step", error, "<= 3 s; a step + 0.3 s")
  b.numbers["start"] = {"cold": cold, "warm": warm, "step": step}
  b.add_number("process start to first training step, cold caches", min(cold), "s", 3)
  b.add_number("process start to first training step, warm caches", min(warm), "s", min(step) + 0.3, beside=f"a step takes {min(step):.2f} s")


def row_replay(b):
  """a call of a replayed graph of 3 tiny kernels, from C++ and Python; the overhead a kernel in one of 300"""
  best = b.compare("call of 3 tiny kernels", "tiny", ["torch", "whit", "whit-python"], pairs=max(b.pairs // 4, 1), unit="us")
  many = b.compare("call of 300 tiny kernels", "tiny300", ["whit"], pairs=max(b.pairs // 4, 1), unit="us")
  if "whit" in many: b.add_number("a kernel of a replayed graph, its work included", many["whit"] / 300 * 1e6, "us", 0.3)
  if "whit" in best: b.add_number("call of 3 tiny kernels from C++", best["whit"] * 1e6, "us", 3)
  if "whit" in best and "whit-python" in best: b.add_number("call from Python above C++", (best["whit-python"] - best["whit"]) * 1e6, "us", 2)


def row_adam(b):
  """a step of Adam of an MLP of 8 layers of 128, batch 32, loss read, captured and not, beside PyTorch"""
  names = ["torch", "whit-python", "whit-python:adam-not-captured"]
  turns = b.take_turns("adam", names)
  b.add_turns("Adam step of 8 layers, captured", {n: turns[n] for n in names[:2]}, 0.5, ["torch"])
  b.add_turns("Adam step of 8 layers, not captured", {n: turns[n] for n in (names[0], names[2])}, 3, ["torch"])


def row_memory(b):
  """peak of the GPT training step beside PyTorch's; time under a memory budget; what the planner takes, beside what lives and tinygrad's"""
  turns = b.take_turns("gpt-step", ["torch", "whit-python"], pairs=1)
  b.numbers["peak"] = turns
  if "error" in turns["whit-python"]: b.failed("peak memory of the GPT training step", turns["whit-python"]["error"], "<= 0.7 x PyTorch")
  else:
    here, there = turns["whit-python"]["peak_mb"], turns["torch"].get("peak_mb")
    b.add("peak memory of the GPT training step, whole process", f"{here:.0f} MB", f"{here / there:.2f} x of {there:.0f} MB" if there else "PyTorch is not there", "<= 0.7 x PyTorch",
          here / there / 0.7 if there else None)
  lines = b.program("models.py", "budget")
  b.numbers["budget"] = lines
  if "error" in lines: b.failed("GPT training step under a budget", lines["error"], "<= 1.3 x the time")
  else:
    for what, line in lines.items(): b.add_number(f"GPT training step, {what}", line["min"], line["unit"], *((1.3,) if line["unit"] == "x" else ()))
  lines, there = b.program("models.py", "plans"), b.program("peer_tinygrad.py", "--plans")
  b.numbers["plans"], b.numbers["plans of tinygrad"] = lines, there
  if "error" in lines: b.failed("what the planner takes", lines["error"], "<= 1.1 x")
  for what in [w for w in lines if w != "error" and not w.endswith((", live", ", captured", ", lasting"))]:
    arena, live = lines[what]["min"], lines[f"{what}, live"]["min"]
    b.add_number(f"planner's peak to the largest sum of live bytes, {what}", arena / live if live else 1, "x", 1.1, beside=f"{arena:.1f} MB, live {live:.1f} MB")
    captured, lasting = (lines[f"{what}, {k}"]["min"] if f"{what}, {k}" in lines else 0 for k in ("captured", "lasting"))
    beside = f"{captured or arena:.1f} MB" + (f" and {lasting:.1f} MB of transformed weights that last from call to call" if lasting else "")
    if what in there: b.add_number(f"planner's peak to tinygrad's, {what}", (captured or arena) / there[what]["min"], "x", 0.9, beside=f"{beside}; tinygrad {there[what]['min']:.1f} MB")
    else: b.add(f"planner's peak to tinygrad's, {what}", "failed: " + there.get("error", "no such line")[-200:] if PEERS.exists() else "not there", reach="<= 0.9 x")


# CPU time of a + b for tensors that no graph has yet, by module; nothing is freed in between.
ADDITIONS = """
import time, {0}
xs, b = [{0}.{1}([float(i)]){2} for i in range(4000)], {0}.{1}([2.0]){2}
best = []
for part in range(8):
  start = time.thread_time_ns()
  out = [x + b for x in xs[part * 500:part * 500 + 500]]
  best.append((time.thread_time_ns() - start) / 500)
print(min(best))
"""


def row_python(b):
  """import whit; building a + b from Python, beside PyTorch and tinygrad"""
  env = {**ENVIRONMENT, "PYTHONPATH": str(ROOT / "python")}
  def cpu_ms(code):
    import resource
    times = []
    for _ in range(max(b.pairs // 2, 1)):
      before = resource.getrusage(resource.RUSAGE_CHILDREN)
      subprocess.run([str(VENV), "-c", code], check=True, env=env)
      after = resource.getrusage(resource.RUSAGE_CHILDREN)
      times.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    return min(times)
  def addition(python, *names):
    if not pathlib.Path(python).exists(): return None
    done = subprocess.run([str(python), "-c", ADDITIONS.format(*names)], env=env, capture_output=True, text=True)
    return float(done.stdout) * 1e-3 if done.returncode == 0 else None
  try: b.add_number("import whit, CPU time of the process", cpu_ms("import whit"), "ms", 60, beside=f"Python alone {cpu_ms('pass'):.1f} ms")
  except (OSError, subprocess.CalledProcessError) as error: return b.failed("import whit", error, "<= 60 ms")
  there = {n: f"{t:.2f} us" if (t := addition(PEERS, *a)) else "not there" for n, a in
           {"torch (computes it)": ("torch", "tensor", ""), "tinygrad": ("tinygrad", "Tensor", ".realize()")}.items()}
  b.add_number("building a + b, CPU time", addition(VENV, "whit", "Tensor", ".realize()"), "us", 1.5, beside=", ".join(f"{n} {t}" for n, t in there.items()))


def row_rewrite(b):
  """nodes looked up and rewritten a second"""
  for name in ("ir_bench", "rewrite_bench"):
    try:
      done = subprocess.run([b.build / "bench" / name, "--benchmark_format=json", "--benchmark_repetitions=3"], cwd=ROOT, capture_output=True, text=True, timeout=300)
      found = {r["name"]: r for r in json.loads(done.stdout)["benchmarks"] if r.get("run_type") == "iteration"}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
      b.failed(name, error, "runs")
      continue
    b.numbers[name] = found
    for what, r in found.items():
      limit = 10 if "look" in what.lower() else 2 if "rewrite" in what.lower() else None
      if limit is None: continue
      rate = r.get("items_per_second") or r.get("per_s")
      if rate: b.add_number(f"{name}: {what}", rate / 1e6, "M/s", limit, True)
      else: b.add(f"{name}: {what}", f"{r['real_time']:.4g} {r['time_unit']}")


def row_graphs(b):
  """graphs of 100,000 nodes in depth and of 1,000,000 nodes: no overflow, linear time"""
  for mode in ("deep", "wide"): b.add_program("graphs", mode)


def row_leak(b):
  """bytes and nodes in use before and after 1,000 training steps"""
  lines = b.add_program("leak", limit_s=3600)
  for what in ("bytes", "nodes"):
    if f"{what}_before" in lines: b.add_number(f"{what} that are left", lines[f"{what}_after"]["min"] - lines[f"{what}_before"]["min"], "", 0, reach="0")


def row_tinygrad(b):
  """training step, matmul 1024, 3 tiny kernels beside tinygrad on the CPU"""
  b.compare("training step, batch 512", "train", ["tinygrad", "whit-python"], pairs=3, pause_s=0.2)
  b.compare("matmul 1024", "matmul1024", ["tinygrad", "whit"], pairs=3)
  b.compare("call of 3 tiny kernels", "tiny", ["tinygrad", "whit-python"], pairs=3, unit="us")


def row_build(b):
  """build from a clean clone, 2 jobs, no ccache"""
  folder = pathlib.Path(tempfile.mkdtemp(prefix="whit-build-"))
  try:
    subprocess.run(["git", "clone", "-q", ROOT, folder / "whit"], check=True)
    start = time.perf_counter()
    subprocess.run(["cmake", "--preset", "release", "-DWHIT_CCACHE=WHIT_CCACHE-NOTFOUND"], cwd=folder / "whit", check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "build-release", "-j", "2"], cwd=folder / "whit", check=True, stdout=subprocess.DEVNULL)
    b.add_number("build from a clean clone, 2 jobs, no ccache", (time.perf_counter() - start) / 60, "min", 8)
  except (OSError, subprocess.CalledProcessError) as error:
    b.failed("build from a clean clone", error, "<= 8 min")
  finally:
    shutil.rmtree(folder, ignore_errors=True)


ROWS = {"matmul": row_matmul, "shapes": row_shapes, "lowp": row_lowp, "kernels": row_kernels, "attention": row_attention, "train": row_train, "networks": row_networks, "gpt": row_gpt,
        "beam": row_beam, "bits": row_bits, "compile": row_compile, "first": row_first, "start": row_start, "replay": row_replay, "adam": row_adam,
        "memory": row_memory, "python": row_python, "rewrite": row_rewrite, "graphs": row_graphs, "leak": row_leak,
        "train-1": row_train_one_thread, "tinygrad": row_tinygrad, "build": row_build}
ON_DEMAND = {"train-1", "tinygrad", "build"}


def machine():
  model = "unknown"
  try:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
      if line.startswith("model name"): model = line.split(":", 1)[1].strip()
  except OSError: pass
  return f"{model}, {len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f} at the start, Linux {platform.release()}"


def write_table(results, path):
  lines = ["# The latest run of each row of bench/run.py"]
  for name, r in results.items():
    lines += ["", f"## {name}", "", f"{r['when']}; {r['seconds']:.0f} s; {r['machine']}", "", "| what | measured | beside | reach | |", "|---|---|---|---|---|"]
    lines += [f"| {x['what']} | {x['value']} | {x['beside']} | {x['reach']} | {x['verdict']} |" for x in r["lines"]]
  path.write_text("\n".join(lines) + "\n")


def main():
  rows = "\n".join(f"  {f'[{n}]' if n in ON_DEMAND else n:<12}{fn.__doc__}" for n, fn in ROWS.items())
  parser = argparse.ArgumentParser(prog="whit bench", description=__doc__ + rows, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("rows", nargs="*", metavar="ROW")
  parser.add_argument("--pairs", type=int, default=20, help="rounds in which peers take turns (20)")
  parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-bench", help="folder of the build (build-bench)")
  parser.add_argument("--results", type=pathlib.Path, default=HERE / "results", help="folder for the table and the picture (bench/results)")
  parser.add_argument("--beam-seconds", type=int, default=240, help="of all searches of the row beam (240)")
  parser.add_argument("--list", action="store_true", help="print the names of the rows")
  args = parser.parse_args()
  if args.list: return print("\n".join(ROWS))
  unknown = [r for r in args.rows if r not in ROWS]
  if unknown: parser.error(f"no row {unknown[0]}; there are {', '.join(ROWS)}")
  for option in ("pairs", "beam_seconds"):
    if getattr(args, option) < 1: parser.error(f"--{option.replace('_', '-')} {getattr(args, option)}; expected at least 1")
  args.build = args.build.resolve()
  if not (args.build / "bench/serve").exists(): print(f"{args.build}/bench/serve is not there: PRESET=bench ./dev build makes it")
  about = machine()
  print(about)
  args.results.mkdir(parents=True, exist_ok=True)
  latest = args.results / "latest.json"
  results = json.loads(latest.read_text()) if latest.exists() else {}
  results = {n: r for n, r in results.items() if n in ROWS and "lines" in r}
  for name in args.rows or [r for r in ROWS if r not in ON_DEMAND]:
    print(f"{name}:", flush=True)
    start = time.perf_counter()
    with Bench(args.build, args.pairs) as b:
      b.beam_seconds = args.beam_seconds
      ROWS[name](b)
    when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    results[name] = {"when": when, "seconds": time.perf_counter() - start, "machine": about, "lines": b.lines, "numbers": b.numbers}
    results = {n: results[n] for n in ROWS if n in results}
    latest.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in results.items()) + "\n}\n")
    write_table(results, args.results / "latest.md")
  print(f"written to {args.results}/latest.md and .json")
  try:
    drawn = subprocess.run([PEERS, HERE / "plot.py", args.results], capture_output=True, text=True)
    reason = drawn.stderr.strip().splitlines()[-1] if drawn.returncode else ""
  except OSError as error:
    reason = f"{error}; `make bench-peers` installs what draws it"
  print(f"no picture: {reason}" if reason else f"drawn in {args.results}/latest.png")


if __name__ == "__main__":
  sys.exit(main())
