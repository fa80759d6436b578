"""How long it takes until the first number of a shuffled epoch of 10^8 samples is known."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from bench.peers.tree import memory_bytes

SAMPLES = 10**8


def timed(first: Callable[[], int]) -> None:
    """Print the seconds from the first import on."""
    start = time.perf_counter()
    number = first()
    seconds = time.perf_counter() - start
    if not 0 <= number < SAMPLES:
        raise AssertionError(f"no sample has the number {number}")
    print(json.dumps({"seconds": seconds, "memory_at_end": memory_bytes(os.getpid())}), flush=True)
