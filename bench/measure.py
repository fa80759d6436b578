"""How figures are made: repeats of several contenders in turn, medians with their spread, and what they depend on."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
DATA = Path(tempfile.gettempdir()) / "dataflow-bench"  # where datasets are kept from run to run
Figures = dict[str, float]

_PACKAGES = ("torch", "numpy", "pyarrow", "obstore")


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and the least and the greatest of the repeats."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        found = sorted(values)
        return cls(statistics.median(found), found[0], found[-1])

    def __str__(self) -> str:
        values = (self.median, self.least, self.greatest)
        size = max(abs(self.median), 1e-3)
        digits = 0 if all(value == int(value) for value in values) else max(0, 2 - math.floor(math.log10(size)))
        median, least, greatest = (f"{value:,.{digits}f}" for value in values)
        return median if median == least == greatest else f"{median} ({least} .. {greatest})"


def interleave(contenders: Mapping[str, Callable[[], Figures]], rounds: int) -> dict[str, list[Figures]]:
    """Run all contenders once in each round, each round starting with another one: drift of the machine hits all."""
    names = list(contenders)
    results: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(contenders[name]())
    return results


def ratios(ours: Sequence[Figures], theirs: Sequence[Figures], figure: str) -> Spread:
    """Our figure over theirs, round by round."""
    return Spread.of(a[figure] / b[figure] for a, b in zip(ours, theirs, strict=True))


def run_python(*arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    """Run a fresh Python process from the checkout; what it printed as JSON."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def provenance(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "command": " ".join(["python -m", _module(), *sys.argv[1:]]),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+changes" if _git("status", "--porcelain", "-uno") else ""),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
        "kernel": platform.release(),
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "load_average": os.getloadavg()[0],
        "options": dict(options),
    }


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result.

    Attributes:
        name: What was measured.
        value: The figure, with its spread where it was repeated.
        unit: Of the figure.
        target: What it should be, as text; "" where it only explains.
        met: Whether it is.
    """

    name: str
    value: Spread
    unit: str
    target: str = ""
    met: bool | None = None

    @classmethod
    def at_most(cls, name: str, value: Spread, unit: str, target: float) -> Row:
        return cls(name, value, unit, f"<= {target:g}", value.median <= target)

    @classmethod
    def at_least(cls, name: str, value: Spread, unit: str, target: float) -> Row:
        return cls(name, value, unit, f">= {target:g}", value.median >= target)


def show(title: str, rows: Sequence[Row], facts: Mapping[str, Any], json_file: Path | None) -> None:
    """Print a table of figures and what they depend on; write both as JSON where that is asked for."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    for name in ("median (least .. greatest)", "unit", "target"):
        table.add_column(name, justify="right")
    for row in rows:
        mark = {None: "", True: " met", False: " MISSED"}[row.met]
        table.add_row(row.name, str(row.value), row.unit, row.target + mark)
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), style="dim", highlight=False)
    if json_file is not None:
        json_file.write_text(
            json.dumps({"provenance": facts, "figures": [asdict(row) for row in rows]}, indent=1, default=str)
        )


def _module() -> str:
    return "bench." + Path(sys.argv[0]).stem


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip() or "unknown"


def _processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor()
