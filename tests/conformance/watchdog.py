"""Ends a test that hangs with an error where it hangs, so that the others still run."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Hang(AssertionError):
    """A test did not end in time."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise in the main thread, also out of a wait for a lock, once `seconds` have passed."""

    def expire(number: int, frame: FrameType | None) -> None:
        raise Hang(f"still running after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    start = time.perf_counter()
    outer, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        # A limit around this one goes on.
        left = max(0.001, outer - (time.perf_counter() - start)) if outer else 0
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)
