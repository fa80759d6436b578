"""How numbers are distributed, in bounded memory: extremes, mean, and counts in bins of a fixed relative width.

Distributions of parts of the data add up to that of all of it, whatever the parts.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Bar", "Distribution"]

# Bins an octave: each is at most 1/64 of its values wide. Integers below 128 have one each.
_BINS = 64
# Of the smallest exponent of a float, and some more.
_BIAS = 1100
_MOST_BARS = 24
_LOGARITHMIC_FROM = 50


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a histogram: so many numbers from `low` to `high` (the same for a single integer)."""

    low: float
    high: float
    count: int


@dataclass(slots=True)
class Distribution:
    """The distribution of some numbers.

    Attributes:
        integers: Whether they are all integers.
        count: How many there are, without those that are not finite.
        not_finite: How many are infinite or not a number.
        total: Their sum.
        minimum: The smallest; None without numbers.
        maximum: The largest; None without numbers.
        bins: How many lie in each bin, by number of the bin.
    """

    integers: bool
    count: int = 0
    not_finite: int = 0
    total: float = 0.0
    minimum: float | None = None
    maximum: float | None = None
    bins: Counter[int] = field(default_factory=Counter)

    def add(self, values: npt.NDArray[Any]) -> None:
        """Adds numbers."""
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            self.not_finite += int(len(values) - finite.sum())
            values = values[finite]
        if not len(values):
            return
        self.count += len(values)
        with np.errstate(over="ignore"):
            self.total += float(values.sum(dtype=np.float64))
        self._widen(values.min().item(), values.max().item())
        numbers, counts = np.unique(_bins_of(values.astype(np.float64)), return_counts=True)
        self.bins.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))

    def merge(self, other: Distribution) -> None:
        """Adds the numbers of another distribution."""
        self.count += other.count
        self.not_finite += other.not_finite
        self.total += other.total
        if other.minimum is not None and other.maximum is not None:
            self._widen(other.minimum, other.maximum)
        self.bins.update(other.bins)

    @property
    def mean(self) -> float | None:
        """The mean; None without numbers, or where their sum is more than a float holds."""
        return self.total / self.count if self.count and math.isfinite(self.total) else None

    def quantile(self, share: float) -> float | None:
        """The number that a share of all do not exceed, within 1 %, exact for integers below 128."""
        left = max(1, math.ceil(share * self.count))
        for number in sorted(self.bins):
            left -= self.bins[number]
            if left <= 0:
                assert self.minimum is not None
                assert self.maximum is not None
                low, high = self._bounds(number)
                middle = (low + high) / 2
                return min(max(round(middle) if self.integers else middle, self.minimum), self.maximum)
        return None

    @property
    def logarithmic(self) -> bool:
        """Whether the bars of the histogram grow by an equal factor."""
        low, high = self.minimum, self.maximum
        return low is not None and high is not None and low > 0 and high / low >= _LOGARITHMIC_FROM

    def bars(self) -> list[Bar]:
        """A histogram: a bar for each integer where they are few, else bars of equal or equally growing width."""
        low, high = self.minimum, self.maximum
        if low is None or high is None:
            return []
        if self.integers and high - low < _MOST_BARS:
            edges = np.arange(low - 0.5, high + 1)
        elif low == high:
            return [Bar(low, high, self.count)]
        elif self.logarithmic:
            edges = np.geomspace(low, high, _MOST_BARS + 1)
        else:
            edges = np.linspace(low, high, _MOST_BARS + 1)
        # Counts up to each edge, with the numbers of a bin spread over its width.
        bounds = [bound for number in sorted(self.bins) for bound in self._bounds(number)]
        upto = np.repeat(np.cumsum([0, *(self.bins[number] for number in sorted(self.bins))]), 2)[1:-1]
        ends = np.rint(np.interp(edges, bounds, upto)).astype(int)
        ends[0], ends[-1] = 0, self.count
        single = self.integers and high - low < _MOST_BARS
        return [
            Bar(edge + 0.5 if single else edge, edge + 0.5 if single else end, count)
            for edge, end, count in zip(edges[:-1].tolist(), edges[1:].tolist(), np.diff(ends).tolist(), strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """The numbers that describe it, and its histogram."""
        facts: dict[str, Any] = {"count": self.count, "min": self.minimum, "mean": self.mean}
        for name, share in (("median", 0.5), ("p95", 0.95), ("p99", 0.99)):
            facts[name] = self.quantile(share)
        facts["max"] = self.maximum
        if self.not_finite:
            facts["not_finite"] = self.not_finite
        scale = "logarithmic" if self.logarithmic else "linear"
        return facts | {"scale": scale, "histogram": [[bar.low, bar.high, bar.count] for bar in self.bars()]}

    def _widen(self, low: float, high: float) -> None:
        self.minimum = low if self.minimum is None else min(self.minimum, low)
        self.maximum = high if self.maximum is None else max(self.maximum, high)

    def _bounds(self, number: int) -> tuple[float, float]:
        """Where a bin begins and ends; that of a single integer is one wide, around it."""
        exponent, part = divmod(abs(number), _BINS)
        low, high = (math.ldexp(0.5 + (part + step) / (2 * _BINS), exponent - _BIAS) for step in (0, 1))
        if number == 0:
            low = high = 0.0
        if number < 0:
            low, high = -high, -low
        if self.integers and high - low <= 1:
            only = math.floor(high) if number < 0 else math.ceil(low)
            return only - 0.5, only + 0.5
        return low, high


def _bins_of(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Number of each value's bin: 0 for zero, growing with the value."""
    mantissa, exponent = np.frexp(np.abs(values))
    part = np.floor((mantissa - 0.5) * 2 * _BINS).astype(np.int64)
    number = (exponent.astype(np.int64) + _BIAS) * _BINS + part
    return np.where(values == 0, 0, np.where(values < 0, -number, number))
