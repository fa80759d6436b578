"""The slowest of many reads, for ranks that are not simulated.

A simulated rank stands for others that ask for their blocks when it does. Each of theirs has latencies and failures of
its own, which is what makes one of thousands late. The barrier waits for the last one only, so that one number a block
is enough: the most of as many draws as there are others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.scale.store import StoreRules

_READS = 400_000
_AT_ONCE = 4096


def slowest_of(rules: StoreRules, ranks: float, generator: np.random.Generator) -> Callable[[], float]:
    """Draws seconds to the first byte of the slowest of `ranks` - 1 reads; 0 where there are none."""
    others = ranks - 1
    if others <= 0:
        return lambda: 0.0
    seconds = np.sort(seconds_to_first_byte(rules, _READS, generator))
    drawn: list[float] = []

    def draw() -> float:
        if not drawn:
            # The distribution function of the most of n is that of one to the power of n.
            places = generator.random(_AT_ONCE) ** (1 / others) * len(seconds)
            drawn.extend(seconds[places.astype(np.int64)].tolist())
        return drawn.pop()

    return draw


def seconds_to_first_byte(rules: StoreRules, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """What `SimulatedStore.read` takes to the first byte where requests do not wait for their turn; float64[count]."""
    policy = rules.policy
    spent = np.zeros(count)
    asking = np.arange(count)
    for attempt in range(policy.attempts):
        seconds, failed = _answers(rules, len(asking), generator)
        if rules.hedge_percentile is not None:
            after = rules.latency.percentile(rules.hedge_percentile)
            second, second_failed = _answers(rules, len(asking), generator)
            # The first body counts; an error only once both requests have failed.
            first_body = np.where(failed, np.inf, seconds)
            second_body = np.where(second_failed | (seconds <= after), np.inf, after + second)
            body = np.minimum(first_body, second_body)
            seconds = np.where(np.isfinite(body), body, np.where(seconds <= after, seconds, after + second))
            failed = ~np.isfinite(body)
        spent[asking] += seconds
        asking = asking[failed]
        if not len(asking):
            break
        longest = min(policy.longest_wait_seconds, policy.first_wait_seconds * 2**attempt)
        spent[asking] += generator.random(len(asking)) * longest
    return spent


def _answers(
    rules: StoreRules, count: int, generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Seconds of requests, and whether they fail."""
    seconds = rules.latency.sample(count, generator)
    idle = seconds >= rules.policy.idle_seconds
    failed = idle | (generator.random(count) < rules.failure_rate)
    return np.minimum(seconds, rules.policy.idle_seconds), failed
