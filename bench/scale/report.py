"""The tables of a simulation."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import process_time

from rich.console import Console
from rich.table import Table

from bench.measure import Spread, provenance
from bench.scale.inputs import Assumed
from bench.scale.scenario import Figures, Scenario
from bench.scale.sensitivity import Moved, sensitivity

_CHECKED, _CHECKED_SAMPLED, _CHECKED_SHARE, _CHECKED_SEEDS = 64, 32, 0.8, 3


def report(
    scenario: Scenario, assumed: Assumed, gpus: Sequence[int], hedge: float, sensitive: int, json_file: Path | None
) -> None:
    """Simulate, print, and write as JSON where that is asked for."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(_inputs(scenario, assumed))
    started = process_time()
    figures = [scenario.figures(number, assumed, percentile) for number in gpus for percentile in (None, hedge)]
    console.print(_figures(figures, scenario.effort.sampled))
    # A store that is a little too slow, so that there is something to get wrong.
    wanted = scenario.workload.batch_size * scenario.workload.sample_kb * 1e3 / assumed.step_ms / 1e6
    slow = replace(assumed, store_gb_s=_CHECKED * wanted * _CHECKED_SHARE)
    pairs = [
        [scenario.figures(_CHECKED, slow, None, most, seed) for most in (_CHECKED, _CHECKED_SAMPLED)]
        for seed in range(_CHECKED_SEEDS)
    ]
    everything, part = (Spread.of(100 * pair[at].utilisation for pair in pairs) for at in range(2))
    console.print(
        f"Sampling, with a store that gives {_CHECKED_SHARE:.0%} of what {_CHECKED} GPUs want, {_CHECKED_SEEDS} seeds: "
        f"AU % with all ranks simulated {everything}, with {_CHECKED_SAMPLED} of them {part}"
    )
    base, moved = sensitivity(scenario, assumed, sensitive)
    console.print(_sensitivity(base, moved))
    worst = moved[0]
    console.print(
        f"Of what is assumed, {worst.name} moves the AU of {sensitive:,} GPUs most. "
        f"Processor time of the simulations: {process_time() - started:.0f} s"
    )
    if json_file is not None:
        written = {
            "provenance": provenance({"seed": scenario.effort.seed, "hedge_percentile": hedge}),
            "measured": asdict(scenario.costs),
            "chosen": asdict(scenario.workload),
            "assumed": asdict(assumed),
            "effort": asdict(scenario.effort),
            "figures": [asdict(one) for one in figures],
            "sampling": [[asdict(one) for one in pair] for pair in pairs],
            "sensitivity": {"gpus": sensitive, "base": asdict(base), "moved": [asdict(one) for one in moved]},
        }
        json_file.write_text(json.dumps(written, indent=1, default=str))


def _inputs(scenario: Scenario, assumed: Assumed) -> Table:
    table = Table(title="What goes in", title_justify="left")
    for name in ("", "input", "value", "what it is"):
        table.add_column(name, justify="right" if name == "value" else "left")
    texts = {
        "seconds_per_gb": "processor s to receive and check a GB",
        "seconds_per_block": "processor s to ask for a block and find its columns",
        "seconds_per_sample": "processor s to decode a photograph of 500 x 375 to 224 x 224",
        "process_mb": "MB of a process that has read nothing",
    }
    for name, text in texts.items():
        table.add_row("measured", name, f"{getattr(scenario.costs, name):.4g}", text)
    for name, value in asdict(scenario.workload).items():
        table.add_row("chosen", name, f"{value:g}", "")
    for name, text in Assumed.described().items():
        table.add_row("assumed", name, f"{getattr(assumed, name):g}", text)
    return table


def _figures(figures: Sequence[Figures], sampled: int) -> Table:
    table = Table(title=f"Up to {sampled} ranks of each job are simulated one by one", title_justify="left")
    columns = (
        "GPUs",
        "hedging",
        "AU",
        "stall share",
        "own",
        "reads/byte",
        "requests/s",
        "GB/s",
        "samples/s",
        "GiB/host",
        "start s",
    )
    for name in columns:
        table.add_column(name, justify="right")
    for one in figures:
        table.add_row(
            f"{one.gpus:,}",
            "on" if one.hedged else "off",
            f"{one.utilisation:.1%}",
            f"{1 - one.utilisation:.1%}",
            f"{one.own_share:.1%}",
            f"{one.reads_per_byte:.4f}",
            f"{one.requests_per_second:,.0f}",
            f"{one.gb_per_second:,.2f}",
            f"{one.samples_per_second:,.0f}",
            f"{one.host_gib:.1f}",
            f"{one.first_batch:.2f}",
            end_section=one.hedged,
        )
    return table


def _sensitivity(base: Figures, moved: Sequence[Moved]) -> Table:
    title = f"Assumptions halved and doubled, {base.gpus:,} GPUs, no hedging: AU {base.utilisation:.1%}"
    table = Table(title=title, title_justify="left")
    for name in ("assumed", "value", "halved: AU", "samples/s", "doubled: AU", "samples/s"):
        table.add_column(name, justify="left" if name == "assumed" else "right")
    for one in moved:
        halved, doubled = (
            ("fails", "") if rate is None or share is None else (f"{share:.1%}", f"{rate:.3f} x")
            for rate, share in ((one.halved, one.halved_utilisation), (one.doubled, one.doubled_utilisation))
        )
        table.add_row(one.name, f"{one.value:g}", *halved, *doubled)
    return table
