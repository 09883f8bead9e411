#!/usr/bin/env python3
"""Measures whit beside its peers, each ratio within one run.

  bench/run.py [ROW...] [--pairs N] [--build DIR]

Rows: see ROWS below, or --list; without names all but `build` run. Two peers that are compared take turns, run by run,
so that a change of the machine's load meets both; minima and medians are printed, and the ratio of both.
The rows that ran replace theirs in bench/results/latest.md, in the picture latest.png and, with all numbers, in latest.json.
Peers come from .venv-bench (make bench-peers), or from the Python that BENCH_PEERS names; one that is not installed is left out.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = ROOT / "bench"
RESULTS = HERE / "results"
VENV, PEERS = ROOT / ".venv/bin/python", pathlib.Path(os.environ.get("BENCH_PEERS", ROOT / ".venv-bench/bin/python"))


class Peer:
  """A process that runs workloads on demand (peer_protocol.py); None as `command` is a peer that is not there."""

  def __init__(self, name, command, env=None):
    self.name, self.process, self.peak_mb = name, None, 0
    try:
      self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
                                      env={**os.environ, **(env or {})}, stderr=None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL)
      hello = json.loads(self.process.stdout.readline() or "{}")
      self.name = f"{hello['ready']} {hello['version']}".strip()
    except (OSError, KeyError, ValueError):
      self.process = None

  def run(self, work, n):
    """Seconds of n runs, or an error text."""
    if self.process is None: return "not there"
    try:
      self.process.stdin.write(f"{work} {n}\n")
      self.process.stdin.flush()
      reply = json.loads(self.process.stdout.readline() or '{"error": "died"}')
    except (OSError, ValueError) as error:
      return str(error)
    self.peak_mb = reply.get("peak_mb", 0)
    return reply.get("error") or reply["seconds"]

  def close(self):
    if self.process is not None:
      self.process.stdin.close()
      try: self.process.wait(10)
      except subprocess.TimeoutExpired: self.process.kill()


def peer(name, build, threads):
  env = {"BENCH_THREADS": str(threads), "NUM_CPU_THREADS": str(threads)}
  if name == "torch": return Peer(name, [PEERS, HERE / "peer_torch.py"], env)
  if name == "openvino": return Peer(name, [PEERS, HERE / "peer_openvino.py"], env)
  if name == "tinygrad": return Peer(name, [PEERS, HERE / "peer_tinygrad.py"])
  if name == "whit-python": return Peer(name, [VENV, HERE / "peer_whit.py"], {**env, "PYTHONPATH": f"{ROOT / 'python'}:{HERE}"})
  return Peer(name, [build / "bench/serve"], env)


def take_turns(work, names, build, pairs, each=1, pause_s=0.05, threads=2):
  """name -> {"name", "seconds": [...], "peak_mb"} or {"error": ...}. Every round runs each peer once, in turn. A name is a peer,
  or a pair of it and its own workload."""
  of = {n if isinstance(n, str) else n[0]: work if isinstance(n, str) else n[1] for n in names}  # peer -> its workload
  names = list(of)
  peers = {n: peer(n, build, threads) for n in names}
  seconds, errors = {n: [] for n in names}, {}
  for n in names:  # prepares; these runs do not count
    got = peers[n].run(of[n], 1)
    if isinstance(got, str): errors[n] = got
  for _ in range(pairs):
    for n in names:
      if n in errors: continue
      time.sleep(pause_s)  # threads of the other peer that still spin go to sleep
      got = peers[n].run(of[n], each)
      if isinstance(got, str): errors[n] = got
      else: seconds[n] += got
  out = {n: {"name": peers[n].name, "error": errors[n]} if n in errors 
         else {"name": peers[n].name, "seconds": seconds[n], "peak_mb": peers[n].peak_mb} for n in names}
  for p in peers.values(): p.close()
  return out


def program(build, name, *args, env=None, limit_s=900):
  """The JSON lines that a program prints: what -> line."""
  try:
    done = subprocess.run([build / "bench" / name, *args], cwd=ROOT, capture_output=True, text=True, timeout=limit_s, env={**os.environ, **(env or {})})
  except (OSError, subprocess.TimeoutExpired) as error:
    return {"error": {"what": "error", "text": str(error)}}
  lines = {}
  for line in done.stdout.splitlines():
    if line.startswith("{"):
      row = json.loads(line)
      lines[row["what"]] = row
  if done.returncode: lines["error"] = {"what": "error", "text": (done.stderr or done.stdout).strip()[-400:]}
  return lines


class Table:
  def __init__(self):
    self.rows, self.numbers = [], {}

  def add(self, what, reach, value, peers=""):
    print(f"  {what}: {value}  (reach {reach}){'  ' + peers if peers else ''}", flush=True)
    self.rows.append((what, reach, value, peers))

  def add_turns(self, what, reach, turns, base, scale=1e3, unit="ms"):
    """One row a peer; ratios are to `base`."""
    self.numbers[what] = {n: {**r, "seconds": r["seconds"][:100]} if "seconds" in r else r for n, r in turns.items()}
    def best(n): return min(turns[n]["seconds"]), statistics.median(turns[n]["seconds"])
    for n, t in turns.items():
      if "error" in t:
        self.add(f"{what}: {t['name']}", reach if n.startswith("whit") else "", t["error"])
        continue
      low, mid = best(n)
      text = f"min {low * scale:.4g} {unit}, median {mid * scale:.4g} {unit} of {len(t['seconds'])}"
      ratio = ""
      if n != base and base in turns and "seconds" in turns[base]:
        base_low, base_mid = best(base)
        ratio = f"{low / base_low:.2f} x (minima), {mid / base_mid:.2f} x (medians) of {turns[base]['name']}"
      self.add(f"{what}: {t['name']}", reach if n.startswith("whit") else "", text, ratio)


def errors_of(table, what, reach, lines):
  if "error" in lines: table.add(what, reach, "failed: " + lines["error"]["text"].replace("\n", " ")[-200:])


# ---- the rows

def row_train(table, build, pairs):
  turns = take_turns("train", ["torch", "whit", "whit-python"], build, max(6, pairs // 2), pause_s=0.3)
  table.add_turns("training step, batch 512", "<= 2 x PyTorch eager, stretch 1.3 x", turns, "torch")


def row_train_one_thread(table, build, pairs):
  """On a machine that does other work, threads that wait for each other count much; one thread does not wait."""
  turns = take_turns("train", ["torch", "whit"], build, max(4, pairs // 4), pause_s=0.3, threads=1)
  table.add_turns("training step, batch 512, one thread", "", turns, "torch")


def row_train_tinygrad(table, build, pairs):
  turns = take_turns("train", ["tinygrad", "whit"], build, 3, pause_s=0.3)
  table.add_turns("training step beside tinygrad", "", turns, "tinygrad")


def row_matmul(table, build, pairs):
  peaks = [program(build, "peak")]
  turns = take_turns("matmul1024", ["torch", "whit", "tinygrad"], build, pairs)
  table.add_turns("matmul 1024 f32, 2 threads", ">= 50 % of the FMA peak", turns, "torch")
  peaks.append(program(build, "peak"))
  table.numbers["peak"] = peaks
  errors_of(table, "FMA peak", "", peaks[0])
  for what in [w for w in peaks[0] if w != "error"]:
    table.add(what.replace("_", " "), "", f"{max(p[what]['max'] for p in peaks):.1f} GFLOPS")
  top = max(p.get("fma_peak_2_threads", p.get("fma_peak_1_threads", {})).get("max", 0) for p in peaks)
  for n, t in turns.items():
    if "error" in t or not top: continue
    rates = [2 * 1024 ** 3 / s * 1e-9 for s in t["seconds"]]
    table.add(f"matmul 1024, share of the peak: {t['name']}", ">= 50 %" if n.startswith("whit") else "",
              f"best {max(rates):.1f} GFLOPS = {100 * max(rates) / top:.0f} %, median {statistics.median(rates):.1f} = {100 * statistics.median(rates) / top:.0f} %")


def row_kernels(table, build, pairs):
  for work, what in {"matmul512": "matmul 512", "matmul2048": "matmul 2048", "conv": "conv2d 8x64x56x56, 3x3", "softmax": "softmax 4096x4096",
                     "attention": "causal attention, 12 heads, 1024, 64", "attention_written_out": "the same, (q @ k.T * s + mask).softmax(-1) @ v",
                     "attention_gradients": "the same with its gradients", "layernorm": "layer norm 8192x1024", "elementwise": "tanh(ab+a)*exp(-bb)+sqrt(abs a), 4096x2048"}.items():
    table.add_turns(what, "<= 1 x", take_turns(work, ["torch", "whit"], build, pairs), "torch")


def row_networks(table, build, pairs):
  """Inference from Python, to the result in NumPy's memory."""
  faster = []
  for name in ("mlp", "cnn", "resnet18"):
    for batch in (1, 8):
      turns = take_turns(f"{name}-{batch}", ["torch", "openvino", "whit-python"], build, pairs)
      table.add_turns(f"{name}, batch {batch}", "<= 1 x OpenVINO" if name == "resnet18" else "", turns, "torch")
      if all("seconds" in turns[n] for n in ("torch", "whit-python")):
        faster.append(min(turns["torch"]["seconds"]) / min(turns["whit-python"]["seconds"]))
  if faster: table.add("networks, times as fast as PyTorch eager, geometric mean of the minima", ">= 2", f"{statistics.geometric_mean(faster):.2f}")


