"""Pipelines in which rows are not samples one to one: the same global stream, elastic and resumed exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from tests.conformance.adapter import Adapter
from tests.conformance.checks import (
    check_chain,
    check_equal_steps,
    check_rank_missing_is_refused,
    check_resume_anywhere,
    check_same_stream,
)
from tests.conformance.job import Job, Mode, Way, delivered
from tests.conformance.pipelines import PIPELINES, tokens_of
from tests.conformance.test_resume import LEGS
from tests.conformance.test_stream import FEW_WAYS

EXPANDING = [name for name in PIPELINES if name != "map"]
PACKING = [name for name in PIPELINES if name.startswith("pack ")]


def endless(name: str) -> Mode:
    return Mode(f"{name}, endless", options={"steps_per_epoch": 40}, stages=name)


def exact(name: str) -> Mode:
    return Mode(f"{name}, exact", options={"end": "exact"}, stages=name)


MIXED = [name for name in PIPELINES if name.startswith("mix")]
MODES = [kind(name) for name in EXPANDING for kind in (endless, exact) if not (name in MIXED and kind is exact)]
by_name = pytest.mark.parametrize("mode", MODES, ids=str)


@by_name
def test_the_stream_does_not_depend_on_how_it_is_consumed(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode
) -> None:
    ways = [Way(1, 24), Way(3, 8, workers=4), Way(8, 3)] if mode.exact else FEW_WAYS
    check_same_stream(adapter, rows(180), mode, ways, 40 if mode.exact else 160, lanes=8)


@by_name
def test_five_chained_resumes_equal_the_straight_run(adapter: Adapter, rows: Callable[[int], Any], mode: Mode) -> None:
    legs = [(way, min(steps, 2 if mode.exact else 12)) for way, steps in LEGS]
    check_chain(adapter, rows(180), mode, legs, lanes=8)


@by_name
def test_a_state_from_anywhere_continues(adapter: Adapter, rows: Callable[[int], Any], mode: Mode) -> None:
    check_resume_anywhere(adapter, rows(80), mode, Way(2, 6), Way(3, 5), epochs=1, every=9, lanes=8)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode.exact], ids=str)
@pytest.mark.parametrize("size", [3, 37])
def test_all_ranks_take_equal_steps(adapter: Adapter, rows: Callable[[int], Any], mode: Mode, size: int) -> None:
    check_equal_steps(adapter, rows(size), mode, Way(3, 4), lanes=8)


@pytest.mark.parametrize("name", [name for name, pipeline in PIPELINES.items() if pipeline.expected is not None])
@pytest.mark.parametrize("way", [Way(1, 8), Way(3, 5, workers=2)], ids=str)
def test_every_sample_comes_once_an_epoch(adapter: Adapter, rows: Callable[[int], Any], name: str, way: Way) -> None:
    expected = PIPELINES[name].expected
    assert expected is not None
    orders = []
    with Job(adapter, rows(180), exact(name), way, lanes=8) as job:
        for _ in range(2):
            found = [sample for _, sample in delivered(job.epoch())]
            assert Counter(found) == Counter(expected(180))
            orders.append(found)
    assert orders[0] != orders[1]


@pytest.mark.parametrize("name", PACKING)
@pytest.mark.parametrize("way", [Way(1, 8), Way(3, 5, workers=2)], ids=str)
def test_every_token_comes_once_an_epoch(adapter: Adapter, rows: Callable[[int], Any], name: str, way: Way) -> None:
    documents = [tokens_of(number) for number in range(180)]
    if "first_fit" in name:
        documents = [tokens for tokens in documents if len(tokens) <= 32]  # longer ones are dropped
    with Job(adapter, rows(180), exact(name), way, lanes=8) as job:
        for _ in range(2):
            found = [sample for _, sample in delivered(job.epoch())]
            assert Counter(chain.from_iterable(tokens for _, tokens in found)) == Counter(
                chain.from_iterable(documents)
            )


@pytest.mark.parametrize("name", ["flat_map", "pack best_fit", "pack concat"])
def test_a_merge_with_a_rank_missing_is_refused(adapter: Adapter, rows: Callable[[int], Any], name: str) -> None:
    check_rank_missing_is_refused(adapter, rows(180), endless(name), Way(4, 6), 5, lanes=24)


@pytest.mark.soak
@by_name
@pytest.mark.parametrize("lanes", [8, 24])
def test_the_stream_does_not_depend_on_any_way(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, lanes: int
) -> None:
    ways = [Way(ranks, 168 // ranks, workers) for ranks in (1, 2, 3, 4, 7, 8) for workers in (1, 4)]
    check_same_stream(adapter, rows(180), mode, ways, 60 if mode.exact else 300, lanes=lanes)


@pytest.mark.soak
@by_name
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_states_from_everywhere_continue_on_any_ranks(
    adapter: Adapter, rows: Callable[[int], Any], mode: Mode, ranks: int
) -> None:
    for other in (2, 7):
        check_resume_anywhere(
            adapter, rows(90), mode, Way(ranks, 6, workers=1), Way(other, 5), epochs=1, every=9, lanes=24
        )
