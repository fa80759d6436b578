"""Tokens to batches, beside NumPy: `python -m bench.tokens`.

Samples of 2,048 tokens, stored as uint16, come shuffled as batches of int64. What it is compared with is the least that
any loader does: `np.take` of random rows of one array in memory, widened into a ring of buffers that are used again; no
order to compute, no checksums, no blocks, no threads. Both are counted in samples for each second of processor time,
whatever else the machine does, with files in the page cache.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

import dataflow
from bench.measure import DATA, Figures, Row, Spread, interleave, provenance, ratios, show

TOKENS, VOCABULARY = 2048, 50_257
RING = 8
BARE, OURS, INLINE = "np.take into a ring", "dataflow, 1 thread", "dataflow, no thread"


def main(
    samples: Annotated[int, typer.Option(help="Samples of the dataset, of 4 KiB.")] = 1 << 17,
    batch: Annotated[int, typer.Option(help="Samples of a batch.")] = 32,
    rounds: Annotated[int, typer.Option(help="Interleaved repeats.")] = 7,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    facts = provenance({"samples": samples, "batch": batch, "rounds": rounds})
    url = write_dataset(samples)
    stored = np.random.default_rng(0).integers(0, VOCABULARY, (samples, TOKENS), np.uint16)
    contenders = {
        BARE: partial(take, stored, batch),
        OURS: partial(load, url, batch, 1),
        INLINE: partial(load, url, batch, 0),
    }
    for run in contenders.values():
        run()  # files come into the page cache, and memory from the system
    results = interleave(contenders, rounds)
    rows = [
        Row(name, Spread.of(figures["per_cpu"] for figures in runs), "samples/CPU s") for name, runs in results.items()
    ]
    rows.append(Row.at_least(f"{OURS} / {BARE}", ratios(results[OURS], results[BARE], "per_cpu"), "x", 0.8))
    rows.append(Row(f"{INLINE} / {BARE}", ratios(results[INLINE], results[BARE], "per_cpu"), "x"))
    show("Tokens, uint16 to int64, shuffled", rows, facts, json_file)


def write_dataset(samples: int) -> str:
    """Samples in blocks of 2 MiB, as a dataset of 8 GiB and more has them."""
    url = str(DATA / f"tokens-{samples}")
    if not Path(url).exists():
        random = np.random.default_rng(0)
        schema = pa.schema({"tokens": pa.list_(pa.uint16(), TOKENS)})
        with dataflow.ShardWriter(url, schema, rows_per_block=(2 << 20) // (2 * TOKENS)) as writer:
            for start in range(0, samples, 1024):
                rows = min(1024, samples - start)
                values = pa.array(random.integers(0, VOCABULARY, rows * TOKENS, np.uint16))
                writer.write_batch(pa.record_batch([pa.FixedSizeListArray.from_arrays(values, TOKENS)], schema=schema))
    return url


def take(stored: np.ndarray, batch: int) -> Figures:
    """The floor: nothing but the copying."""
    order = np.random.default_rng(1).permutation(len(stored))
    ring = [np.empty((batch, TOKENS), np.int64) for _ in range(RING)]
    rows = np.empty((batch, TOKENS), stored.dtype)
    start, taken = time.process_time(), 0
    for number, first in enumerate(range(0, len(order) - batch + 1, batch)):
        np.take(stored, order[first : first + batch], axis=0, out=rows, mode="clip")
        np.copyto(ring[number % RING], rows)
        taken += batch
    return {"per_cpu": taken / (time.process_time() - start)}


def load(url: str, batch: int, workers: int) -> Figures:
    """An epoch through the loader, all of its threads counted."""
    loader = dataflow.DataLoader(
        dataflow.open(url), batch, True, num_workers=workers, drop_last=True, dtypes={"tokens": "int64"}
    )
    start, taken = time.process_time(), 0
    for made in loader:
        taken += len(made["tokens"])
    return {"per_cpu": taken / (time.process_time() - start)}


if __name__ == "__main__":
    typer.run(main)
