"""How long a store takes to the first byte: log-normal, with a share of answers that take many times as long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Latency:
    """A distribution of seconds.

    Attributes:
        median: Median of the usual answers.
        spread: Standard deviation of their logarithm; 0 makes them all alike.
        tail_share: Share of answers that are slow.
        tail_factor: How many times as long these take.
    """

    median: float
    spread: float = 0.0
    tail_share: float = 0.0
    tail_factor: float = 1.0

    @property
    def mean(self) -> float:
        """Mean of all answers."""
        return self.median * math.exp(self.spread**2 / 2) * (1 + self.tail_share * (self.tail_factor - 1))

    def percentile(self, percent: float) -> float:
        """Seconds within which that many of a hundred answers come."""
        low, high = 0.0, self.median * self.tail_factor * math.exp(10 * self.spread) + 1e-12
        for _ in range(100):
            middle = (low + high) / 2
            if self._below(middle) < percent / 100:
                low = middle
            else:
                high = middle
        return high

    def draws(self, generator: np.random.Generator) -> Iterator[float]:
        """Latencies without end."""
        while True:
            yield from self.sample(_AT_ONCE, generator).tolist()

    def sample(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Some latencies, float64[count]."""
        usual = self.median * np.exp(self.spread * generator.standard_normal(count))
        slow = generator.random(count) < self.tail_share
        return np.where(slow, usual * self.tail_factor, usual)

    def _below(self, seconds: float) -> float:
        def usual(value: float) -> float:
            if self.spread == 0 or value <= 0:
                return float(value >= self.median)
            return 0.5 * (1 + math.erf(math.log(value / self.median) / self.spread / math.sqrt(2)))

        return (1 - self.tail_share) * usual(seconds) + self.tail_share * usual(seconds / self.tail_factor)
