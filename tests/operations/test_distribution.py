from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataflow.operations.distribution import Distribution

INTEGERS = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=200)
FLOATS = st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=200)


def of(values: object, integers: bool) -> Distribution:
    found = Distribution(integers)
    found.add(np.array(values, np.int64 if integers else np.float64))
    return found


def nearest_rank(values: list[float], share: float) -> float:
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


@given(INTEGERS, st.sampled_from([0.0, 0.05, 0.5, 0.95, 0.99, 1.0]))
@example([128, 129], 0.0)
def test_quantiles_of_integers(values: list[int], share: float) -> None:
    found = of(values, integers=True)
    exact = nearest_rank(values, share)  # type: ignore[arg-type]
    quantile = found.quantile(share)
    assert quantile is not None
    assert abs(quantile - exact) <= (0 if abs(exact) < 128 else abs(exact) / 64)
    assert (found.minimum, found.maximum, found.count) == (min(values), max(values), len(values))
    assert found.mean == pytest.approx(sum(values) / len(values), abs=1e-3)


@given(FLOATS, st.sampled_from([0.05, 0.5, 0.95]))
def test_quantiles_of_floats(values: list[float], share: float) -> None:
    exact = nearest_rank(values, share)
    quantile = of(values, integers=False).quantile(share)
    assert quantile is not None
    assert abs(quantile - exact) <= abs(exact) / 64 + 1e-300


@given(st.lists(INTEGERS, min_size=1, max_size=5))
def test_parts_add_up(parts: list[list[int]]) -> None:
    whole = of([value for part in parts for value in part], integers=True)
    summed = Distribution(integers=True)
    for part in parts:
        summed.merge(of(part, integers=True))
    assert summed.bins == whole.bins
    assert (summed.count, summed.minimum, summed.maximum) == (whole.count, whole.minimum, whole.maximum)
    assert summed.bars() == whole.bars()


@given(INTEGERS | st.lists(st.integers(0, 30), min_size=1), st.booleans())
def test_bars_hold_every_number_once(values: list[int], integers: bool) -> None:
    bars = of(values, integers).bars()
    assert sum(bar.count for bar in bars) == len(values)
    assert all(bar.count >= 0 for bar in bars)
    assert len(bars) <= 24
    assert [bar.low for bar in bars] == sorted(bar.low for bar in bars)


def test_few_integers_have_a_bar_each() -> None:
    bars = of([3] * 5 + [4] * 2 + [7], integers=True).bars()
    assert [(bar.low, bar.high, bar.count) for bar in bars] == [
        (3, 3, 5), (4, 4, 2), (5, 5, 0), (6, 6, 0), (7, 7, 1),
    ]  # fmt: skip


def test_bars_of_many_numbers_are_close_to_the_truth() -> None:
    values = np.random.default_rng(0).normal(1000, 100, 100_000)
    found = of(values, integers=False)
    for bar in found.bars():
        exact = int(((values >= bar.low) & (values < bar.high)).sum())
        assert abs(bar.count - exact) <= 0.05 * len(values) / 24 + 20
    wide = of(np.random.default_rng(0).lognormal(3, 2, 10_000), integers=False).bars()
    assert wide[1].high / wide[1].low == pytest.approx(wide[9].high / wide[9].low)


def test_memory_does_not_grow_with_the_numbers() -> None:
    found = Distribution(integers=True)
    for seed in range(20):
        found.add(np.random.default_rng(seed).integers(0, 1 << 40, 10_000))
    assert len(found.bins) < 64 * 41


def test_what_is_not_finite_is_counted_apart_and_nothing_is_nothing() -> None:
    found = of([1.0, math.nan, math.inf, -math.inf, 2.0], integers=False)
    assert (found.count, found.not_finite, found.mean, found.maximum) == (2, 3, 1.5, 2.0)
    assert found.to_json()["not_finite"] == 3
    empty = Distribution(integers=False).to_json()
    assert empty == {
        "count": 0, "min": None, "mean": None, "median": None, "p95": None, "p99": None, "max": None,
        "scale": "linear", "histogram": [],
    }  # fmt: skip
