"""Which rows make which shard and which block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import DatasetError
from dataflow.formats import Skipped
from dataflow.sharding.cut import cut_blocks
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.plan import Plan
from dataflow.sharding.slabs import Slabs
from dataflow.sharding.source import Chunk


class NoReader:
    def chunks(self, part: Any, rows_per_block: int) -> Iterator[Chunk]:
        raise AssertionError("sizes are known")

    def read(self, place: Any) -> tuple[pa.RecordBatch, list[Skipped]]:
        raise AssertionError("sizes are known")


@dataclass
class Sized:
    """A source whose rows have known sizes; a part of it is the list of its rows as (item, row)."""

    item_rows: npt.NDArray[np.int64]
    item_bytes: npt.NDArray[np.int64]
    row_bytes: float | None = 1.0
    unit: str = "rows"
    schema: pa.Schema = field(default_factory=lambda: pa.schema([("x", pa.binary())]))
    properties: dict[str, Any] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    identity: str = "a"
    reader: NoReader = field(default_factory=NoReader)

    def part(self, items: npt.NDArray[np.int64], start: int, stop: int) -> list[tuple[int, int]]:
        rows = [(int(item), row) for item in items for row in range(self.item_rows[item])]
        behind = int(self.item_rows[items[-1]]) - stop
        return rows[start : len(rows) - behind]


def source(items: list[tuple[int, int]]) -> Sized:
    rows = np.array([rows for rows, _ in items], np.int64)
    sizes = np.array([rows * size for rows, size in items], np.int64)
    return Sized(rows, sizes, max(1.0, float(sizes.sum()) / max(1, int(rows.sum()))))


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 1000)), min_size=1, max_size=40),
    st.integers(1, 5000),
    st.integers(1, 20_000),
    st.one_of(st.none(), st.integers(0, 5)),
)
def test_each_row_is_in_one_shard_and_shards_are_whole_blocks(
    items: list[tuple[int, int]], block_bytes: int, shard_bytes: int, seed: int | None
) -> None:
    options = ShardOptions(seed=seed, block_bytes=block_bytes, shard_bytes=shard_bytes)
    if not any(rows for rows, _ in items):
        with pytest.raises(DatasetError, match="no rows"):
            Plan.of(source(items), options)
        return
    plan = Plan.of(source(items), options)
    parts = [plan.part(shard) for shard in range(plan.num_shards)]
    everything = [row for part in parts for row in part]
    expected = [(item, row) for item, (rows, _) in enumerate(items) for row in range(rows)]
    assert sorted(everything) == expected
    if seed is None:
        assert everything == expected
    assert [len(part) for part in parts] == np.diff(plan.bounds).tolist()
    assert all(len(part) % plan.rows_per_block == 0 for part in parts[:-1])
    assert all(parts)


def test_shards_end_with_the_block_that_brings_them_to_their_size() -> None:
    sizes = np.random.default_rng(0).integers(500, 1500, 10_000).tolist()
    plan = Plan.of(
        source([(1, size) for size in sizes]), ShardOptions(seed=None, block_bytes=10_000, shard_bytes=10**6)
    )
    assert plan.rows_per_block == 10
    for start, stop in zip(plan.bounds[:-2].tolist(), plan.bounds[1:-1].tolist(), strict=True):
        assert sum(sizes[start : stop - 10]) < 10**6 <= sum(sizes[start:stop]) + 100


def test_the_identity_tells_plans_apart() -> None:
    base = source([(3, 100)] * 50)
    options = ShardOptions(block_bytes=1000, shard_bytes=5000)
    identity = Plan.of(base, options).identity
    assert Plan.of(source([(3, 100)] * 50), replace(options, on_error="skip")).identity == identity
    others = [
        Plan.of(replace(base, identity="b"), options),
        Plan.of(replace(base, properties={"classes": ["x"]}), options),
        *(
            Plan.of(base, replace(options, **change))
            for change in ({"seed": 1}, {"seed": None}, {"block_bytes": 2000}, {"shard_bytes": 5001}, {"decode": True})
        ),
    ]
    assert len({identity, *(plan.identity for plan in others)}) == len(others) + 1


@given(
    st.lists(st.lists(st.integers(0, 300), max_size=12), max_size=12),
    st.integers(1, 7),
    st.integers(1, 800),
)
def test_blocks_keep_rows_and_limits(batches: list[list[int]], rows: int, most_bytes: int) -> None:
    numbers = iter(range(1000))
    values = [[next(numbers).to_bytes(2, "big") + bytes(size) for size in batch] for batch in batches]
    made = list(
        cut_blocks(
            (pa.record_batch({"x": batch}, pa.schema([("x", pa.binary())])) for batch in values), rows, most_bytes
        )
    )
    assert [x for block in made for x in block.column("x").to_pylist()] == [x for batch in values for x in batch]
    ends = np.cumsum([block.num_rows for block in made]).tolist()
    for block in made:
        assert 1 <= block.num_rows <= rows
        assert block.num_rows == 1 or block.nbytes < most_bytes
    # Every rows-th row begins a block, whatever is before it.
    assert set(range(rows, sum(map(len, values)) + 1, rows)) <= set(ends)


def test_memory_is_used_again_when_nothing_refers_to_it() -> None:
    slabs = Slabs(100)
    memory, buffer = slabs.take(50)
    memory[:] = b"a" * 50
    other, other_buffer = slabs.take(100)
    other[:] = b"b" * 100
    assert buffer.to_pybytes() == b"a" * 50
    array = pa.Array.from_buffers(pa.binary(50), 1, [None, buffer])
    first, second = buffer.address, other_buffer.address
    del memory, buffer
    _, third = slabs.take(10)  # the array still holds the first one
    assert third.address not in (first, second)
    assert array.to_pylist() == [b"a" * 50]
    del array
    assert slabs.take(100)[1].address == first
    assert len(slabs.take(101)[0]) == 101
