"""Reference values of the order: they must never change, or old states would mean other samples."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dataflow import _native
from dataflow.sampling import order as order_module
from dataflow.sampling.keys import key
from dataflow.sampling.lanes import position_of_slot, slot_of_position
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.order import EpochOrder
from dataflow.sampling.ranks import share
from dataflow.sampling.stream import Stream, StreamRules
from tests.sampling import reference

# Six blocks of 4 rows, but for these.
ROWS = [4, 0, 4, 6, 4, 2]
STARTS = [0, 0, 4, 6, 10, 16, 20]
SAMPLES = [
    *[(4, 1), (4, 0), (4, 2), (4, 3), (5, 0), (5, 1), (0, 0), (0, 2), (0, 1), (0, 3)],
    *[(3, 1), (3, 4), (3, 5), (3, 2), (3, 3), (3, 0), (2, 0), (2, 3), (2, 1), (2, 2)],
]
ENDLESS = [
    *[(0, 4, 1), (0, 4, 3), (0, 0, 0), (0, 0, 3), (0, 3, 5), (0, 3, 3), (0, 2, 0), (0, 2, 1), (0, 4, 0), (0, 5, 0)],
    *[(0, 0, 2), (0, 3, 1), (0, 3, 2), (0, 3, 0), (0, 2, 3), (0, 2, 2), (0, 4, 2), (0, 5, 1), (0, 0, 1), (0, 3, 4)],
    *[(1, 5, 1), (1, 3, 2), (1, 3, 3), (1, 4, 0), (1, 2, 2), (1, 2, 1), (1, 0, 3), (1, 0, 0), (1, 5, 0), (1, 3, 4)],
    *[(1, 3, 1), (1, 4, 3), (1, 2, 0), (1, 2, 3), (1, 0, 1), (1, 0, 2), (1, 3, 5), (1, 3, 0), (1, 4, 1), (1, 4, 2)],
    *[(2, 5, 1), (2, 0, 2), (2, 3, 4), (2, 3, 2), (2, 2, 0), (2, 2, 1), (2, 4, 2), (2, 4, 3), (2, 5, 0), (2, 0, 1)],
]
SHARES = [
    (0, 8, 8, 4, [[0, 4], [1, 5], [2, 6], [3, 7]]),
    (6, 12, 8, 4, [[8, 12, 16], [9, 13, 17], [6, 10, 14], [7, 11, 15]]),
    (0, 12, 8, 3, [[0, 2, 5, 8], [1, 4, 7, 10], [3, 6, 9, 11]]),
    (12, 12, 8, 3, [[13, 16, 18, 21], [12, 15, 20, 23], [14, 17, 19, 22]]),
    (5, 10, 4, 5, [[8, 12], [7, 11], [6, 10], [5, 14], [9, 13]]),
    (0, 3, 8, 4, [[0], [1], [2], []]),
]


@pytest.fixture(params=["dense", "sparse"])
def placement(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to find the start of a block."""
    if request.param == "sparse":
        force_sparse(monkeypatch)
    return str(request.param)


def force_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "_SPARSE_FROM_BLOCKS", 0)
    monkeypatch.setattr(order_module, "_SPARSE_SHARE", 1.0)


def layout(rows: list[int]) -> BlockLayout:
    return BlockLayout.of(np.array(rows, np.int32))


@pytest.mark.parametrize(
    ("parts", "value"),
    [
        ((0,), 527104665348666637),
        ((1, "blocks"), 2849878416867303248),
        ((7, "photos", 3), 16530874137632919113),
        ((-1, "", 1099511627776), 3297118166872945032),
    ],
)
def test_key(parts: tuple[int | str, ...], value: int) -> None:
    assert key(*parts) == value
    assert reference.key(*parts) == value


@pytest.mark.parametrize(
    ("value", "mixed"), [(0, 0), (1, 6238072747940578789), (9223372036854775808, 2720858781877447050)]
)
def test_mix64(value: int, mixed: int) -> None:
    assert _native.mix64(value) == mixed
    assert reference.mix64(value) == mixed


