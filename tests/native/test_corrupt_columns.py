"""Offsets and rows that lie: every one is refused by name, and memory outside the buffers is never touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow import _native

Array = npt.NDArray[Any]

VALUES = [np.arange(10, dtype=np.uint8), np.arange(20, dtype=np.uint8)]
GOOD = np.array([0, 3, 10], dtype=np.int64)

# Garbage is mostly far outside; the edges are where a check can be off by one.
offset_values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-2, 22),
    st.sampled_from([-(2**63), 2**63 - 1, 2**31, -(2**31), 2**32, 2**62]),
)


def read_every_way(values: list[Array], offsets: list[Array], block: Array, row: Array) -> list[bytes] | None:
    """Return the rows if each kernel gives the same, None if each refuses."""
    results: list[list[bytes] | None] = []
    try:
        results.append(_native.gather_bytes(values, offsets, block, row))
    except ValueError:
        results.append(None)
    for dtype in ("uint8", "int64"):
        out = np.full((len(block), 20), 255, dtype=dtype)
        lengths = np.zeros(len(block), dtype=np.int64)
        try:
            _native.gather_ragged(values, offsets, block, row, out, lengths, 0)
        except ValueError:
            results.append(None)
        else:
            results.append([out[i, : lengths[i]].astype(np.uint8).tobytes() for i in range(len(block))])
    assert results[0] == results[1] == results[2]
    return results[0]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("offsets", "row", "what"),
    [
        ([0, 21], 0, "offsets 0 to 21 are not a range of its 20 values"),
        ([-1, 5], 0, "offsets -1 to 5 are not a range"),
        ([7, 6], 0, "offsets 7 to 6 are not a range"),
        ([0, 2**31 - 1], 0, "offsets 0 to 2147483647 are not a range"),
        ([-(2**31), 2**31 - 1], 0, "offsets -2147483648 to 2147483647 are not a range"),
        ([0, 5], 1, "the block has 1 rows"),
        ([0, 5], -1, "the block has 1 rows"),
        ([0, 5], 2**63 - 1, "the block has 1 rows"),
        ([0, 5], -(2**63), "the block has 1 rows"),
        ([0], 0, "the block has 0 rows"),
        ([], 0, "the block has 0 rows"),
    ],
)
def test_an_impossible_row_is_named(wide: bool, offsets: list[int], row: int, what: str) -> None:
    columns = [GOOD, np.array(offsets, dtype=np.int64 if wide else np.int32)]
    block, rows = np.array([0, 1], dtype=np.int32), np.array([1, row])
    message = f"position 1: block 1, row {row}: {what}"
    out, lengths = np.zeros((2, 20), dtype=np.uint8), np.zeros(2, dtype=np.int64)
    with pytest.raises(ValueError, match=message):
        _native.gather_ragged(VALUES, columns, block, rows, out, lengths, 0)
    with pytest.raises(ValueError, match=message):
        _native.gather_bytes(VALUES, columns, block, rows)


def test_lengths_alone_are_checked_against_each_other() -> None:
    block, rows = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int64)
    for bad in ([5, 4], [-1, 4], [-5, -1]):
        with pytest.raises(ValueError, match=f"block 0, row 0: offsets {bad[0]} to {bad[1]} are not a range"):
            _native.ragged_lengths([np.array(bad)], block, rows)
    assert _native.ragged_lengths([np.array([0, 2**62])], block, rows).tolist() == [2**62]


@pytest.mark.parametrize("block", [-1, 2, 2**31 - 1, -(2**31)])
def test_an_impossible_block_is_named(block: int) -> None:
    blocks, rows = np.array([0, block], dtype=np.int32), np.zeros(2, dtype=np.int64)
    out, lengths = np.zeros((2, 20), dtype=np.uint8), np.zeros(2, dtype=np.int64)
    message = f"position 1: block {block}, row 0: there are 2 blocks"
    with pytest.raises(ValueError, match=message):
        _native.gather_ragged(VALUES, [GOOD, GOOD], blocks, rows, out, lengths, 0)
    with pytest.raises(ValueError, match=message):
        _native.gather_fixed(VALUES, 1, blocks, rows, np.zeros(2, dtype=np.uint8))
    with pytest.raises(ValueError, match=message):
        _native.gather_bytes(VALUES, [GOOD, GOOD], blocks, rows)
    with pytest.raises(ValueError, match=message):
        _native.ragged_lengths([GOOD, GOOD], blocks, rows)


@pytest.mark.parametrize("row", [-1, 3, 2**62, 2**63 - 1, -(2**63)])
def test_a_fixed_width_row_outside_its_block_is_named(row: int) -> None:
    out = np.zeros((2, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match=f"position 1: block 0, row {row}: the block has 3 rows"):
        _native.gather_fixed(VALUES, 3, np.zeros(2, dtype=np.int32), np.array([2, row]), out)


@given(
    offsets=st.lists(st.lists(offset_values, max_size=6), min_size=2, max_size=2),
    requests=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5)), max_size=6),
)
def test_garbage_is_read_right_or_refused(offsets: list[list[int]], requests: list[tuple[int, int]]) -> None:
    columns = [np.array(column, dtype=np.int64) for column in offsets]
    block = np.array([b for b, _ in requests], dtype=np.int32)
    row = np.array([r for _, r in requests], dtype=np.int64)
    expected: list[bytes] | None = []
    for b, r in requests:
        if r + 1 >= len(offsets[b]) or not 0 <= offsets[b][r] <= offsets[b][r + 1] <= len(VALUES[b]):
            expected = None
            break
        assert expected is not None
        expected.append(VALUES[b][offsets[b][r] : offsets[b][r + 1]].tobytes())
    assert read_every_way(VALUES, columns, block, row) == expected


def read_random_bytes(seed: int) -> None:
    random = np.random.default_rng(seed)
    columns = [np.frombuffer(random.bytes(64), dtype=random.choice(["int32", "int64"])) for _ in VALUES]
    block = (np.frombuffer(random.bytes(32), dtype=np.int32) % random.choice([2, 3, 2**31 - 1])).astype(np.int32)
    row = np.frombuffer(random.bytes(64), dtype=np.int64) % random.choice([7, 9, 2**63 - 1])
    read_every_way(VALUES, columns, block, row)
    for width in (1, 3):
        out = np.zeros((8, width), dtype=np.uint8)
        try:
            _native.gather_fixed(VALUES, width, block, row, out)
        except ValueError:
            assert not ((block < 2) & (row < 10 // width)).all()


@given(seed=st.integers(0, 2**32 - 1))
def test_random_bytes_as_offsets_blocks_and_rows_never_crash(seed: int) -> None:
    read_random_bytes(seed)


@pytest.mark.soak
@settings(max_examples=50_000)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_bytes_never_crash_for_long(seed: int) -> None:
    read_random_bytes(seed)
