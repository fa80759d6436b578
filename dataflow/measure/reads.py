"""Reads of a store: when each began and ended, and how many bytes it brought."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from dataflow.storage import Buffer, Store

__all__ = ["Read", "RecordedStore", "in_flight", "latencies"]

_BARS = 32


class Read(NamedTuple):
    """One read; times in seconds of the performance counter."""

    path: str
    first: int
    start: float
    stop: float
    nbytes: int


class RecordedStore:
    """A store that notes its reads of ranges; in all else the store that it was made of.

    Attributes:
        reads: Those that ended, in that order.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads: list[Read] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read_range(self, path: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`."""
        began = perf_counter()
        data = self._store.read_range(path, start, length)
        self.reads.append(Read(path, start, began, perf_counter(), length))
        return data


def in_flight(reads: Sequence[Read], start: float, stop: float) -> float:
    """Reads that were under way on average between two times."""
    return sum(max(0.0, min(read.stop, stop) - max(read.start, start)) for read in reads) / (stop - start)


def latencies(reads: Sequence[Read]) -> dict[str, Any]:
    """Percentiles and a histogram of how long reads took, JSON-able: seconds, and [from, to, count] of each bar."""
    took = np.array([read.stop - read.start for read in reads])
    if not len(took):
        return {"count": 0}
    low, high = float(took.min()), float(took.max())
    counts, edges = np.histogram(took, np.geomspace(low * 0.999, high * 1.001, _BARS + 1))
    p50, p90, p99 = np.percentile(took, (50, 90, 99)).tolist()
    bars = np.stack((edges[:-1], edges[1:], counts), axis=1).tolist()
    return {"count": len(took), "p50": p50, "p90": p90, "p99": p99, "max": high, "histogram": bars}
