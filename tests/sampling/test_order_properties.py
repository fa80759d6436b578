"""Properties of the order for any blocks, lanes and ranks, against the plain model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.sampling import order as order_module
from dataflow.sampling.lanes import default_lanes, delivered_items, position_of_slot, slot_of_position, span_length
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.order import EpochOrder
from dataflow.sampling.ranks import padded_share, share
from dataflow.sampling.stream import Stream, StreamRules
from tests.sampling import reference

EXAMPLES = [pytest.param(150, id="quick"), pytest.param(1500, id="soak", marks=pytest.mark.soak)]
some_examples = pytest.mark.parametrize("examples", EXAMPLES)

# Mostly blocks of one size, with empty and oversize ones between them.
usual = st.integers(0, 9)
blocks = usual.flatmap(
    lambda n: st.lists(st.one_of(st.just(n), st.just(n), st.integers(0, 40)), min_size=1, max_size=24)
)
seeds = st.one_of(st.integers(0, 5), st.integers(-(2**127), 2**127 - 1))
lane_counts = st.one_of(st.integers(1, 40), st.sampled_from([1, 8, 24, 64, 128]))


def layout(rows: list[int]) -> BlockLayout:
    return BlockLayout.of(np.array(rows, np.int32))


def pairs(blocks: np.ndarray, rows: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(blocks.tolist(), rows.tolist(), strict=True))


def sparse(rows: list[int], seed: int, epoch: int, shuffle: bool) -> EpochOrder:
    """The order with starts computed from exceptions only, whatever their number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order_module, "_SPARSE_FROM_BLOCKS", 0)
        patch.setattr(order_module, "_SPARSE_SHARE", 1.0)
        return EpochOrder(layout(rows), seed, "", epoch, shuffle=shuffle)


