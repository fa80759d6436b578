"""The schedule of mixtures: the reference, closed forms against counting, and how near the weights it stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import OptionError
from dataflow.sampling.mixture import Draws, Schedule, Segment, source_lanes

REFERENCE = (
    "aaabaabaaaaabaabbaaaabaaabaababaaabaababaaabaabaaababaabbaababaa"
    "bbbbbbabbbbbbbbabbbbbbbbbbbbabbbbbbbbabbbabbbbabbbabbbbbbbbabbbb"
)


def segments(*given: tuple[int, Sequence[float | str]]) -> list[Segment]:
    return [Segment(slot, tuple(Fraction(weight) for weight in weights)) for slot, weights in given]


def two() -> list[Segment]:
    return segments((0, ["0.7", "0.29", "0.01"]), (64, ["0.1", "0.9", "0"]))


def test_the_reference_vector() -> None:
    schedule = Schedule(8, two())
    assert "".join("abc"[source] for source in schedule.sources(0, 128)) == REFERENCE
    assert "".join("abc"[source] for source in schedule.sources(50, 40)) == REFERENCE[50:90]
    assert schedule.counts(3, 8 * 100) == [14, 86, 0]


schedules = st.builds(
    Schedule,
    st.integers(1, 40),
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3).filter(any), min_size=1, max_size=3).map(
        lambda weights: segments(*((number * 37, given) for number, given in enumerate(weights)))
    ),
    st.integers(0, 2**64 - 1),
)


@given(schedules, st.integers(0, 400))
def test_closed_counts_are_those_of_counting(schedule: Schedule, slots: int) -> None:
    drawn = schedule.sources(0, slots).tolist()
    for lane in range(schedule.lanes):
        counted = Counter(drawn[lane :: schedule.lanes])
        assert schedule.counts(lane, slots) == [counted[source] for source in range(3)]
    counted = Counter(drawn)
    assert schedule.delivered(slots) == [counted[source] for source in range(3)]


def test_counts_far_out_go_on_from_each_other() -> None:
    schedule = Schedule(64, segments((0, ["0.123456789", "0.5", "1e-6"])))
    far = 10**15 + 7
    before, after = schedule.delivered(far), schedule.delivered(far + 5000)
    counted = np.bincount(schedule.sources(far, 5000), minlength=3).tolist()
    assert [b - a for a, b in zip(before, after, strict=True)] == counted
    assert sum(before) == far


@pytest.mark.parametrize("weights", [["0.7", "0.3"], ["0.5", "0.25", "0.25"], ["0.9", "0.09", "0.01"], ["1"] * 7])
def test_counts_stay_near_the_weights(weights: list[str]) -> None:
    """Within 12 of the weights over any 10,000 items, and within 4 over those of a lane."""
    shares = np.array([float(Fraction(weight) / sum(map(Fraction, weights))) for weight in weights])
    for lanes in (1, 8, 64, 1024):
        schedule = Schedule(lanes, segments((0, weights)))
        drawn = schedule.sources(0, 60_000)
        hits = np.eye(len(weights), dtype=np.int64)[drawn]
        sums = np.concatenate([np.zeros((1, len(weights)), np.int64), hits.cumsum(0)])
        assert np.abs(sums[10_000:] - sums[:-10_000] - 10_000 * shares).max() <= 12
        for lane in range(min(lanes, 8)):
            of_lane = hits[lane::lanes].cumsum(0)
            expected = np.arange(1, len(of_lane) + 1)[:, None] * shares
            assert np.abs(of_lane - expected).max() <= 4


@settings(max_examples=60, deadline=None)
@given(schedules, st.lists(st.sampled_from([1, 2, 4, 8]), min_size=3, max_size=3), st.data())
def test_items_of_a_source_are_each_drawn_once_in_order(
    schedule: Schedule, own: list[int], data: st.DataObject
) -> None:
    own = [min(lanes, 1 << (schedule.lanes.bit_length() - 1)) for lanes in own]
    whole = Draws(schedule, own).take(0, 500)
    for source, lanes in enumerate(own):
        (slots,) = np.nonzero(whole.source == source)
        items = whole.item[slots]
        for lane in range(lanes):
            here = items[slots % schedule.lanes % lanes == lane]
            assert here.tolist() == [lane + lanes * number for number in range(len(here))]
    first = data.draw(st.integers(0, 400))
    draws = Draws(schedule, own)
    draws.take(first, 60)
    parts = draws.take(first + 60, 40), draws.take(first, 100)
    assert parts[0].item.tolist() == whole.item[first + 60 : first + 100].tolist()
    part = parts[1]
    assert part.source.tolist() == whole.source[first : first + 100].tolist()
    assert part.item.tolist() == whole.item[first : first + 100].tolist()


def test_the_order_of_a_source_does_not_depend_on_the_others() -> None:
    """Its items come in the order of its own lanes, whatever is drawn in between."""
    for weights in (["1", "1"], ["5", "1"], ["1", "9"]):
        drawn = Draws(Schedule(8, segments((0, weights))), [4, 4]).take(0, 4000)
        mine = drawn.item[drawn.source == 0]
        for lane in range(4):
            of_lane = mine[mine % 4 == lane]
            assert of_lane.tolist() == list(range(lane, lane + 4 * len(of_lane), 4))


@given(schedules, st.integers(0, 60), st.integers(0, 2))
def test_where_a_source_has_given_all(schedule: Schedule, items: int, source: int) -> None:
    if not schedule.segments[-1].weights[source]:
        with pytest.raises(OptionError, match="weight 0"):
            schedule.first_beyond(source, items)
        return
    slot = schedule.first_beyond(source, items)
    assert schedule.delivered(slot)[source] == items
    assert schedule.sources(slot, 1)[0] == source


@pytest.mark.parametrize(
    ("lanes", "share", "blocks", "expected"),
    [
        (1024, "1/2", 10**6, 1024),
        (1024, "1/4", 10**6, 512),
        (1024, "1/1000", 10**6, 2),
        (1024, "1/2", 100, 4),
        (8, "1/100", 3, 1),
    ],
)
def test_lanes_of_a_source(lanes: int, share: str, blocks: int, expected: int) -> None:
    assert source_lanes(lanes, Fraction(share), blocks) == expected


def test_open_blocks_of_many_sources_are_bounded() -> None:
    weights = [Fraction(number + 1) for number in range(50)]
    lanes = [source_lanes(1024, weight / sum(weights), 10**9) for weight in weights]
    assert sum(lanes) <= 2 * 1024 + 50


@pytest.mark.parametrize("weights", [["-1", "2"], ["0", "0"], []])
def test_weights_that_cannot_be(weights: list[str]) -> None:
    with pytest.raises(OptionError, match="weights"):
        Schedule(8, segments((0, weights)))
