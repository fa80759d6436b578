"""Checks are only worth something if they fail on loaders that are wrong: each of these is, in a way seen before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

import dataflow
from dataflow.dataset import Dataset
from dataflow.sampling import lanes as lanes_module
from dataflow.sampling import state as state_module
from dataflow.sampling import stream as stream_module
from dataflow.sampling.cursor import rows_before
from dataflow.sampling.cursor_table import LaneCursor
from dataflow.sampling.ranks import share
from dataflow.sampling.state import StreamState
from tests.conformance.adapter import Dataflow
from tests.conformance.checks import (
    check_chain,
    check_equal_steps,
    check_every_sample_once,
    check_rank_missing_is_refused,
    check_resume_anywhere,
    check_same_stream,
)
from tests.conformance.job import ENDLESS, EPOCHS, FILTER, FILTER_EXACT, MODES, Mode, Way

WAYS = [Way(1, 24), Way(3, 8), Way(4, 6), Way(7, 24), Way(8, 3)]
LEGS = [(Way(1, 8), 7), (Way(3, 4, workers=2), 5), (Way(4, 2), 11), (Way(7, 3), 4), (Way(2, 16), 3), (Way(8, 1), 30)]
Rows = Callable[[int], Any]


@pytest.mark.parametrize("mode", [EPOCHS, FILTER_EXACT], ids=str)
def test_spans_as_l_times_n_over_lanes_are_caught(rows: Rows, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    def position_of_slot(slots: Any, num_rows: int, lanes: int) -> Any:
        return slots % lanes * num_rows // lanes + slots // lanes

    def span_length(num_rows: int, lanes: int, lane: int) -> int:
        return (lane + 1) * num_rows // lanes - lane * num_rows // lanes

    for module in (lanes_module, stream_module):
        monkeypatch.setattr(module, "position_of_slot", position_of_slot)
        if mode is EPOCHS:  # in the other mode lanes of these lengths would pass empty visits without end
            monkeypatch.setattr(module, "span_length", span_length)
    with pytest.raises(AssertionError, match="every sample once"):
        check_every_sample_once(Dataflow(), rows(37), mode, Way(1, 8), lanes=8)


class FirstCursorWins(Dataflow):
    """Merges states by keeping what the first of them says of a lane."""

    def merge_states(self, states: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        loaded = [StreamState.from_dict(state) for state in states]
        cursors: dict[int, Any] = {}
        for state in loaded:
            for lane, cursor in (state.cursors or {}).items():
                cursors.setdefault(lane, cursor)
        first = loaded[0]
        return replace(first, cursors=None if first.cursors is None else cursors).to_dict()


def test_a_merge_that_keeps_the_first_cursor_is_caught(rows: Rows) -> None:
    with pytest.raises(AssertionError, match="states differ"):
        check_same_stream(FirstCursorWins(), rows(500), FILTER, WAYS, 400, lanes=8)
    with pytest.raises(AssertionError, match="does not load"):
        check_chain(FirstCursorWins(), rows(500), FILTER, LEGS, lanes=8)


def test_a_merge_that_keeps_the_first_cursor_is_caught_by_the_states_alone(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody checks what is loaded: a lane then goes on from further back, which costs reads only."""
    monkeypatch.setattr(StreamState, "check_complete", lambda self, nesting=None: None)
    with pytest.raises(AssertionError, match="states differ"):
        check_same_stream(FirstCursorWins(), rows(500), FILTER, WAYS, 400, lanes=8)


