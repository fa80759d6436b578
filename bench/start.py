"""From the start of a process to its first batch, fresh and resumed: `python -m bench.start`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from bench.measure import DATA, ROOT, Figures, Row, Spread, interleave, provenance, ratios, run_python, show
from bench.raw_rows import warm, write_rows

IMPORT_TORCH = "import torch; print({}, flush=True)"
BATCH_SIZE = 64


def blocks_read(folder: str, state_file: str) -> dict[str, int]:
    """Which blocks are read before the first batch, by when the stream needs them."""
    import numpy as np

    from dataflow import DataLoader, open
    from dataflow.sampling.layout import BlockLayout
    from dataflow.sampling.stream import Stream, StreamRules

    dataset = open(folder)
    manifest, store = dataset.manifest, dataset.store
    place = {
        (manifest.shard_path(manifest.shard_of(block)), int(manifest.starts[block])): block
        for block in range(manifest.num_blocks)
    }
    read: list[int] = []
    read_range = store.read_range

    def recording(path: str, start: int, length: int) -> Any:
        read.append(place[path, start])
        return read_range(path, start, length)

    store.read_range = recording  # type: ignore[method-assign]
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)
    if state_file:
        loader.load_state_dict(json.loads(Path(state_file).read_text()))
    slot = loader.state_dict()["slots"]
    iterator = iter(loader)
    next(iterator)
    before_first = list(read)
    iterator.close()
    stream = Stream(StreamRules(BlockLayout.of(manifest.rows), 0, "", loader.lanes, True), 0)
    needed = stream.locate(np.arange(slot, manifest.num_rows)).block
    # The batch, counted from the first, that needs a block; none needs those that are not found.
    first_use = {block: number // BATCH_SIZE for number, block in reversed(list(enumerate(needed.tolist())))}
    uses = [first_use.get(block) for block in before_first]
    return {
        "read": len(uses),
        "twice": len(uses) - len(set(before_first)),
        "unneeded": uses.count(None),
        "first": len(set(needed[:BATCH_SIZE].tolist())),
        "furthest": max(use for use in uses if use is not None),
    }


def stop_at(folder: str, share: float, state_file: Path) -> None:
    """Write the state of a loader that has delivered a share of its epoch."""
    from dataflow import DataLoader, open

    loader = DataLoader(open(folder), batch_size=BATCH_SIZE, shuffle=True)
    for _ in zip(range(int(share * len(loader))), loader, strict=False):
        pass
    state_file.write_text(json.dumps(loader.state_dict()))


def time_to_line(*arguments: str) -> Figures:
    """Run a fresh Python process; what it printed, and the seconds from its start to that."""
    start = perf_counter()
    with subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = perf_counter() - start
    return {**json.loads(line), "process": seconds}


def main(
    rounds: Annotated[int, typer.Option(help="Interleaved repeats.")] = 11,
    gigabytes: Annotated[float, typer.Option(help="GiB of the dataset.")] = 2,
    data: Annotated[Path, typer.Option(help="Where datasets are kept.")] = DATA,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    facts = provenance({"gigabytes": gigabytes, "batch": BATCH_SIZE, "rounds": rounds})
    folder = write_rows(data / f"rows-{gigabytes:g}", int(gigabytes * (1 << 30)))
    warm(folder)
    with tempfile.TemporaryDirectory() as scratch:
        state = Path(scratch) / "state.json"
        stop_at(str(folder), 0.9, state)

        results = interleave(
            {
                "torch": lambda: time_to_line("-c", IMPORT_TORCH),
                "fresh": lambda: time_to_line("-m", "bench.first_batch", str(folder)),
                "resumed": lambda: time_to_line("-m", "bench.first_batch", str(folder), str(state)),
            },
            rounds,
        )
        reads = {
            name: run_python("-m", "bench.start", "blocks_read", str(folder), file)
            for name, file in (("fresh", ""), ("resumed", str(state)))
        }
    rows = [Row("import torch, whole process", Spread.of(run["process"] for run in results["torch"]), "s")]
    for name in ("fresh", "resumed"):
        more = Spread.of(a["process"] - b["process"] for a, b in zip(results[name], results["torch"], strict=True))
        rows.append(Row.at_most(f"{name}: process to first batch, less import torch", more, "s", 0.25))
        rows.append(Row(f"{name}: imports, torch among them", Spread.of(run["imports"] for run in results[name]), "s"))
        rows.append(Row(f"{name}: open to first batch", Spread.of(run["batch"] for run in results[name]), "s"))
    for figure, text in (("process", "process to first batch"), ("batch", "open to first batch")):
        ratio = ratios(results["resumed"], results["fresh"], figure)
        rows.append(Row.at_most(f"resumed / fresh: {text}", ratio, "x", 1.2))
    for name, counts in reads.items():
        for figure, text in (
            ("first", "blocks that the first batch needs"),
            ("read", "blocks asked for before it came"),
            ("furthest", "the furthest of them is for batch"),
            ("twice", "of them asked for twice"),
        ):
            rows.append(Row(f"{name}: {text}", Spread.of([counts[figure]]), ""))
        rows.append(Row.at_most(f"{name}: of them needed by no batch", Spread.of([counts["unneeded"]]), "", 0))
    show("Start and resume at 90 % of an epoch, local shards", rows, facts, json_file)


if __name__ == "__main__":
    if sys.argv[1:2] == ["blocks_read"]:
        print(json.dumps(blocks_read(*sys.argv[2:])))
    else:
        typer.run(main)
