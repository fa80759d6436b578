"""Cursors of stages that nest, and states that hold them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import StateError
from dataflow.sampling.cursor import depth, flat, nested, rows_before, start
from dataflow.sampling.state import LaneCursor, StreamState


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=12))
def test_a_cursor_is_its_numbers(numbers: list[int]) -> None:
    cursor = nested(numbers)
    assert list(flat(cursor)) == numbers
    assert rows_before(cursor) == numbers[0]
    assert depth(cursor) == len(numbers) - 1
    state = StreamState("d", "p", 0, 4, 0, 6, {1: LaneCursor(2, cursor)})
    assert StreamState.from_dict(state.to_dict()) == state


def test_the_start_of_stages_that_nest() -> None:
    assert [start(levels) for levels in range(3)] == [0, (0, 0), ((0, 0), 0)]


@pytest.mark.parametrize("numbers", [[], [-1], [1, -1], [1.0], ["1"], [True], [1, None], [2**63], [0] * 40, [[1]]])
def test_what_is_no_cursor_is_refused(numbers: Any) -> None:
    with pytest.raises(ValueError, match="cursor"):
        nested(numbers)
    state = StreamState("d", "p", 0, 4, 0, 6, {}).to_dict()
    state["cursors"] = {"1": [2, *numbers]}
    with pytest.raises(StateError, match="damaged"):
        StreamState.from_dict(state)


def test_a_cursor_of_another_nesting_is_refused() -> None:
    state = StreamState("d", "p", 0, 2, 0, 2, {0: LaneCursor(1, (3, 1)), 1: LaneCursor(1, (4, 0))})
    state.check_complete(1)
    with pytest.raises(StateError, match="lane 0"):
        state.check_complete(0)
