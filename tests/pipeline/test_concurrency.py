"""The probe finds how many reads a store can use, whatever its latency."""

from __future__ import annotations

import heapq

import pytest

from dataflow.pipeline.concurrency import ConcurrencyProbe


def settle(latency: float, bytes_per_second: float, most: int = 64, reads: int = 4000) -> int:
    """The limit after a run against a store with a latency for each read and a bandwidth for all."""
    probe = ConcurrencyProbe(most)
    now, free_at, flying = 0.0, 0.0, []
    for _ in range(reads):
        while len(flying) < probe.limit:
            free_at = max(free_at, now) + 1e6 / bytes_per_second
            heapq.heappush(flying, free_at + latency)
        now = heapq.heappop(flying)
        probe.read(1_000_000, now, waiting=True)
    return probe.limit


@pytest.mark.parametrize(("latency", "least", "most"), [(0.0, 4, 4), (0.005, 4, 16), (0.05, 32, 64)])
def test_limit_follows_latency(latency: float, least: int, most: int) -> None:
    assert least <= settle(latency, 1e9) <= most


def test_limit_never_exceeds_what_the_store_allows() -> None:
    assert settle(1.0, 1e9, most=4) == 4


def test_demand_below_the_limit_teaches_nothing() -> None:
    probe = ConcurrencyProbe(64)
    for number in range(1000):
        probe.read(1_000_000, float(number), waiting=False)
    assert probe.limit == 4
