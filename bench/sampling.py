"""The order of 10^12 samples, and what importing costs: `python -m bench.sampling`.

Everything runs in fresh processes: memory and imports are those of one process that does nothing else.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Annotated

import typer

from bench.measure import Row, Spread, interleave, provenance, run_python, show

SHARDS = 10**6
BLOCKS = 10**9
ROWS = 1000
LANES = 1024
BULK = 20_000_000

IMPORTS = """
import json, time
start = time.perf_counter()
import torch
torch_at = time.perf_counter()
{statement}
print(json.dumps({{"torch": torch_at - start, "added": time.perf_counter() - torch_at}}))
"""


def trillion() -> dict[str, float]:
    """Build the order of 10^9 blocks, of which the last of each of 10^6 shards is smaller; seek; count in bulk."""
    import numpy as np

    from dataflow.sampling.layout import BlockLayout
    from dataflow.sampling.stream import Stream, StreamRules

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    generator = np.random.default_rng(0)
    last_of_shard = np.arange(1, SHARDS + 1) * (BLOCKS // SHARDS) - 1
    last_rows = generator.integers(1, ROWS, SHARDS)
    slots = generator.integers(0, (BLOCKS - SHARDS) * ROWS, 200).tolist()
    start = perf_counter()
    layout = BlockLayout(BLOCKS, ROWS, last_of_shard, last_rows)
    stream = Stream(StreamRules(layout, 0, "", LANES, True), 7)
    located = stream.locate(np.array(slots[:1]))
    row = stream.row_permutation(7, int(located.block[0]))[located.offset[0]]
    built = perf_counter()
    for slot in slots:
        located = stream.locate(np.array([slot]))
        row = stream.row_permutation(7, int(located.block[0]))[located.offset[0]]
    sought = perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    order = stream.order(7)
    first = order.position(int(located.block[0]), int(row))
    return {
        "samples": layout.num_rows,
        "build": built - start,
        "seek": (sought - built) / len(slots) * 1e6,
        "peak_mb": peak / 1e3,
        "import_mb": before / 1e3,
        "epoch_rate": _rate(lambda: order.samples(first, first + BULK)),
        "stream_rate": _rate(lambda: stream.samples(slots[0], BULK)),
    }


def _rate(bulk: Callable[[], object]) -> float:
    """Million positions a second of processor time, of one thread."""
    bulk()
    start = process_time()
    bulk()
    return BULK / (process_time() - start) / 1e6


def main(
    rounds: Annotated[int, typer.Option(help="Interleaved repeats.")] = 11,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    facts = provenance({"shards": SHARDS, "blocks": BLOCKS, "rows": ROWS, "lanes": LANES, "rounds": rounds})

    def imports(statement: str) -> Callable[[], dict[str, float]]:
        return lambda: run_python("-c", IMPORTS.format(statement=statement))

    results = interleave(
        {
            "trillion": lambda: run_python("-m", "bench.sampling", "measure"),
            "bare": imports("import dataflow"),
            "all": imports("from dataflow import DataLoader, open"),
        },
        rounds,
    )

    def spread(contender: str, figure: str) -> Spread:
        return Spread.of(run[figure] for run in results[contender])

    rows = [
        Row("samples", spread("trillion", "samples"), ""),
        Row.at_most("build, and find one sample", spread("trillion", "build"), "s", 1),
        Row("find one more sample", spread("trillion", "seek"), "us"),
        Row.at_most("peak memory of the process", spread("trillion", "peak_mb"), "MB", 200),
        Row("of it, after imports", spread("trillion", "import_mb"), "MB"),
        Row.at_least("positions of an epoch, in bulk", spread("trillion", "epoch_rate"), "million/CPU s", 20),
        Row.at_least("slots of the stream, in bulk", spread("trillion", "stream_rate"), "million/CPU s", 20),
        Row("import torch", spread("all", "torch"), "s"),
        Row.at_most("import dataflow adds", spread("bare", "added"), "s", 0.15),
        Row.at_most("import dataflow, its loader and datasets add", spread("all", "added"), "s", 0.15),
    ]
    show("The order of 10^12 samples", rows, facts, json_file)


if __name__ == "__main__":
    if sys.argv[1:] == ["measure"]:
        print(json.dumps(trillion()))
    else:
        typer.run(main)
