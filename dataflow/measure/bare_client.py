"""The storage ceiling: a store's own client in plain threads, bodies dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter

from dataflow.measure.order import Ranges
from dataflow.measure.reads import Read
from dataflow.measure.usage import Monitor, Usage
from dataflow.storage import Store

__all__ = ["BareClient", "Probe", "rising"]

_GAIN = 1.1
_PATIENCE = 2
_MOST_CONNECTIONS = 256
_ASKED_AT = 0.9


@dataclass(slots=True)
class Probe:
    """What the store gave to a number of connections.

    Attributes:
        connections: Reads in flight.
        rate: Bytes a second.
        usage: What the reading took of this machine.
        reads: The reads.
    """

    connections: int
    rate: float
    usage: Usage
    reads: list[Read] = field(repr=False)


class BareClient:
    """Reads ranges in turn, from the first again after the last.

    Args:
        store: What is read.
        ranges: What to read.
        once: Whether a probe ends when it has read each range once.
        prepare: Called before each probe.
    """

    def __init__(self, store: Store, ranges: Ranges, *, once: bool, prepare: Callable[[], None]) -> None:
        self._store = store
        self._ranges = ranges
        self._once = once
        self._prepare = prepare
        self._turn = count()

    def probe(self, connections: int, seconds: float) -> Probe:
        """Read with so many threads for about so long.

        Raises:
            StorageError: The store could not be read.
        """
        self._prepare()
        reads: list[Read] = []
        errors: list[BaseException] = []
        left = iter(range(len(self._ranges))) if self._once else count()

        def work() -> None:
            try:
                for _ in left:
                    path, first, length = self._ranges[next(self._turn) % len(self._ranges)]
                    began = perf_counter()
                    self._store.read_range(path, first, length)
                    ended = perf_counter()
                    reads.append(Read(path, first, began, ended, length))
                    if ended >= stop or errors:
                        return
            except BaseException as error:  # raised again below
                errors.append(error)

        threads = [threading.Thread(target=work, name=f"dataflow-bare-{number}") for number in range(connections)]
        monitor = Monitor(lambda now: None, seconds)
        monitor.start()
        start = perf_counter()
        stop = start + seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, start + _ASKED_AT * seconds - perf_counter()))
        # A thread that has ended cannot be asked any more what it took.
        usage = monitor.stop()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        # All that was begun counts, up to its end: a store may work on one read after the other, or on all at once.
        taken = max(read.stop for read in reads) - start
        return Probe(connections, sum(read.nbytes for read in reads) / taken, usage, reads)


def rising(client: BareClient, seconds: float, allowed: int) -> Iterator[Probe]:
    """Probes with 1, 2, 4, ... connections, until more bring nothing; and with those `allowed`, if they are fewer."""
    best, failures = 0.0, 0
    connections = 1
    while connections <= _MOST_CONNECTIONS:
        found = client.probe(connections, seconds)
        yield found
        failures = 0 if found.rate >= _GAIN * best else failures + 1
        best = max(best, found.rate)
        if failures >= _PATIENCE:
            break
        connections *= 2
    if allowed < connections and allowed & (allowed - 1):
        yield client.probe(allowed, seconds)
