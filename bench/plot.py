"""bench/results/latest.png from latest.json: each comparison's times as multiples of its fastest peer's that is not whit. Run by bench/run.py."""
import json
import pathlib
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def comparisons():
  """what -> {peer: seconds, the best of its runs}"""
  for row in json.loads((RESULTS / "latest.json").read_text()).values():
    for what, peers in row["numbers"].items():
      if not isinstance(peers, dict): continue
      best = {p["name"]: min(p["seconds"]) for p in peers.values() if isinstance(p, dict) and p.get("seconds")}
      if len(best) > 1 and any(not n.startswith("whit") for n in best): yield what, best


def main():
  found = list(comparisons())
  if not found: return "no row with peers has run yet"
  names = sorted({n for _, best in found for n in best}, key=lambda n: (not n.startswith("whit"), n))
  figure, axes = plt.subplots(figsize=(9, 1 + 0.22 * sum(len(best) + 1 for _, best in found)))
  y, ticks = 0, []
  for what, best in found:
    unit = min(s for n, s in best.items() if not n.startswith("whit"))
    ticks.append((y + (len(best) - 1) / 2, what))
    for name in [n for n in names if n in best]:
      axes.barh(y, best[name] / unit, color=f"C{names.index(name)}", label=name)
      axes.text(best[name] / unit, y, f" {best[name] * 1e3:.3g} ms", va="center", fontsize=7)
      y += 1
    y += 1
  axes.set_yticks([t for t, _ in ticks], [w for _, w in ticks], fontsize=8)
  axes.invert_yaxis()
  axes.set_xscale("log")
  axes.axvline(1, color="black", linewidth=0.8)
  axes.set_xlabel("time, in that of the fastest other peer (minima); less is better")
  handles = dict(zip(*reversed(axes.get_legend_handles_labels())))
  axes.legend(handles.values(), handles.keys(), fontsize=8, loc="lower center", bbox_to_anchor=(0.4, 1), ncols=3)
  figure.tight_layout()
  figure.savefig(RESULTS / "latest.png", dpi=120)
  return None


if __name__ == "__main__":
  sys.exit(main())
