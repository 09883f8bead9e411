"""RESULTS/latest.png from RESULTS/latest.json (the argument): each result as a part of its reach, by minima and by medians. Run by bench/run.py."""
import json
import pathlib
import sys

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt

WIDEST = 32


def main():
  folder = pathlib.Path(sys.argv[1])
  rows = json.loads((folder / "latest.json").read_text())
  found = [(row, x) for row, r in rows.items() for x in r["lines"] if x["shares"]]
  if not found: return "no row with a reach has run yet"
  figure, axes = plt.subplots(figsize=(12, 1.5 + 0.19 * len(found)))
  for y, (_, x) in enumerate(found):
    low, mid = (min(max(share, 1 / WIDEST), WIDEST) for share in (x["shares"][0], x["shares"][-1]))
    color = "tab:green" if x["verdict"] == "met" else "tab:red"
    axes.plot([low, mid], [y, y], color=color, linewidth=1)
    axes.plot(low, y, "o", color=color, markersize=5)
    axes.plot(mid, y, "|", color=color, markersize=8)
    axes.text(1.01, y, f"{x['value'].split(',')[0]}   {x['reach']}", transform=axes.get_yaxis_transform(), va="center", fontsize=6)
  axes.set_yticks(range(len(found)), [f"{row}: {x['what']}"[:110] for row, x in found], fontsize=6)
  axes.set_ylim(len(found) - 0.5, -0.5)
  axes.set_xscale("log", base=2)
  axes.set_xlim(1 / WIDEST / 1.2, WIDEST * 1.2)
  axes.axvline(1, color="black", linewidth=0.8)
  axes.grid(axis="x", which="both", linewidth=0.3)
  axes.set_xlabel("measured, in what shall be reached (dot: minima, bar: medians); left of 1 is met; what is further away is at the edge")
  axes.set_title(f"{sum(x['verdict'] == 'met' for _, x in found)} of {len(found)} met", fontsize=9)
  figure.tight_layout()
  figure.savefig(folder / "latest.png", dpi=120)
  return None


if __name__ == "__main__":
  sys.exit(main())
