from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.operations.block_tap import BlockTap
from dataflow.storage import Store, open_store

DATA = np.random.default_rng(0).bytes(1000)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("tap")
    (folder / "shard").write_bytes(DATA)
    return open_store(str(folder))


def ranges_of(cuts: list[int]) -> list[tuple[int, int]]:
    """Blocks with gaps between them: every other piece between the cuts."""
    bounds = sorted(cuts)
    return [(start, end - start) for start, end in zip(bounds[::2], bounds[1::2], strict=False) if end > start]


CUTS = st.lists(st.integers(0, len(DATA)), max_size=12, unique=True)


@given(CUTS, st.integers(1, 300), st.integers(0, 50))
def test_blocks_come_whole_however_they_are_cut(store: Store, cuts: list[int], window: int, overlap: int) -> None:
    ranges = ranges_of(cuts)
    found: dict[int, bytes] = {}
    tap = BlockTap(store, ranges, found.__setitem__)
    for start in range(0, len(DATA), window):
        first = max(0, start - overlap)
        assert tap.read_range("shard", first, min(len(DATA), start + window) - first) == DATA[first : start + window]
    assert found == {number: DATA[start : start + length] for number, (start, length) in enumerate(ranges)}
    assert tap.passed == set(found)


@given(CUTS, st.lists(st.tuples(st.integers(0, 999), st.integers(1, 400)), max_size=20))
def test_what_comes_is_right_in_whatever_order_a_shard_is_read(
    store: Store, cuts: list[int], reads: list[tuple[int, int]]
) -> None:
    ranges = ranges_of(cuts)
    found: list[tuple[int, bytes]] = []
    tap = BlockTap(store, ranges, lambda number, data: found.append((number, data)))
    for start, length in reads:
        tap.read_ranges("shard", [(start, min(length, len(DATA) - start))])
    assert len({number for number, _ in found}) == len(found)
    for number, data in found:
        start, length = ranges[number]
        assert data == DATA[start : start + length]
