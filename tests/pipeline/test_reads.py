"""Reads: each block about once an epoch, by about one rank; after a resume, only what the first batches need."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import dataflow
from dataflow.pipeline.blocks import HeldBlock
from dataflow.pipeline.clocks import Clocks
from dataflow.pipeline.fetch import Fetcher
from tests.pipeline.conftest import Reads

Rows = Callable[..., dataflow.Dataset]


def loader(dataset: dataflow.Dataset, **options: Any) -> dataflow.DataLoader:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return dataflow.DataLoader(dataset, shuffle=True, **{"num_workers": 1, **options})


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("batch", [5, 64])
def test_each_block_is_fetched_about_once_an_epoch(rows: Rows, reads: Reads, filtered: bool, batch: int) -> None:
    dataset = rows(4096)
    options: dict[str, Any] = {"batch_size": batch}
    if filtered:
        dataset, options["end"] = dataset.filter(lambda sample: sample["number"] % 3), "exact"
    one = loader(dataset, **options)
    for _ in one:
        pass
    counts = Counter(reads.blocks(dataset))
    assert set(counts) == set(range(1024))
    # The end of a lane cuts a block, which is then read twice, unless another lane has it still.
    assert one.lanes == 64
    assert counts.total() <= 1024 + 63
    assert max(counts.values()) <= 2


@pytest.mark.parametrize(("ranks", "most"), [(2, 1.1), (4, 1.1), (3, 1.15), (7, 1.15)])
@pytest.mark.parametrize("filtered", [False, True])
def test_ranks_together_fetch_little_more(rows: Rows, reads: Reads, ranks: int, most: float, filtered: bool) -> None:
    dataset = rows(8192)
    options: dict[str, Any] = {"batch_size": 64}
    if filtered:
        # The same rows on every rank, however many an epoch of all of them would be.
        dataset = dataset.filter(lambda sample: True)
        options["steps_per_epoch"] = 8192 // (64 * ranks)
    for rank in range(ranks):
        for _ in loader(dataset, rank=rank, world_size=ranks, **options):
            pass
    assert len(set(reads.blocks(dataset))) > (2048 if not filtered else 2000) - 1
    assert reads.nbytes <= most * dataset.manifest.num_bytes


@pytest.mark.parametrize("ranks", [4, 3])
def test_di05_shards_are_split_between_ranks_that_they_do_not_divide_by(rows: Rows, reads: Reads, ranks: int) -> None:
    dataset = rows(4096, payload=100, shard_bytes=96 << 10)
    assert dataset.manifest.num_shards == 7
    total = dataset.manifest.num_bytes
    for rank in range(ranks):
        before = reads.nbytes
        for _ in loader(dataset, batch_size=64, rank=rank, world_size=ranks):
            pass
        assert (reads.nbytes - before) / total < 1.35 / ranks


@pytest.mark.parametrize("filtered", [False, True])
def test_rs13_tr09_a_resume_reads_and_decodes_what_the_first_batches_need(
    rows: Rows, reads: Reads, filtered: bool
) -> None:
    """As many blocks and samples at 90 % of an epoch as at its start."""
    dataset = rows(8192)
    url = dataset.manifest.url
    made: list[int] = []

    def make(options: dict[str, Any]) -> dataflow.DataLoader:
        mapped = dataflow.open(url).map(lambda sample: made.append(1) or sample, name="counted")
        if filtered:
            mapped = mapped.filter(lambda sample: sample["number"] % 2, name="odd")
            options = {**options, "steps_per_epoch": 256}
        return loader(mapped, batch_size=16, num_workers=2, prefetch_factor=2, **options)

    for step in (0, 460 if not filtered else 230):
        state = None
        if step:
            first = make({})
            iterator = iter(first)
            for _ in range(step):
                next(iterator)
            state = first.state_dict()
            iterator.close()
        reads.ranges.clear()
        made.clear()
        resumed = make({})
        if state is not None:
            resumed.load_state_dict(state)
        assert not reads.ranges
        iterator = iter(resumed)
        batch = next(iterator)
        iterator.close()
        assert batch["slot"].tolist() == list(range(16 * step, 16 * step + 16))
        # Every lane may hold the block that it is in, and the next one: as at any other place.
        assert len(reads.ranges) <= 2 * resumed.lanes + 16
        # Batches in the making when the first was delivered, and for a filter what it drops.
        assert len(made) <= 16 * 6 * (4 if filtered else 1)


def test_read_ahead_stays_in_the_window(rows: Rows, reads: Reads) -> None:
    """A consumer that takes one batch of many does not make the loader read the dataset."""
    dataset = rows(8192)
    iterator = iter(loader(dataset, batch_size=4, num_workers=1, prefetch_factor=2))
    for _ in range(3):
        next(iterator)
    iterator.close()
    # Three batches, two that wait, one in the making; all lanes may hold a block and what is in flight.
    assert len(reads.ranges) < 3 * 128


def test_no_two_reads_of_a_block_that_two_lanes_want(rows: Rows, reads: Reads) -> None:
    """More lanes than blocks: each block is wanted by several at once."""
    dataset = rows(64)
    for _ in loader(dataset, batch_size=8, lanes=64):
        pass
    assert sorted(reads.blocks(dataset)) == list(range(16))


def test_columns_that_are_not_selected_are_not_in_batches(rows: Rows) -> None:
    batch = next(iter(loader(rows(400, payload=100).select("number"), batch_size=8)))
    assert set(batch) == {"number", "sample_id", "slot"}


def test_the_block_that_is_needed_first_is_read_first() -> None:
    gate = threading.Event()
    order: list[int] = []

    def read(number: int) -> bytes:
        gate.wait(10)
        order.append(number)
        return b""

    fetcher = Fetcher(read, 1, Clocks())
    blocks = [HeldBlock(number, slot, 1, lambda buffer, number: {}) for number, slot in enumerate([5, 9, 3, 0, 9, 7])]
    for block in blocks:
        block.uses = 1
        fetcher.request(block)
    gate.set()
    for block in blocks:
        block.wait()
    # One may have been on its way before the others were asked for.
    assert order[1:] == [number for number in (3, 2, 0, 5, 1, 4) if number != order[0]]
    fetcher.stop()
    for thread in fetcher.threads:
        thread.join()
