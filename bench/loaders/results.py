"""The page of results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.loaders.tasks import FIGURES, LESS_IS_BETTER, Task
from bench.loaders.why import why
from bench.measure import Figures, Spread, ratios

HEAD = """# Loaders side by side

Written by the command below. Every loader did the same work in the same run, as its own documents recommend for
speed; each is a file of its own in `bench/peers`. Before its time is taken, a loader reads pictures that tell what was
done to them: each sample has to come exactly once and shuffled, its window has to be random, of the agreed sizes and
shapes, resized with antialiasing, and mirrored half the time. What fails that, or is not installed, is named and left
out.

To run it again: `make bench PHOTOS=FOLDER`, with a folder of some hundred JPEG files, e.g. a checkout of
github.com/EliSchwartz/imagenet-sample-images; `QUICK=1` for a first look. `make bench-peers` installs the others;
nginx and haproxy are Debian packages.

How to read it:

- Figures are medians of runs that take turns, with the least and the greatest. Each run is a process of its own.
- **samples/s** is measured over some seconds after the first batches, by the clock; on a machine that does other work
  as well, **samples/CPU s** is the better figure: samples for each second of processor time of the whole process tree.
- **MB** is the greatest memory of the tree that is no file's, anonymous and shared; **first batch** counts from the
  start of the process.
- **x** is how many times better ours is in the figure before it: the median of the ratios of each round. Below 1 ours
  is worse; what is then known of the reason is below the table.
- A dataset this small would have blocks of 64 to 256 KiB; ours are written with blocks of 2 MiB, as a dataset of 8 GiB
  and more has them. The others have shards of 64 MiB, as is their default.
- Figures of other machines differ; ratios differ less.
"""


@dataclass
class Outcome:
    """Figures of a task, and who did not take part."""

    task: Task
    results: dict[str, list[Figures]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def write_page(
    path: Path, outcomes: Sequence[Outcome], ours: str, versions: Mapping[str, str], facts: Mapping[str, Any]
) -> None:
    """Write the page, and its figures as JSON beside it."""
    parts = [HEAD, "\n".join(f"- {name}: {value}" for name, value in facts.items())]
    parts += [_section(outcome, ours, versions) for outcome in outcomes]
    path.write_text("\n\n".join(part.strip() for part in parts) + "\n")
    saved = {"provenance": facts, "versions": versions, "outcomes": [asdict(outcome) for outcome in outcomes]}
    figures_file(path).write_text(json.dumps(saved, indent=1, default=str) + "\n")


def rewrite_page(path: Path, ours: str) -> None:
    """Write the page again from the figures beside it."""
    saved = json.loads(figures_file(path).read_text())
    outcomes = [
        Outcome(
            Task(**{**outcome["task"], "figures": tuple(outcome["task"]["figures"])}),
            outcome["results"],
            outcome["left_out"],
        )
        for outcome in saved["outcomes"]
    ]
    write_page(path, outcomes, ours, saved["versions"], saved["provenance"])


def figures_file(page: Path) -> Path:
    return page.with_name("results") / "loaders.json"


def _section(outcome: Outcome, ours: str, versions: Mapping[str, str]) -> str:
    task, results = outcome.task, outcome.results
    lines = [f"## {task.title}", "", task.text, ""]
    mine = next((runs for name, runs in results.items() if name.startswith(ours)), None)
    if results:
        titles = [text for figure in task.figures for text in (FIGURES[figure], "x")]
        lines += [f"| loader | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    lost: dict[tuple[str, str], list[str]] = {}
    for name, runs in _best_first(outcome):
        cells = []
        for figure in task.figures:
            cells += [str(Spread.of(run[figure] for run in runs)), ""]
            if mine is not None and runs is not mine and not name.startswith(ours):
                pair = (runs, mine) if figure in LESS_IS_BETTER else (mine, runs)
                ratio = ratios(*pair, figure).median
                cells[-1] = f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"
                if ratio < 1:
                    lost.setdefault((name, why(task.name, name, figure)), []).append(FIGURES[figure])
        version = f" {versions[name]}" if versions.get(name) else ""
        lines.append(f"| {f'**{name}**' if runs is mine else name}{version} | {' | '.join(cells)} |")
    if results and task.kind:
        lines += ["", f"![{task.title}](results/{task.name}.svg)"]
    if lost:
        lines += ["", "Where ours is worse:", "", "| than | in | why |", "|---|---|---|"]
        for (figures, reason), names in _alike(lost).items():
            lines.append(f"| {'; '.join(names)} | {', '.join(figures)} | {reason} |")
    if outcome.left_out:
        lines += ["", "Left out:", "", *(f"- {name}: {reason}" for name, reason in outcome.left_out.items())]
    return "\n".join(lines)


def _alike(lost: Mapping[tuple[str, str], Sequence[str]]) -> dict[tuple[tuple[str, ...], str], list[str]]:
    """Names of those that are better in the same figures for the same reason."""
    names: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (name, reason), figures in lost.items():
        names.setdefault((tuple(figures), reason), []).append(name)
    return names


def _best_first(outcome: Outcome) -> list[tuple[str, list[Figures]]]:
    figure = outcome.task.figures[0]
    sign = 1 if figure in LESS_IS_BETTER else -1
    return sorted(outcome.results.items(), key=lambda item: sign * Spread.of(run[figure] for run in item[1]).median)
