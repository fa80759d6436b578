"""How fast documents are packed, and how full rows are: `python -m bench.packing`.

Documents with lengths like those of web pages go through a lane's packing, with the rows made, on one core; reading
them is left out. The lengths are drawn from a log-normal distribution, or taken from text files.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bench.measure import Figures, Row, Spread, interleave, provenance, show
from dataflow.dataset.expanding import Pack
from dataflow.pipeline.clocks import StageClock
from dataflow.pipeline.documents import PackCounts
from dataflow.pipeline.lane_rows import Item, Working
from dataflow.pipeline.lane_stages import LanePlace
from dataflow.pipeline.packed import Concatenated, Packed
from dataflow.sampling.packing import best_fit
from dataflow.sampling.random import SampleKey

SEQ_LEN = 4096
BINS = "best_fit, bins alone"


class Documents:
    """Documents of given lengths, as a lane has them."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths
        self._tokens = np.arange(max(lengths), dtype=np.uint16)
        self.cursor = 0

    def next(self, working: Working) -> Item | None:
        if self.cursor == len(self._lengths):
            return None
        item = Item({"tokens": self._tokens[: self._lengths[self.cursor]]}, SampleKey(0, "", 0, 0, self.cursor))
        self.cursor += 1
        return item


def main(
    documents: Annotated[int, typer.Option(help="Documents to pack.")] = 100_000,
    texts: Annotated[Path | None, typer.Option(help="Folder of text files whose lengths in bytes / 4 to take.")] = None,
    rounds: Annotated[int, typer.Option(help="Interleaved repeats.")] = 5,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures there.")] = None,
) -> None:
    facts = provenance({"documents": documents, "texts": texts is not None, "rounds": rounds})
    if texts is None:
        lengths = np.random.default_rng(0).lognormal(6.3, 1.1, documents).astype(int) + 1
    else:
        sizes = [path.stat().st_size // 4 + 1 for path in sorted(texts.rglob("*")) if path.is_file()]
        lengths = np.random.default_rng(0).choice(sizes, documents)
    facts["tokens_per_document"] = round(float(np.mean(lengths)))
    contenders = {mode: partial(pack, lengths.tolist(), mode) for mode in ("best_fit", "first_fit", "concat")}
    contenders[BINS] = partial(fit, lengths.tolist())
    results = interleave(contenders, rounds)
    rows = []
    for name, runs in results.items():
        rate = Spread.of(run["rate"] for run in runs)
        wasted = Spread.of(run["wasted"] for run in runs)
        if name in ("best_fit", BINS):
            rows += [Row.at_least(name, rate, "million documents/min", 5), Row.at_most(name, wasted, "% wasted", 1)]
        else:
            rows += [Row(name, rate, "million documents/min"), Row(name, wasted, "% wasted")]
    show(f"Packing rows of {SEQ_LEN} tokens", rows, facts, json_file)


def pack(lengths: Sequence[int], mode: str) -> Figures:
    stage = Pack(SEQ_LEN, "tokens", mode, 1024, None, "split", 0)
    counts, documents = PackCounts(), Documents(lengths)
    packed: Packed | Concatenated = Concatenated(documents, stage, counts, 0)
    if mode != "concat":
        packed = Packed(documents, stage, counts, LanePlace(0, 1, 0, "", None), 0)
    working = Working(StageClock(), StageClock())
    start = time.process_time()
    while packed.next(working) is not None:
        pass
    minutes = (time.process_time() - start) / 60
    return {
        "rate": len(lengths) / minutes / 1e6,
        "wasted": 100 * counts.padding / (counts.rows * SEQ_LEN),
    }


def fit(lengths: Sequence[int]) -> Figures:
    """Only which documents share a row."""
    start, rows = time.process_time(), 0
    lengths = [min(length, SEQ_LEN) for length in lengths]
    for first in range(0, len(lengths), 1024):
        rows += len(best_fit(lengths[first : first + 1024], SEQ_LEN))
    minutes = (time.process_time() - start) / 60
    return {"rate": len(lengths) / minutes / 1e6, "wasted": 100 * (1 - sum(lengths) / (rows * SEQ_LEN))}


if __name__ == "__main__":
    typer.run(main)