def row_gpt(table, build, pairs):
  """The shape of GPT-2 small: a token after 127 others; a step of four layers on 2 x 128 tokens, with the peak of the whole process."""
  turns = take_turns("gpt-token", ["torch", "whit-python"], build, pairs)
  table.add_turns("GPT-2 small, one token, 127 before it", "<= 0.6 x", turns, "torch")
  turns = take_turns("gpt-step", ["torch", "whit-python"], build, max(4, pairs // 3))
  table.add_turns("GPT training step, AdamW", "<= 0.85 x torch.compile", turns, "torch")
  if all("seconds" in t for t in turns.values()):
    there, here = turns["torch"]["peak_mb"], turns["whit-python"]["peak_mb"]
    table.add("GPT training step, peak memory of the process", "<= 0.7 x", f"{here:.0f} MB", f"{here / there:.2f} x of {there:.0f} MB")


def row_gpt_compiled(table, build, pairs):
  turns = take_turns("gpt-step", [("torch", "gpt-step-compiled"), "whit-python"], build, max(4, pairs // 3))
  table.add_turns("GPT training step beside torch.compile", "<= 0.85 x", turns, "torch")


def row_shapes(table, build, pairs):
  lines = program(build, "matmul_shapes")
  table.numbers["shapes"] = lines
  reach = {"ratio to cblas_sgemm, geometric mean": "<= 0.9 x", "shapes above 1.5 x": "0"}
  errors_of(table, "matmuls of odd shapes beside cblas_sgemm, one thread", "<= 0.9 x", lines)
  for what, line in lines.items():
    if what != "error": table.add(what, reach.get(what, ""), f"{line['min']:.3g} {line['unit']}")


def row_start(table, build, pairs):
  """From spawning the process to the end of its first training step. Its data are made, not decoded."""
  folder = pathlib.Path(tempfile.mkdtemp(prefix="whit-bench-"))
  cold, warm, step = [], [], []
  def once(database):
    start = time.perf_counter()
    with subprocess.Popen([build / "bench/first_step"], cwd=ROOT, env={**os.environ, "CACHEDB": str(database)}, stdout=subprocess.PIPE, text=True) as p:
      first = p.stdout.readline()
      seconds = time.perf_counter() - start
      rest = p.stdout.read()
    if p.returncode or not first: raise RuntimeError("first_step failed")
    for line in rest.splitlines():
      row = json.loads(line)
      if row["what"] == "step_when_replayed": step.append(row["min"])
    return seconds
  try:
    for i in range(3): cold.append(once(folder / f"cold{i}.db"))
    for _ in range(5): warm.append(once(folder / "cold0.db"))
    table.numbers["start"] = {"cold": cold, "warm": warm, "step": step}
    table.add("process start to first training step, cold caches", "<= 3 s", f"min {min(cold):.2f} s, median {statistics.median(cold):.2f} s")
    table.add("process start to first training step, warm caches", "one step + 0.3 s",
              f"min {min(warm):.2f} s, median {statistics.median(warm):.2f} s; a step takes {min(step):.2f} s")
  except (OSError, RuntimeError) as error:
    table.add("process start to first training step", "<= 3 s; one step + 0.3 s", f"failed: {error}")
  finally:
    shutil.rmtree(folder, ignore_errors=True)


def row_compile(table, build, pairs):
  runs = [program(build, "compile_time") for _ in range(5)]
  table.numbers["compile"] = runs
  errors_of(table, "building + gradient + schedule + codegen", "<= 60 ms", runs[0])
  for what in [w for w in runs[0] if w != "error"]:
    values = [r[what]["min"] for r in runs if what in r]
    unit = runs[0][what]["unit"]
    table.add(what.replace("_", " "), "<= 60 ms" if what == "all_without_compiler" else "", f"min {min(values):.4g} {unit}, median {statistics.median(values):.4g} {unit}")


def google_benchmark(build, name, pattern):
  done = subprocess.run([build / "bench" / name, f"--benchmark_filter={pattern}", "--benchmark_format=json", "--benchmark_repetitions=3"],
                        cwd=ROOT, capture_output=True, text=True, timeout=300)
  return {b["name"]: b for b in json.loads(done.stdout)["benchmarks"] if b.get("run_type") == "iteration"} if done.stdout else {}


def row_rewrite(table, build, pairs):
  for name in ("ir_bench", "rewrite_bench"):
    if not (build / "bench" / name).exists(): continue
    found = google_benchmark(build, name, ".*")
    table.numbers[name] = found
    for what, b in found.items():
      if "look" not in what.lower() and "rewrite" not in what.lower(): continue
      rate = b.get("items_per_second") or b.get("per_s")
      text = f"{rate / 1e6:.2f} M/s" if rate else f"{b['real_time']:.4g} {b['time_unit']}"
      table.add(f"{name}: {what}", ">= 10 M/s" if "look" in what.lower() else ">= 2 M/s" if "rewrite" in what.lower() else "", text)


def row_replay(table, build, pairs):
  turns = take_turns("tiny", ["torch", "tinygrad", "whit", "whit-python"], build, 5, each=2000)
  table.add_turns("call of 3 tiny kernels", "<= 3 us from C++, <= 5 us from Python", turns, "torch", 1e6, "us")


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


def row_python(table, build, pairs):
  def cpu_ms(python, code):
    import resource
    times = []
    for _ in range(max(pairs, 5)):
      before = resource.getrusage(resource.RUSAGE_CHILDREN)
      subprocess.run([str(python), "-c", code], check=True, env=env)
      after = resource.getrusage(resource.RUSAGE_CHILDREN)
      times.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    return min(times)
  env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
  table.add("import whit, CPU time of the process", "<= 60 ms", f"{cpu_ms(VENV, 'import whit'):.1f} ms", f"Python alone {cpu_ms(VENV, 'pass'):.1f} ms")
  def addition(python, *names):
    done = subprocess.run([str(python), "-c", ADDITIONS.format(*names)], env=env, capture_output=True, text=True)
    return f"{float(done.stdout) * 1e-3:.2f} us" if done.returncode == 0 else "not there"
  there = addition(PEERS, "torch", "tensor", "") if PEERS.exists() else "not there"
  tinygrad = addition(PEERS, "tinygrad", "Tensor", ".realize()") if PEERS.exists() else "not there"
  table.add("building a + b, CPU time", "<= 1.5 us", addition(VENV, "whit", "Tensor", ".realize()"), f"torch (computes it) {there}, tinygrad {tinygrad}")


def row_graphs(table, build, pairs):
  for mode in ("deep", "wide"):
    lines = program(build, "graphs", mode)
    table.numbers["graphs " + mode] = lines
    for what, line in lines.items():
      if what != "error": table.add(what.replace("_", " "), "no overflow, linear" if "realize" in what else "", f"{line['min']:.4g} {line['unit']}")
    errors_of(table, f"graphs {mode}", "no overflow, linear", lines)


def row_leak(table, build, pairs):
  lines = program(build, "leak", limit_s=3600)
  table.numbers["leak"] = lines
  errors_of(table, "bytes in use after 1,000 steps", "as at the start", lines)
  for what, line in lines.items():
    if what != "error": table.add(what.replace("_", " "), "as at the start" if what == "bytes_after" else "", f"{line['min']:.0f} {line['unit']}")


def row_build(table, build, pairs):
  """A clean clone, built without ccache."""
  folder = pathlib.Path(tempfile.mkdtemp(prefix="whit-build-"))
  try:
    subprocess.run(["git", "clone", "-q", ROOT, folder / "whit"], check=True)
    start = time.perf_counter()
    subprocess.run(["cmake", "--preset", "release", "-DWHIT_CCACHE=WHIT_CCACHE-NOTFOUND"], cwd=folder / "whit", check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "build-release", "-j", "2"], cwd=folder / "whit", check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    table.numbers["build"] = seconds
    table.add("build from a clean clone, 2 jobs, no ccache", "<= 8 min", f"{seconds / 60:.1f} min")
  finally:
    shutil.rmtree(folder, ignore_errors=True)


ROWS = {"train": row_train, "train-1": row_train_one_thread, "train-tinygrad": row_train_tinygrad, "matmul": row_matmul, "kernels": row_kernels, "networks": row_networks, "gpt": row_gpt, "gpt-compiled": row_gpt_compiled,
        "shapes": row_shapes, "start": row_start, "compile": row_compile, "python": row_python,
        "rewrite": row_rewrite, "replay": row_replay, "graphs": row_graphs, "leak": row_leak, "build": row_build}


def machine():
  model = "unknown"
  try:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
      if line.startswith("model name"): model = line.split(":", 1)[1].strip()
  except OSError: pass
  return f"{model}, {len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f} at the start, Linux {platform.release()}"


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("rows", nargs="*", metavar="ROW")
  parser.add_argument("--pairs", type=int, default=20, help="rounds in which peers take turns")
  parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-bench")
  parser.add_argument("--list", action="store_true")
  args = parser.parse_args()
  if args.list: return print("\n".join(ROWS))
  unknown = [r for r in args.rows if r not in ROWS]
  if unknown: parser.error(f"no row {unknown[0]}; there are {', '.join(ROWS)}")
  if args.pairs < 1: parser.error(f"--pairs {args.pairs}; expected at least 1")
  about = machine()
  print(about)
  RESULTS.mkdir(exist_ok=True)
  latest = RESULTS / "latest.json"
  results = json.loads(latest.read_text()) if latest.exists() else {}
  for name in args.rows or [r for r in ROWS if r != "build"]:
    print(f"{name}:", flush=True)
    table = Table()
    ROWS[name](table, args.build, args.pairs)
    when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    results[name] = {"when": when, "machine": about, "rows": table.rows, "numbers": table.numbers}
    latest.write_text(json.dumps(results, indent=1) + "\n")
  lines = ["# The latest run of each row of bench/run.py"]
  for name in [r for r in ROWS if r in results]:
    r = results[name]
    lines += ["", f"## {name}", "", f"{r['when']}; {r['machine']}", "", "| what | reach | measured | beside |", "|---|---|---|---|"]
    lines += [f"| {a} | {b} | {c} | {d} |" for a, b, c, d in r["rows"]]
  (RESULTS / "latest.md").write_text("\n".join(lines) + "\n")
  print(f"written to {(RESULTS / 'latest').relative_to(ROOT)}.md and .json")
  try:
    drawn = subprocess.run([PEERS, HERE / "plot.py"], capture_output=True, text=True)
    reason = drawn.stderr.strip().splitlines()[-1] if drawn.returncode else ""
  except OSError as error:
    reason = str(error)
  print(f"no picture: {reason}" if reason else f"drawn in {(RESULTS / 'latest.png').relative_to(ROOT)}")


if __name__ == "__main__":
  sys.exit(main())
