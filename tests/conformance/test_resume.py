"""Resume: a state from anywhere, loaded on any other number of ranks, continues the one stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.adapter import Adapter
from tests.conformance.checks import check_chain, check_resume_anywhere, saved, text
from tests.conformance.job import (
    DROP_LAST,
    ENDLESS,
    EPOCHS,
    FILTER,
    FILTER_EXACT,
    MODES,
    THREE_EPOCHS,
    Job,
    Mode,
    Way,
    delivered,
)

by_name = pytest.mark.parametrize("mode", MODES, ids=str)

#: Ranks and batch change at each of five resumes; the last leg crosses the end of an epoch or two.
LEGS = [
    (Way(1, 8), 7),
    (Way(3, 4, workers=2), 5),
    (Way(4, 2), 11),
    (Way(7, 3, workers=1, prefetch=4), 4),
    (Way(2, 16), 3),
    (Way(8, 1), 60),
]
#: The same with steps of 24 slots, so that what drop_last leaves out is always the same.
EVEN_LEGS = [(Way(1, 24), 7), (Way(3, 8), 5), (Way(4, 6), 12), (Way(8, 3), 9), (Way(2, 12), 3), (Way(6, 4), 30)]


@by_name
@pytest.mark.parametrize("lanes", [8, 24])
def test_five_chained_resumes_equal_the_straight_run(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, lanes: int
) -> None:
    check_chain(adapter, rows(500), mode, LEGS, lanes=lanes)


@by_name
def test_five_chained_resumes_on_uneven_blocks_equal_the_straight_run(
    adapter: Adapter, uneven: Any, mode: Mode
) -> None:
    check_chain(adapter, uneven, mode, LEGS)


@by_name
def test_five_chained_resumes_in_stored_order_equal_the_straight_run(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode
) -> None:
    check_chain(adapter, rows(180), mode, LEGS, shuffle=False, lanes=8)


@pytest.mark.parametrize("size", [37, 180])
def test_five_chained_resumes_of_iterations_over_three_epochs(
    adapter: Adapter, rows: Callable[[int], Any], size: int
) -> None:
    check_chain(adapter, rows(size), THREE_EPOCHS, LEGS, lanes=8)


@pytest.mark.parametrize("size", [1, 3, 37])
@by_name
def test_five_chained_resumes_on_few_rows_equal_the_straight_run(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, size: int
) -> None:
    check_chain(adapter, rows(size), mode, [(way, min(steps, 6)) for way, steps in LEGS], lanes=8)


def test_five_chained_resumes_with_drop_last(adapter: Adapter, rows: Callable[[int], Any]) -> None:
    found = []
    state = None
    for way, steps in EVEN_LEGS:
        with Job(adapter, rows(500), DROP_LAST, way, state) as job:
            found += delivered(job.run(steps))
            state = saved(job.merged())
    with Job(adapter, rows(500), DROP_LAST, Way(1, 24)) as job:
        assert found == delivered(job.run(sum(steps for _, steps in EVEN_LEGS)))


@by_name
@pytest.mark.parametrize(("way", "other"), [(Way(2, 12), Way(3, 5)), (Way(3, 8, workers=1), Way(1, 8))], ids=str)
def test_a_state_from_anywhere_continues(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, way: Way, other: Way
) -> None:
    check_resume_anywhere(adapter, rows(180), mode, way, other, epochs=1, lanes=8)


@by_name
def test_a_state_from_anywhere_in_small_steps_continues(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode
) -> None:
    """Steps smaller than the lanes: none of them touches all lanes."""
    check_resume_anywhere(adapter, rows(80), mode, Way(2, 2), Way(1, 4), epochs=1, lanes=24)


@pytest.mark.soak
@by_name
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("lanes", [8, 24])
def test_states_from_everywhere_continue_on_any_ranks(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, ranks: int, lanes: int
) -> None:
    for other, batch in itertools.product((1, 2, 3, 8), (1, 5)):
        check_resume_anywhere(
            adapter, rows(180), mode, Way(ranks, 6, workers=1), Way(other, batch), epochs=1, every=9, lanes=lanes
        )


@by_name
def test_rs24_a_state_saved_right_after_a_load_is_the_one_that_was_loaded(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode
) -> None:
    with Job(adapter, rows(500), mode, Way(3, 8, workers=1), lanes=8) as job:
        states = [saved(job.merged())]
        for _ in range(9):
            job.run(1)
            states.append(saved(job.merged()))
    for state in states:
        for way in (Way(1, 8), Way(2, 3), Way(3, 8)):
            with Job(adapter, rows(500), mode, way, state, lanes=8) as job:
                assert text(job.merged()) == text(state)
                assert {text(now) for now in job.states()} == {text(state)}


RANDOM = [pytest.param(8, id="quick"), pytest.param(150, id="soak", marks=pytest.mark.soak)]


@pytest.mark.parametrize("examples", RANDOM)
def test_any_chain_equals_the_straight_run(
    adapter: Adapter, rows: Callable[[int], Any], uneven: Any, examples: int
) -> None:
    ways = st.builds(
        Way,
        ranks=st.integers(1, 9),
        batch=st.integers(1, 20),
        workers=st.sampled_from([0, 0, 1, 4]),
        prefetch=st.sampled_from([1, 2, 8]),
    )
    legs = st.lists(st.tuples(ways, st.integers(0, 12)), min_size=2, max_size=6)

    @settings(max_examples=examples, deadline=None)
    @given(
        mode=st.sampled_from([EPOCHS, ENDLESS, FILTER, FILTER_EXACT]),
        lanes=st.sampled_from([None, 1, 3, 8, 24, 64]),
        size=st.sampled_from([None, 3, 37, 180]),
        legs=legs,
    )
    def check(mode: Mode, lanes: int | None, size: int | None, legs: list[tuple[Way, int]]) -> None:
        check_chain(adapter, uneven if size is None else rows(size), mode, legs, lanes=lanes)

    check()
