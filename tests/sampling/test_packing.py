"""Which documents share a row, against a plain reference, and how full rows are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.sampling.packing import best_fit, bin_order, first_fit, window_size

Fit = Callable[[Sequence[int], int], list[list[int]]]


def plain_best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """The longest first, each into the fullest bin that has room; of equal ones, into the one that changed last."""
    bins: list[list[int]] = []
    room: list[int] = []
    changed: list[int] = []
    for turn, item in enumerate(sorted(range(len(lengths)), key=lambda item: -lengths[item])):
        fitting = [number for number in range(len(bins)) if room[number] >= lengths[item]]
        if fitting:
            number = min(fitting, key=lambda number: (room[number], -changed[number]))
        else:
            number = len(bins)
            bins.append([])
            room.append(capacity)
            changed.append(turn)
        bins[number].append(item)
        room[number] -= lengths[item]
        changed[number] = turn
    return bins


def plain_first_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    bins: list[list[int]] = []
    for item, length in enumerate(lengths):
        for items in bins:
            if sum(lengths[other] for other in items) + length <= capacity:
                items.append(item)
                break
        else:
            bins.append([item])
    return bins


@pytest.mark.parametrize(("fit", "plain"), [(best_fit, plain_best_fit), (first_fit, plain_first_fit)])
@given(data=st.data())
def test_bins_are_those_of_the_plain_rule(fit: Fit, plain: Fit, data: st.DataObject) -> None:
    capacity = data.draw(st.integers(1, 40))
    lengths = data.draw(st.lists(st.integers(1, capacity), max_size=60))
    bins = fit(lengths, capacity)
    assert bins == plain(lengths, capacity)
    assert sorted(item for items in bins for item in items) == list(range(len(lengths)))
    assert all(sum(lengths[item] for item in items) <= capacity for items in bins)


def test_the_reference_vector() -> None:
    """Windows of five documents, ten tokens a row: what shares a row, and how it is laid there."""
    assert best_fit([6, 3, 9, 3, 8], 10) == [[2], [4], [0, 1], [3]]
    assert best_fit([2, 1, 7, 4, 1], 10) == [[2, 0, 1], [3, 4]]


def test_tk09_rows_that_are_just_full_have_no_empty_document() -> None:
    assert best_fit([5, 5, 4, 6], 10) == [[3, 2], [0, 1]]
    assert best_fit([10, 10], 10) == [[0], [1]]


def text_lengths(count: int) -> list[int]:
    """Like those of web pages: log-normal, cut at a row."""
    drawn = np.random.default_rng(0).lognormal(6.3, 1.1, count)
    return np.clip(drawn, 1, 4096).astype(int).tolist()


def test_lengths_of_texts_fill_rows() -> None:
    lengths = text_lengths(1 << 14)
    rows = 0
    for start in range(0, len(lengths), 1024):
        rows += len(best_fit(lengths[start : start + 1024], 4096))
    assert 1 - sum(lengths) / (rows * 4096) < 0.01


def test_windows_of_lanes_are_out_of_phase() -> None:
    assert [window_size(100, lane, 4, (0, 0)) for lane in range(4)] == [100, 26, 51, 76]
    assert [window_size(100, lane, 4, (3, 0)) for lane in range(4)] == [100] * 4
    # A row of which some parts were given is not the beginning.
    assert window_size(100, 1, 4, ((0, 2), 0)) == 100


def test_the_order_of_bins_is_one_of_its_window() -> None:
    orders = [bin_order(50, 0, "", lane, before) for lane in (0, 1) for before in ((0, 0), (7, 0), ((7, 1), 0))]
    assert all(sorted(order) == list(range(50)) for order in orders)
    assert len({tuple(order) for order in orders}) == 6
    assert orders[0] == bin_order(50, 0, "", 0, (0, 0))