@pytest.mark.parametrize(
    ("n", "seed", "image"),
    [
        (1, 0, [0]),
        (2, 1, [1, 0]),
        (5, 1, [4, 0, 1, 2, 3]),
        (16, 2, [9, 10, 2, 14, 6, 8, 1, 11, 4, 0, 12, 13, 5, 7, 3, 15]),
        (17, 3, [0, 7, 1, 13, 8, 12, 14, 2, 6, 11, 9, 3, 4, 5, 10, 16, 15]),
    ],
)
def test_block_permutation(n: int, seed: int, image: list[int]) -> None:
    assert _native.permute(np.arange(n, dtype=np.int64), n, seed).tolist() == image
    assert _native.unpermute(np.array(image, np.int64), n, seed).tolist() == list(range(n))
    assert [reference.feistel(x, n, seed) for x in range(n)] == image


@pytest.mark.parametrize(
    ("n", "seed", "x", "y"),
    [
        (1000000, 1, 999999, 211672),
        (1000000000000, 1, 123456789012, 18695229368),
        (4611686018427387905, 1, 5, 1181621129534315363),
    ],
)
def test_block_permutation_of_many(n: int, seed: int, x: int, y: int) -> None:
    assert _native.permute(np.array([x], np.int64), n, seed).tolist() == [y]
    assert _native.unpermute(np.array([y], np.int64), n, seed).tolist() == [x]
    assert reference.feistel(x, n, seed) == y


@pytest.mark.parametrize(
    ("n", "seed", "image"),
    [
        (1, 0, [0]),
        (7, 1, [4, 3, 0, 1, 5, 6, 2]),
        (16, 2, [15, 8, 4, 10, 5, 13, 11, 12, 0, 2, 6, 9, 7, 1, 3, 14]),
    ],
)
def test_row_permutation(n: int, seed: int, image: list[int]) -> None:
    assert _native.row_permutation(n, seed).tolist() == image
    assert reference.row_order(n, seed) == image


@pytest.mark.usefixtures("placement")
def test_order() -> None:
    order = EpochOrder(layout(ROWS), 0, "s", 0)
    assert order.num_rows == 20
    blocks, rows = order.samples(0, 20)
    assert list(zip(blocks.tolist(), rows.tolist(), strict=True)) == SAMPLES
    assert [order.position(*sample) for sample in SAMPLES] == list(range(20))
    located, offsets, left = order.locate(np.arange(20, dtype=np.int64))
    assert located.tolist() == [block for block, _ in SAMPLES]
    starts = [start for start, stop in pairwise(STARTS) for _ in range(start, stop)]
    assert (np.arange(20) - offsets).tolist() == starts
    stops = [stop for start, stop in pairwise(STARTS) for _ in range(start, stop)]
    assert (np.arange(20) + left).tolist() == stops
    assert reference.virtual_order(ROWS, 0, 0, source="s") == SAMPLES


@pytest.mark.parametrize(
    ("num_rows", "lanes", "positions"),
    [
        (10, 4, [0, 3, 6, 8, 1, 4, 7, 9, 2, 5]),
        (3, 8, [0, 1, 2]),
        (0, 2, []),
        (12, 4, [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]),
    ],
)
def test_positions_of_slots(num_rows: int, lanes: int, positions: list[int]) -> None:
    assert [position_of_slot(slot, num_rows, lanes) for slot in range(num_rows)] == positions
    assert [slot_of_position(position, num_rows, lanes) for position in positions] == list(range(num_rows))
    if num_rows:
        assert position_of_slot(np.arange(num_rows), num_rows, lanes).tolist() == positions
    spans = reference.spans(num_rows, lanes)
    assert [spans[slot % lanes][slot // lanes] for slot in range(num_rows)] == positions


@pytest.mark.usefixtures("placement")
def test_endless_stream() -> None:
    stream = Stream(StreamRules(layout(ROWS), 0, "s", 8, True), 0)
    located = stream.locate(np.arange(50, dtype=np.int64))
    found = [
        (epoch, block, int(stream.row_permutation(epoch, block)[offset]))
        for epoch, block, offset in zip(*(column.tolist() for column in located[:3]), strict=True)
    ]
    assert found == ENDLESS
    assert reference.stream(ROWS, 0, 8, 50, source="s") == ENDLESS


@pytest.mark.parametrize(("first", "count", "lanes", "ranks", "slots"), SHARES)
def test_shares_of_ranks(first: int, count: int, lanes: int, ranks: int, slots: list[list[int]]) -> None:
    assert [share(first, count, lanes, ranks, rank).tolist() for rank in range(ranks)] == slots
    assert [reference.share(first, count, lanes, ranks, rank) for rank in range(ranks)] == slots
