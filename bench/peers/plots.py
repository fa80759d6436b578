"""Draws the figures that `bench.loaders` wrote: `python -m bench.peers.plots FIGURES_FILE`, one SVG for each table."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "loaders"  # the same picture for the same figures

from matplotlib import pyplot  # noqa: E402

TITLES = {"rate": "samples/s", "per_cpu": "samples for each CPU second", "fresh": "fresh, s", "resumed": "resumed, s"}
OURS, OTHERS = "#1b6ca8", "#b8c4ce"


def draw(outcome: dict[str, Any], path: Path) -> None:
    results = outcome["results"]
    figures = [figure for figure in outcome["task"]["figures"] if figure in TITLES]
    names = sorted(results, key=lambda name: statistics.median(run[figures[0]] for run in results[name]))
    if figures[0] == "fresh":
        names.reverse()
    drawing, axes = pyplot.subplots(1, 2, figsize=(10, 0.8 + 0.32 * len(names)), sharey=True, layout="constrained")
    for axis, figure in zip(axes, figures, strict=True):
        values = [[run[figure] for run in results[name]] for name in names]
        medians = [statistics.median(runs) for runs in values]
        around = [
            [middle - min(runs) for middle, runs in zip(medians, values, strict=True)],
            [max(runs) - middle for middle, runs in zip(medians, values, strict=True)],
        ]
        colours = [OURS if name.startswith("dataflow") else OTHERS for name in names]
        axis.barh(names, medians, xerr=around, color=colours, error_kw={"ecolor": "#555", "elinewidth": 1})
        axis.set_xlabel(TITLES[figure])
        axis.locator_params(axis="x", nbins=5)
        axis.xaxis.set_major_formatter("{x:,g}")
        axis.spines[["top", "right"]].set_visible(False)
    drawing.suptitle(outcome["task"]["title"], fontsize=11)
    drawing.savefig(path, metadata={"Date": None})
    pyplot.close(drawing)


if __name__ == "__main__":
    source = Path(sys.argv[1])
    for outcome in json.loads(source.read_text())["outcomes"]:
        if outcome["results"] and outcome["task"]["kind"]:
            draw(outcome, source.with_name(f"{outcome['task']['name']}.svg"))
