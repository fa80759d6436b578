"""Simulated time: calls made at their times, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any


class Events:
    """A clock that jumps from one call to the next; those of one time are made in the order in which they were added.

    Attributes:
        now: Seconds since the start.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._stopped = False

    def at(self, time: float, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call at a time that is not past."""
        heapq.heappush(self._calls, (time, next(self._order), call, arguments))

    def run(self) -> None:
        """Make calls until there are none left, or until one of them says to stop."""
        calls, pop = self._calls, heapq.heappop
        self._stopped = False
        while calls and not self._stopped:
            self.now, _, call, arguments = pop(calls)
            call(*arguments)

    def stop(self) -> None:
        """Let `run` return after the call that is being made."""
        self._stopped = True