class LowestCursorWins(Dataflow):
    """Merges states by keeping the lowest cursor of a lane."""

    def merge_states(self, states: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        def reached(state: Mapping[str, Any]) -> int:
            cursors = StreamState.from_dict(state).cursors or {}
            return sum(cursor.items + rows_before(cursor.upstream) for cursor in cursors.values())

        return FirstCursorWins().merge_states(sorted(states, key=reached))


def test_a_merge_that_keeps_the_lowest_cursor_is_caught(rows: Rows) -> None:
    with pytest.raises(AssertionError):
        check_same_stream(LowestCursorWins(), rows(500), FILTER, WAYS, 400, lanes=8)


class UncheckedMerge(Dataflow):
    """Merges the states that are there, whoever is missing."""

    def merge_states(self, states: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        best: dict[int, LaneCursor] = {}
        loaded = [StreamState.from_dict(state) for state in states]
        for state in loaded:
            for lane, cursor in (state.cursors or {}).items():
                best[lane] = max(best.get(lane, cursor), cursor)
        last = loaded[-1]
        return replace(last, cursors=None if last.cursors is None else best).to_dict()


@pytest.mark.parametrize("mode", [FILTER, FILTER_EXACT], ids=str)
def test_a_merge_that_does_not_miss_a_rank_is_caught(rows: Rows, mode: Mode) -> None:
    with pytest.raises(AssertionError, match=r"lost silently|without one"):
        check_rank_missing_is_refused(UncheckedMerge(), rows(500), mode, Way(4, 6), 5, lanes=24)


class Historian(dataflow.DataLoader):
    """States are what this object delivered since iter(), in batches."""

    counted = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.counted = 0
        for batch in super().__iter__():
            self.counted += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "slots": self.counted * int(self.batch_size or 1) * self.world_size}


class Wrapped(Dataflow):
    """Loaders of another class."""

    def __init__(self, kind: type[dataflow.DataLoader]) -> None:
        self._kind = kind

    def make_loader(self, dataset: Dataset, **options: Any) -> dataflow.DataLoader:
        return self._kind(dataset, **options)


@pytest.mark.parametrize("mode", [EPOCHS, ENDLESS], ids=str)
def test_a_state_by_object_history_is_caught(rows: Rows, mode: Mode) -> None:
    with pytest.raises(AssertionError):
        check_chain(Wrapped(Historian), rows(500), mode, LEGS, lanes=8)
    with pytest.raises(AssertionError):
        check_chain(Wrapped(Historian), rows(500), mode, [(Way(1, 8), 7)] * 6)
    with pytest.raises(AssertionError):
        check_resume_anywhere(Wrapped(Historian), rows(180), mode, Way(2, 12), Way(3, 5))


class CountsAhead(dataflow.DataLoader):
    """States are of the batch that was made, one ahead of the one that was delivered."""

    _ahead: dict[str, Any] | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        iterator = super().__iter__()
        following = next(iterator, None)
        while following is not None:
            batch, following = following, next(iterator, None)
            yield batch


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_state_that_counts_prefetched_batches_is_caught(rows: Rows, mode: Mode) -> None:
    with pytest.raises(AssertionError):
        check_chain(Wrapped(CountsAhead), rows(500), mode, LEGS, lanes=8)


class CutByRank(dataflow.DataLoader):
    """Every rank has an order of its own, from a seed of its own."""

    def __init__(self, dataset: Dataset, *, rank: int, **options: Any) -> None:
        super().__init__(dataset, rank=rank, seed=rank, **options)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_an_order_that_depends_on_the_rank_is_caught(rows: Rows, mode: Mode) -> None:
    with pytest.raises(AssertionError):
        check_same_stream(Wrapped(CutByRank), rows(500), mode, WAYS, 400, lanes=8)


class LanesOfRanks(dataflow.DataLoader):
    """The order is cut into as many lanes as there are ranks."""

    def __init__(self, dataset: Dataset, *, world_size: int, lanes: int, **options: Any) -> None:
        super().__init__(dataset, world_size=world_size, lanes=lanes * world_size, **options)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_an_order_that_depends_on_the_number_of_ranks_is_caught(rows: Rows, mode: Mode) -> None:
    with pytest.raises(AssertionError):
        check_same_stream(Wrapped(LanesOfRanks), rows(500), mode, WAYS, 400, lanes=8)


class SameOrderAgain(dataflow.DataLoader):
    """Every epoch is the first one."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.set_epoch(0)
        return super().__iter__()


def test_an_order_that_repeats_is_caught(rows: Rows) -> None:
    with pytest.raises(AssertionError, match="one order"):
        check_every_sample_once(Wrapped(SameOrderAgain), rows(500), EPOCHS, Way(2, 8))


def test_ranks_that_drop_what_does_not_divide_are_caught(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataflow.pipeline import plan

    monkeypatch.setattr(plan, "padded_share", lambda *batch: (own := share(*batch), len(own)))
    with pytest.raises(AssertionError, match="different numbers of rows"):
        check_equal_steps(Dataflow(), rows(37), EPOCHS, Way(4, 4))


def test_the_checks_pass_what_is_right(rows: Rows) -> None:
    """Not that they fail whatever comes."""
    for mode in MODES:
        check_same_stream(Dataflow(), rows(500), mode, WAYS, 400, lanes=8)
        check_chain(Dataflow(), rows(500), mode, LEGS, lanes=8)
    assert state_module.merge_states is dataflow.merge_states
