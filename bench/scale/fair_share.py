"""A capacity that many share equally: a network by its connections, the processors of a host by its threads."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from bench.scale.events import Events

# What would take less than this is done: sums of floating-point numbers are not exact.
_INSTANT = 1e-9


class FairShare:
    """Processor sharing with a bound: of n tasks each advances at min(most_each, capacity / n).

    All advance alike, so that one number, how far a task would be that had been there from the start, says when each
    ends: adding or ending a task costs O(log n), exact however many there are.

    Args:
        events: The clock.
        capacity: Units a second, over all tasks.
        most_each: Units a second of one task.
    """

    def __init__(self, events: Events, capacity: float, most_each: float) -> None:
        self._events = events
        self._capacity = capacity
        self._most_each = most_each
        self._tasks: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._advanced = 0.0
        self._advanced_at = 0.0
        self._rate = 0.0
        self._wakes_at = float("inf")

    def add(self, amount: float, done: Callable[[], None]) -> None:
        """Begin a task of some units; `done` is called when it ends."""
        self._advance()
        tasks = self._tasks
        heapq.heappush(tasks, (self._advanced + amount, next(self._order), done))
        self._rate = min(self._most_each, self._capacity / len(tasks))
        # A wake that is due before the next end finds that out by itself: more tasks only make ends later.
        if self._events.now + (tasks[0][0] - self._advanced) / self._rate < self._wakes_at:
            self._schedule()

    def _advance(self) -> None:
        now = self._events.now
        self._advanced += (now - self._advanced_at) * self._rate
        self._advanced_at = now

    def _schedule(self) -> None:
        """Wake at the next end."""
        events = self._events
        self._wakes_at = events.now + max(0.0, self._tasks[0][0] - self._advanced) / self._rate
        events.at(self._wakes_at, self._wake, self._wakes_at)

    def _wake(self, at: float) -> None:
        if at != self._wakes_at:
            return  # an earlier one took its place
        self._advance()
        tasks, ended = self._tasks, []
        reached = self._advanced + self._rate * _INSTANT
        while tasks and tasks[0][0] <= reached:
            ended.append(heapq.heappop(tasks)[2])
        if tasks:
            self._rate = min(self._most_each, self._capacity / len(tasks))
            self._schedule()
        else:
            self._rate, self._wakes_at = 0.0, float("inf")
        for done in ended:
            done()
