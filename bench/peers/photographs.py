"""The photographs and windows that all decoders take, and how their time is taken."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

SIZE = 224
BATCH = 64
Requests = tuple[list[bytes], Any, Any]  # files, windows int32[n, 4], flips bool[n]


def load(path: str) -> Requests:
    """What `bench.decode` wrote; never pickled."""
    with np.load(path, allow_pickle=False) as saved:
        return [Path(name).read_bytes() for name in saved["names"].tolist()], saved["windows"], saved["flips"]


def timed(run: Callable[[int, int], object], count: int) -> dict[str, float]:
    """Images a second and for each second of processor time, over all batches; one batch runs before."""
    run(0, BATCH)
    before, start = resource.getrusage(resource.RUSAGE_SELF), perf_counter()
    for first in range(0, count, BATCH):
        run(first, min(first + BATCH, count))
    seconds, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"rate": count / seconds, "per_cpu": count / cpu}
