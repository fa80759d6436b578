"""Cursors of stages that nest, and states that hold them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import StateError
from dataflow.sampling.cursor import depth, flat, nested, rows_before, start
from dataflow.sampling.cursor_table import LaneCursor
from dataflow.sampling.lanes import delivered_items
from dataflow.sampling.state import StreamState


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=12))
def test_a_cursor_is_its_numbers(numbers: list[int]) -> None:
    cursor = nested(numbers)
    assert list(flat(cursor)) == numbers
    assert rows_before(cursor) == numbers[0]
    assert depth(cursor) == len(numbers) - 1
    for known in ([1], [0, 1, 2, 3]):
        state = StreamState("d", "p", 0, 4, 0, 6, {lane: LaneCursor(2 - (lane > 1), cursor) for lane in known})
        assert StreamState.from_dict(json.loads(json.dumps(state.to_dict()))) == state


def test_the_start_of_stages_that_nest() -> None:
    assert [start(levels) for levels in range(3)] == [0, (0, 0), ((0, 0), 0)]


@pytest.mark.parametrize("numbers", [[-1], [1, -1], [1.0], ["1"], [True], [1, None], [2**63], [0] * 40, [[1]]])
def test_what_is_no_cursor_is_refused(numbers: Any) -> None:
    with pytest.raises(ValueError, match="cursor"):
        nested(numbers)
    state = StreamState("d", "p", 0, 4, 0, 6, {}).to_dict()
    state["cursors"] = {"numbers": [[number] * 4 for number in numbers]}
    with pytest.raises(StateError, match="damaged"):
        StreamState.from_dict(state)


def test_a_cursor_of_another_nesting_is_refused() -> None:
    state = StreamState("d", "p", 0, 2, 0, 2, {0: LaneCursor(1, (3, 1)), 1: LaneCursor(1, (4, 0))})
    state.check_complete(1)
    with pytest.raises(StateError, match="lane 0"):
        state.check_complete(0)


def test_states_of_thousands_of_lanes_are_small() -> None:
    lanes, slots = 4096, 4096 * 250_000 + 77
    cursors = {
        lane: LaneCursor(delivered_items(lane, slots, lanes), (300_000 + lane * 7 % 991, lane * 13 % 400))
        for lane in range(lanes)
    }
    state = StreamState("d" * 32, "p" * 32, 0, lanes, 0, slots, cursors)
    made = state.to_dict()
    assert len(json.dumps(made)) <= 64 << 10
    assert StreamState.from_dict(json.loads(json.dumps(made))) == state
