"""Trace: what each thread did when, and where each batch was, for the viewers of Chrome's trace events.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, which Perfetto reads.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from time import perf_counter, time_ns
from typing import Any

from dataflow.pipeline.clocks import DEVICE_STAGES, StageClock
from dataflow.storage import open_store, split_url

logger = logging.getLogger(__name__)

_MICRO = 1e6
# Some hundred bytes each.
_MOST_EVENTS = 1_000_000
_MOST_THREADS = 1000
_WORK = {"fetch": "block", "read": "block"}


class Trace:
    """Trace events of a rank, kept as JSON text until `document` is asked for.

    Args:
        rank: Number of the rank.

    Attributes:
        dropped: Events that came after there were too many.
    """

    def __init__(self, rank: int) -> None:
        self.dropped = 0
        self._rank = rank
        # Events are on the time of the clock on the wall, so that traces of several ranks can be laid side by side.
        self._epoch = time_ns() * 1e-9 - perf_counter()
        self._events: list[str] = []
        self._numbers: dict[tuple[str, int], int] = {}
        self._batches = count()
        self._add("process_name", ph="M", args={"name": f"dataflow rank {rank}"})
        self._add("thread_name", ph="M", tid=0, args={"name": "consumer"})

    def thread(self, clock: StageClock, kind: str, start: float, stop: float) -> None:
        """A thread of a stage was "busy", "starved" or "blocked"."""
        name = kind
        if kind == "busy" and clock.work >= 0:
            name = f"{_WORK.get(clock.stage, 'batch')} {clock.work}"
        self._span(name, clock.stage, self._number(clock), start, stop, {"state": kind})

    def batch(self, number: int, done: dict[str, float], returned: float, asked: float, got: float) -> None:
        """A batch was delivered: the consumer's time, and a line with the stages that the batch was in."""
        if number:
            self._span(f"step {number - 1}", "consumer", 0, returned, asked, {})
        self._span(f"wait {number}", "consumer", 0, asked, got, {"batch": number})
        place = {"cat": "batch", "id": next(self._batches)}
        since = done.get("plan", got)
        self._add(f"batch {number}", ph="b", ts=self._time(since), **place)
        for stage in DEVICE_STAGES[1:]:
            if stage in done:
                self._add(stage, ph="b", ts=self._time(since), **place)
                since = max(since, done[stage])
                self._add(stage, ph="e", ts=self._time(since), **place)
        self._add(f"batch {number}", ph="e", ts=self._time(got), **place)

    def document(self) -> bytes:
        """All of it as a JSON document."""
        if self.dropped:
            logger.warning("the trace is full: it ends %d events before the end", self.dropped)
        events = ",\n".join(list(self._events))
        about = json.dumps({"rank": self._rank, "dropped_events": self.dropped})
        return f'{{"traceEvents":[\n{events}\n],"otherData":{about}}}\n'.encode()

    def _span(self, name: str, category: str, thread: int, start: float, stop: float, args: dict[str, Any]) -> None:
        self._add(
            name,
            ph="X",
            cat=category,
            tid=thread,
            ts=self._time(start),
            dur=round((stop - start) * _MICRO, 3),
            args=args,
        )

    def _number(self, clock: StageClock) -> int:
        place = (clock.stage, clock.number)
        number = self._numbers.get(place)
        if number is None:
            number = 1 + DEVICE_STAGES.index(clock.stage) * _MOST_THREADS + clock.number
            self._numbers[place] = number
            self._add("thread_name", ph="M", tid=number, args={"name": f"{clock.stage} {clock.number}"})
            self._add("thread_sort_index", ph="M", tid=number, args={"sort_index": number})
        return number

    def _time(self, seconds: float) -> float:
        return round((self._epoch + seconds) * _MICRO, 3)

    def _add(self, name: str, **fields: Any) -> None:
        if len(self._events) >= _MOST_EVENTS:
            self.dropped += 1
            return
        self._events.append(json.dumps({"name": name, "pid": self._rank, **fields}, separators=(",", ":")))


@contextmanager
def traced(url: str, rank: int, use: Callable[[Trace | None], None]) -> Iterator[None]:
    """Writes a trace of what is done inside.

    Args:
        url: Where to.
        rank: Number of the rank.
        use: Called with the trace at the beginning, and with None at the end.
    """
    folder, name = split_url(url)
    trace = Trace(rank)
    use(trace)
    try:
        yield
    finally:
        use(None)
        open_store(folder).put_atomic(name, trace.document())