@some_examples
def test_order_is_a_bijection_and_position_its_inverse(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(rows=blocks, seed=seeds, epoch=st.integers(0, 2**40), shuffle=st.booleans(), dense=st.booleans())
    def check(rows: list[int], seed: int, epoch: int, shuffle: bool, dense: bool) -> None:
        make = (
            EpochOrder(layout(rows), seed, "", epoch, shuffle=shuffle) if dense else sparse(rows, seed, epoch, shuffle)
        )
        num_rows = sum(rows)
        assert make.num_rows == num_rows
        samples = pairs(*make.samples(0, num_rows))
        assert sorted(samples) == [(block, row) for block, count in enumerate(rows) for row in range(count)]
        assert [make.position(*sample) for sample in samples] == list(range(num_rows))
        assert samples == reference.virtual_order(rows, seed, epoch, shuffle=shuffle)

    check()


@some_examples
def test_any_run_of_positions_equals_the_whole(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(rows=blocks.filter(sum), seed=seeds, shuffle=st.booleans(), data=st.data())
    def check(rows: list[int], seed: int, shuffle: bool, data: st.DataObject) -> None:
        order = EpochOrder(layout(rows), seed, "", 0, shuffle=shuffle)
        whole = pairs(*order.samples(0, order.num_rows))
        start = data.draw(st.integers(0, order.num_rows))
        stop = data.draw(st.integers(start, order.num_rows))
        assert pairs(*order.samples(start, stop)) == whole[start:stop]

    check()


@some_examples
def test_dense_and_sparse_placement_are_equal(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(rows=blocks.filter(sum), seed=seeds, epoch=st.integers(0, 3), shuffle=st.booleans())
    def check(rows: list[int], seed: int, epoch: int, shuffle: bool) -> None:
        one, other = EpochOrder(layout(rows), seed, "", epoch, shuffle=shuffle), sparse(rows, seed, epoch, shuffle)
        positions = np.arange(sum(rows), dtype=np.int64)
        for ours, theirs in zip(one.locate(positions), other.locate(positions), strict=True):
            assert ours.tolist() == theirs.tolist()
        assert pairs(*one.samples(0, len(positions))) == pairs(*other.samples(0, len(positions)))

    check()


@some_examples
def test_slots_and_positions_are_inverse(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(num_rows=st.one_of(st.integers(0, 300), st.integers(0, 10**15)), lanes=lane_counts, data=st.data())
    def check(num_rows: int, lanes: int, data: st.DataObject) -> None:
        assert sum(span_length(num_rows, lanes, lane) for lane in range(lanes)) == num_rows
        if num_rows <= 300:
            slots = list(range(num_rows))
            positions = [position_of_slot(slot, num_rows, lanes) for slot in slots]
            assert sorted(positions) == slots
            spans = reference.spans(num_rows, lanes)
            assert positions == [spans[slot % lanes][slot // lanes] for slot in slots]
        else:
            slots = data.draw(st.lists(st.integers(0, num_rows - 1), min_size=1, max_size=20))
            positions = position_of_slot(np.array(slots), num_rows, lanes).tolist()
        assert [slot_of_position(position, num_rows, lanes) for position in positions] == slots

    check()


@some_examples
def test_ways_to_follow_the_stream_agree(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        rows=blocks.filter(sum),
        seed=seeds,
        first_epoch=st.integers(0, 2**33),
        lanes=lane_counts,
        shuffle=st.booleans(),
        data=st.data(),
    )
    def check(rows: list[int], seed: int, first_epoch: int, lanes: int, shuffle: bool, data: st.DataObject) -> None:
        num_rows = sum(rows)
        count = min(3 * num_rows, 400)
        stream = Stream(StreamRules(layout(rows), seed, "", lanes, shuffle), first_epoch)
        expected = reference.stream(rows, seed, lanes, count, first_epoch, shuffle=shuffle)

        located = stream.locate(np.arange(count, dtype=np.int64))
        found = [
            (epoch, block, int(stream.row_permutation(epoch, block)[offset]))
            for epoch, block, offset in zip(*(column.tolist() for column in located[:3]), strict=True)
        ]
        assert found == expected

        for lane in data.draw(st.lists(st.integers(0, lanes - 1), min_size=1, max_size=4)):
            mine = list(range(lane, count, lanes))
            start = data.draw(st.integers(0, len(mine)))
            passed = []
            for visit in stream.visits(lane, start, items=len(mine)):
                assert visit.stop > visit.first
                assert visit.item == start + len(passed)
                order = stream.row_permutation(visit.epoch, visit.block)[visit.first : visit.stop].tolist()
                # `locate` says the same of when the lane leaves the block, unless the visit was cut at its end.
                last_slot = int(located.last_slot[visit.item * lanes + lane])
                reached = visit.item + len(order)
                assert last_slot == (reached - 1) * lanes + lane or reached == len(mine)
                passed += [(visit.epoch, visit.block, row) for row in order]
            assert passed == [expected[slot] for slot in mine[start:]]

        first = data.draw(st.integers(0, num_rows - 1))
        rest = data.draw(st.integers(0, num_rows - first))
        for epoch in (0, 1):
            whole = reference.stream(rows, seed, lanes, num_rows, first_epoch + epoch, shuffle=shuffle)
            whole = reference.stream(rows, seed, lanes, num_rows, first_epoch + epoch, shuffle=shuffle)
            bulk = pairs(*stream.samples(epoch * num_rows + first, rest))
            assert bulk == [sample[1:] for sample in whole[first : first + rest]]

    check()


@some_examples
def test_ranks_share_every_global_batch(examples: int) -> None:
    @settings(max_examples=2 * examples, deadline=None)
    @given(first=st.integers(0, 10**13), count=st.integers(0, 200), lanes=lane_counts, ranks=st.integers(1, 40))
    def check(first: int, count: int, lanes: int, ranks: int) -> None:
        shares = [share(first, count, lanes, ranks, rank).tolist() for rank in range(ranks)]
        assert sorted(slot for slots in shares for slot in slots) == list(range(first, first + count))
        assert all(slots == sorted(slots) for slots in shares)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        if count % ranks == 0:
            assert {len(slots) for slots in shares} == {count // ranks}
        assert shares == [reference.share(first, count, lanes, ranks, rank) for rank in range(ranks)]

    check()


@some_examples
def test_padded_shares_are_equal_and_lose_nothing(examples: int) -> None:
    @settings(max_examples=2 * examples, deadline=None)
    @given(first=st.integers(0, 10**6), count=st.integers(1, 200), lanes=lane_counts, ranks=st.integers(1, 40))
    def check(first: int, count: int, lanes: int, ranks: int) -> None:
        padded = [padded_share(first, count, lanes, ranks, rank) for rank in range(ranks)]
        assert {len(slots) for slots, _ in padded} == {-(-count // ranks)}
        own = [slot for slots, number in padded for slot in slots[:number].tolist()]
        assert sorted(own) == list(range(first, first + count))
        # What is missing is taken from the first slots of the batch, in turn.
        repeats = [slot for slots, number in padded for slot in slots[number:].tolist()]
        assert repeats == [first + number % count for number in range(len(repeats))]

    check()


@some_examples
def test_delivered_items_counts_the_slots_of_a_lane(examples: int) -> None:
    @settings(max_examples=2 * examples, deadline=None)
    @given(slots=st.integers(0, 500), lanes=lane_counts)
    def check(slots: int, lanes: int) -> None:
        assert [delivered_items(lane, slots, lanes) for lane in range(lanes)] == [
            sum(slot % lanes == lane for slot in range(slots)) for lane in range(lanes)
        ]

    check()


@pytest.mark.parametrize(
    ("num_blocks", "block_bytes", "lanes"),
    [
        *[(0, 0, 1), (1, 1, 1), (15, 1, 1), (31, 1, 1), (32, 1, 2), (63, 1, 2), (64, 1, 4), (16383, 1, 512)],
        *[(16384, 1, 1024), (10**9, 1, 1024), (10**9, 2 << 20, 1024), (10**9, 3 << 20, 512), (10**9, 1 << 30, 2)],
        *[(10**9, 2 << 30, 1), (10**9, 1 << 40, 1)],
    ],
)
def test_default_lanes(num_blocks: int, block_bytes: int, lanes: int) -> None:
    assert default_lanes(num_blocks, block_bytes) == lanes


@pytest.mark.parametrize("shuffle", [True, False])
def test_sparse_placement_of_many_blocks_finds_every_sample_again(shuffle: bool) -> None:
    """At the size where it is used: more blocks than a prefix sum is made for, some of them empty, larger, smaller."""
    number = 10**7 + 17
    exceptional = np.unique(np.random.default_rng(0).integers(0, number, 5000))
    rows = np.random.default_rng(1).integers(0, 1000, len(exceptional)) * 3
    layout = BlockLayout(number, 1000, exceptional, rows)
    order = EpochOrder(layout, 5, "", 0, shuffle=shuffle)
    assert type(order._placement).__name__ == "_SparsePlacement"
    positions = np.random.default_rng(2).integers(0, order.num_rows, 2000)
    positions = np.sort(np.concatenate((positions, [0, order.num_rows - 1])))
    located, offsets, left = order.locate(positions)
    assert (offsets >= 0).all()
    assert (left > 0).all()
    for position, block, offset in list(zip(positions.tolist(), located.tolist(), offsets.tolist(), strict=True))[::40]:
        row = int(order.row_permutation(block)[offset])
        assert order.position(block, row) == position
        assert pairs(*order.samples(position, position + 1)) == [(block, row)]


@pytest.mark.parametrize("sparse_from", [10**6, 10**7])
def test_dl24_slots_beyond_32_and_40_bits(monkeypatch: pytest.MonkeyPatch, sparse_from: int) -> None:
    """A million blocks of a million rows, and some others: nothing is counted in 32 bits."""
    monkeypatch.setattr(order_module, "_SPARSE_FROM_BLOCKS", sparse_from)
    rows = np.full(10**6, 10**6, np.int32)
    rows[::1000] = np.arange(1000)
    lanes = 1024
    stream = Stream(StreamRules(BlockLayout.of(rows), 3, "", lanes, True), 0)
    num_rows = int(rows.sum(dtype=np.int64))
    assert stream.num_rows == num_rows > 2**39
    slots = np.array([0, 2**31, 2**32 + 5, 2**39, num_rows - 1, num_rows, 3 * num_rows + 2**33], np.int64)
    located = stream.locate(slots)
    assert located.epoch.tolist() == [0, 0, 0, 0, 0, 1, 3]
    assert (located.offset < rows[located.block]).all()
    for at in (1, 3, 6):
        slot, epoch, block = int(slots[at]), int(located.epoch[at]), int(located.block[at])
        row = int(stream.row_permutation(epoch, block)[located.offset[at]])
        position = stream.order(epoch).position(block, row)
        assert slot_of_position(position, num_rows, lanes) + epoch * num_rows == slot
        visit = next(stream.visits(slot % lanes, slot // lanes))
        assert (visit.epoch, visit.block, visit.first) == (epoch, block, int(located.offset[at]))
