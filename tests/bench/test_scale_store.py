"""The simulated store against closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import tenacity

from bench.scale.events import Events
from bench.scale.fair_share import FairShare
from bench.scale.latency import Latency
from bench.scale.slowest import seconds_to_first_byte, slowest_of
from bench.scale.store import SimulatedStore, StoreRules
from dataflow.storage.retry import RetryPolicy

FREE = StoreRules(bandwidth=1e18, connection_bandwidth=1e18, request_rate=1e12, latency=Latency(0.0))


def read_all(
    rules: StoreRules, starts: list[float], nbytes: int = 1, seed: int = 0
) -> tuple[SimulatedStore, list[float]]:
    """Seconds that reads take which start at given times, in the order of their ends."""
    events = Events()
    store = SimulatedStore(events, rules, np.random.default_rng(seed))
    taken: list[float] = []

    def start(at: float) -> None:
        store.read(nbytes, lambda seconds: None, lambda: taken.append(events.now - at))

    for at in starts:
        events.at(at, start, at)
    events.run()
    return store, taken


def ends(share: Callable[[Events], FairShare], tasks: list[tuple[float, float]]) -> list[float]:
    """When tasks of (start, amount) end."""
    events = Events()
    server = share(events)
    ended = [math.nan] * len(tasks)

    def start(number: int, amount: float) -> None:
        server.add(amount, lambda: ended.__setitem__(number, events.now))

    for number, (at, amount) in enumerate(tasks):
        events.at(at, start, number, amount)
    events.run()
    return ended


def test_equal_tasks_share_the_capacity() -> None:
    assert ends(lambda events: FairShare(events, 100.0, 1000.0), [(0.0, 50.0)] * 4) == pytest.approx([2.0] * 4)


def test_no_task_takes_more_than_its_bound() -> None:
    assert ends(lambda events: FairShare(events, 100.0, 20.0), [(0.0, 50.0)] * 4) == pytest.approx([2.5] * 4)


def test_capacity_that_a_task_leaves_goes_to_the_others() -> None:
    # Alone up to 1 (10 of 30 done), two up to 3 (the second has its 10), alone for the last 10.
    assert ends(lambda events: FairShare(events, 10.0, 99.0), [(0.0, 30.0), (1.0, 10.0)]) == pytest.approx([4.0, 3.0])


def test_a_busy_server_works_all_the_time() -> None:
    generator = np.random.default_rng(0)
    starts, amounts = np.sort(generator.random(500)), generator.exponential(1.0, 500)
    ended = ends(lambda events: FairShare(events, 7.0, 3.0), list(zip(starts.tolist(), amounts.tolist(), strict=True)))
    # From when three are there on, until three are left, it gives all that it has: at the end less.
    assert max(ended) == pytest.approx(amounts.sum() / 7.0, rel=0.03)
    assert max(ended) > amounts.sum() / 7.0


def test_requests_queue_as_in_md1() -> None:
    rate, load = 1000.0, 0.7
    gaps = np.random.default_rng(1).exponential(1 / (rate * load), 40_000)
    _, taken = read_all(replace(FREE, request_rate=rate), np.cumsum(gaps).tolist())
    assert np.mean(taken) == pytest.approx(load / (2 * rate * (1 - load)), rel=0.06)


def test_one_reader_is_bound_by_latency_and_connection() -> None:
    rules = replace(FREE, latency=Latency(0.25), connection_bandwidth=4e6)
    assert read_all(rules, [0.0, 7.0], nbytes=1_000_000)[1] == pytest.approx([0.5, 0.5])


def test_latency_has_the_distribution_that_it_says() -> None:
    latency = Latency(0.03, 0.5, 0.01, 20.0)
    drawn = latency.sample(400_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(latency.mean, rel=0.01)
    for percent in (10.0, 50.0, 95.0, 99.5):
        assert np.percentile(drawn, percent) == pytest.approx(latency.percentile(percent), rel=0.03)


def test_failures_cost_requests_and_pauses() -> None:
    rules = replace(FREE, latency=Latency(0.01), failure_rate=0.2)
    store, taken = read_all(rules, [0.0] * 10_000)
    assert store.requests / len(taken) == pytest.approx(1 / 0.8, rel=0.02)
    # After the n-th failure, a pause of 0.2 * 2 ** (n - 1) / 2 on average.
    expected = 0.01 / 0.8 + sum(0.2**n * 0.2 * 2 ** (n - 1) / 2 for n in range(1, 10))
    assert np.mean(taken) == pytest.approx(expected, rel=0.08)


def test_pauses_have_the_bounds_of_the_real_rule() -> None:
    policy = RetryPolicy()
    wait = tenacity.wait_random_exponential(policy.first_wait_seconds, policy.longest_wait_seconds)
    state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    for attempt in range(1, policy.attempts):
        state.attempt_number = attempt
        most = max(wait(state) for _ in range(2000))
        ours = min(policy.longest_wait_seconds, policy.first_wait_seconds * 2 ** (attempt - 1))
        assert 0.98 * ours < most <= ours


def test_a_read_that_keeps_failing_is_given_up() -> None:
    store, taken = read_all(replace(FREE, failure_rate=1.0), [0.0])
    assert (store.given_up, store.requests, taken) == (1, RetryPolicy().attempts, [])


def test_an_answer_that_never_comes_is_tried_again() -> None:
    store, taken = read_all(replace(FREE, latency=Latency(30.0, 1.5)), [0.0] * 50)
    assert store.requests > len(taken)
    assert max(taken) > RetryPolicy().idle_seconds


@pytest.mark.parametrize("percentile", [None, 90.0])
def test_shortcut_to_the_first_byte_is_the_same_rule(percentile: float | None) -> None:
    latency = Latency(0.03, 0.5, 0.02, 20.0)
    rules = replace(FREE, latency=latency, failure_rate=0.03, hedge_percentile=percentile)
    _, taken = read_all(rules, np.arange(0, 200, 0.01).tolist())
    short = seconds_to_first_byte(rules, 200_000, np.random.default_rng(3))
    assert short.mean() == pytest.approx(np.mean(taken), rel=0.05)
    for percent in (50.0, 90.0, 99.0):
        assert np.percentile(short, percent) == pytest.approx(np.percentile(taken, percent), rel=0.08)


def test_hedging_costs_few_requests_and_cuts_the_tail() -> None:
    rules = replace(FREE, latency=Latency(0.03, 0.5, 0.02, 20.0))
    starts = np.arange(0, 150, 0.01).tolist()
    plain, without = read_all(rules, starts)
    hedged, with_second = read_all(replace(rules, hedge_percentile=95.0), starts)
    assert hedged.requests / plain.requests == pytest.approx(1.05, abs=0.01)
    assert np.percentile(with_second, 99.5) < 0.4 * np.percentile(without, 99.5)
    assert np.median(with_second) == pytest.approx(np.median(without), rel=0.03)


def test_the_slowest_of_many_reads_is_drawn_at_once() -> None:
    rules = replace(FREE, latency=Latency(0.03, 0.5, 0.01, 20.0), failure_rate=0.01)
    draw = slowest_of(rules, 64, np.random.default_rng(0))
    drawn = np.array([draw() for _ in range(20_000)])
    groups = seconds_to_first_byte(rules, 63 * 20_000, np.random.default_rng(1)).reshape(-1, 63).max(axis=1)
    for percent in (10, 50, 90):
        assert np.percentile(drawn, percent) == pytest.approx(np.percentile(groups, percent), rel=0.04)
    assert slowest_of(rules, 1, np.random.default_rng(0))() == 0.0


def test_events_come_in_the_order_of_time() -> None:
    events, seen = Events(), []
    for time in np.random.default_rng(0).random(200).tolist():
        events.at(time, lambda: seen.append(events.now))
    events.run()
    assert len(seen) == 200
    assert all(a <= b for a, b in pairwise(seen))
