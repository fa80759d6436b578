"""A level of the waterfall: what the pipeline gives when it ends at a stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter, sleep
from typing import Any

from dataflow.errors import DataflowError
from dataflow.measure.usage import Monitor, Usage
from dataflow.pipeline.clocks import Clocks
from dataflow.pipeline.deliver import Delivered
from dataflow.sampling.cursor import rows_before

__all__ = ["Level", "Look", "Steps", "take"]

_WARM_UP = 0.5
_LEAST_STEPS = 4
_PATIENCE = 4.0
_MOST_WAIT = 60.0


@dataclass(slots=True)
class Level:
    """What one level gave.

    Attributes:
        name: "storage", "fetch", "read", "decode", "batch", "transfer" or "accelerator".
        rows: Stored rows a second, before any filter.
        nbytes: Bytes of blocks a second that those rows take in the store.
        usage: What it took of this machine.
        first: Seconds to the first batch; None for the bare client.
        reread: Share of the bytes read that this run had read before, 0 to 1.
        cached: Share of the bytes that lay in the page cache before; None where that is not known.
        latencies: Percentiles and histogram of its reads.
        throughput: Bytes a second over time, as [seconds, value] from the start of the level.
        stages: Clocks of each stage over time, as [seconds, busy, starved, blocked] of the time since the one before.
        waited_for: Seconds that the consumer waited for each stage.
        in_flight: Reads in flight on average.
        utilisation: AU of the emulated accelerator.
    """

    name: str
    rows: float
    nbytes: float
    usage: Usage
    first: float | None = None
    reread: float = 0.0
    cached: float | None = None
    latencies: dict[str, Any] = field(default_factory=dict)
    throughput: list[list[float]] = field(default_factory=list)
    stages: dict[str, list[list[float]]] = field(default_factory=dict)
    waited_for: dict[str, float] = field(default_factory=dict)
    in_flight: float = 0.0
    utilisation: float | None = None

    def to_json(self) -> dict[str, Any]:
        """All of it; rates are a second, times seconds."""
        return {
            "name": self.name,
            "rows_per_second": self.rows,
            "bytes_per_second": self.nbytes,
            "seconds": self.usage.seconds,
            "cores": self.usage.cores,
            "cores_wanted": self.usage.wanted,
            "lock_wait": self.usage.lock_wait,
            "first_batch": self.first,
            "read_again": self.reread,
            "page_cached": self.cached,
            "reads_in_flight": self.in_flight,
            "latency": self.latencies,
            "throughput": self.throughput,
            "stages": self.stages,
            "waited_for": self.waited_for,
            "accelerator_utilisation": self.utilisation,
        }


@dataclass(slots=True)
class Look:
    """The clocks of a pipeline at one time: busy, starved, blocked of each stage, in seconds."""

    time: float
    clocks: dict[str, tuple[float, float, float]]


@dataclass(slots=True)
class Steps:
    """What came in a stretch of time; times of the performance counter.

    Attributes:
        since: The end of the step with which the stretch that counts begins.
        events: When each step was done, and the stored rows of its batch.
        first: When the first batch came.
        usage: What it took, over the stretch that counts.
        looks: The clocks now and then.
    """

    since: float
    events: list[tuple[float, float]]
    first: float
    usage: Usage
    looks: list[Look]

    @property
    def rate(self) -> float:
        """Stored rows a second over the stretch that counts."""
        return sum(rows for at, rows in self.events if at > self.since) / (self.events[-1][0] - self.since)


def take(
    following: Callable[[float], Delivered | None],
    clocks: Clocks,
    seconds: float,
    *,
    most_rows: int | None = None,
    step: float | None = None,
    arrive: Callable[[], None] = lambda: None,
) -> Steps:
    """Take batches for some time, and do nothing with them.

    What comes in half of `seconds` after the first batch does not count: connections open, and the number of reads in
    flight is found. With `step`, or `most_rows`, all counts but the first batch.

    Args:
        following: The next batch, within a number of seconds.
        clocks: Of the pipeline.
        seconds: How long to measure.
        most_rows: End after so many rows; None for no such end.
        step: Seconds that an emulated accelerator computes each batch.
        arrive: Waits until the batch is where it is wanted.
    """
    looks: list[Look] = []

    def look(now: float) -> None:
        totals = {stage: clocks.total(stage) for stage in clocks.stages}
        looks.append(Look(now, {name: (one.busy, one.starved, one.blocked) for name, one in totals.items()}))

    warm_up = 0.0 if step is not None or most_rows is not None else _WARM_UP * seconds
    monitor = Monitor(look, seconds)
    events: list[tuple[float, float]] = []
    upstream: dict[int, int] = {}
    returned = perf_counter()
    first = since = None
    counted, taken = 0, 0.0
    try:
        while True:
            asked = perf_counter()
            delivered = following(_MOST_WAIT)
            if delivered is None:
                raise DataflowError("the stream ended while it was measured")
            arrive()
            got = perf_counter()
            ticket = delivered.ticket
            clocks.delivered(returned, asked, got, ticket.done)
            rows = float(len(ticket.slots))
            if ticket.cursors:
                taken_by = {lane: rows_before(cursor.upstream) for lane, cursor in ticket.cursors.items()}
                rows = float(sum(number - upstream.get(lane, 0) for lane, number in taken_by.items()))
                upstream |= taken_by
            del delivered, ticket
            first = first or got
            if step is not None:
                sleep(step)
            returned = perf_counter()
            events.append((returned, rows))
            taken += rows
            if since is None:
                if returned - first >= warm_up:
                    since = returned
                    monitor.start()
                    look(since)
                continue
            counted += 1
            passed = returned - since
            full = most_rows is not None and taken >= most_rows
            if full or (passed >= seconds and counted >= _LEAST_STEPS) or passed >= _PATIENCE * seconds:
                return Steps(since, events, first, monitor.stop(), looks)
    finally:
        monitor.cancel()
