"""Fetch: threads that bring blocks from the store, the one that the stream needs first before the others."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from itertools import count
from time import perf_counter
from typing import Any

from dataflow.pipeline.blocks import HeldBlock
from dataflow.pipeline.clocks import Clocks
from dataflow.pipeline.concurrency import ConcurrencyProbe

_AHEAD_AT_LEAST = 8
_AHEAD_FACTOR = 4


class Fetcher:
    """Reads requested blocks with many threads, in the order of the slots that need them.

    Threads rather than an event loop: a store's blocking read releases the interpreter for all but microseconds, and
    costs far less than a task and its callbacks.

    Args:
        read: Brings the checked bytes of a block.
        concurrency: Most reads in flight.
        clocks: Where the time is counted.
    """

    def __init__(self, read: Callable[[int], Any], concurrency: int, clocks: Clocks) -> None:
        self._read = read
        self._probe = ConcurrencyProbe(concurrency)
        self._active = 0
        self._clocks = clocks
        self._requests: list[tuple[int, int, HeldBlock]] = []
        self._arrival = count()
        self._changed = threading.Condition()
        self._idle = 0
        self._stopped = False
        self.threads: list[threading.Thread] = []
        self.blocks = 0
        self.nbytes = 0

    @property
    def blocks_ahead(self) -> int:
        """How many blocks beyond those of the lanes it pays to ask for: what is in flight, and what waits for a thread.

        More would only take memory that was not touched before, which costs more than the copying.
        """
        return _AHEAD_AT_LEAST + _AHEAD_FACTOR * self._probe.limit

    def request(self, block: HeldBlock) -> None:
        """Bring a block; its `wait` returns when it is there."""
        with self._changed:
            heapq.heappush(self._requests, (block.slot, next(self._arrival), block))
            if self._active < self._probe.limit:
                self._put_to_work()

    def stop(self) -> None:
        """Let the threads end: each after the read it is in."""
        with self._changed:
            self._stopped = True
            self._requests.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        clock = self._clocks.clock("fetch")
        while True:
            with self._changed:
                start = perf_counter()
                self._idle += 1
                self._changed.wait_for(self._may_start)
                self._idle -= 1
                clock.count("starved", start, perf_counter())
                if self._stopped:
                    return
                _, _, block = heapq.heappop(self._requests)
                self._active += 1
            clock.work = block.number
            start = perf_counter()
            try:
                block.arrive(self._read(block.number))
            except BaseException as error:  # whatever it is, it belongs to whoever needs the block
                block.fail(error)
            stop = perf_counter()
            clock.count("busy", start, stop)
            with self._changed:
                self._active -= 1
                self.blocks += 1
                self.nbytes += block.nbytes
                self._probe.read(block.nbytes, stop, bool(self._requests))
                # This thread takes a request itself; where the limit was raised, others find room beside it.
                if self._requests and self._active + 1 < self._probe.limit:
                    self._put_to_work()
            del block

    def _may_start(self) -> bool:
        return self._stopped or (bool(self._requests) and self._active < self._probe.limit)

    def _put_to_work(self) -> None:
        if self._idle:
            self._changed.notify()
        elif len(self.threads) < self._probe.limit and not self._stopped:
            thread = threading.Thread(target=self._run, name=f"dataflow-fetch-{len(self.threads)}", daemon=True)
            self.threads.append(thread)
            thread.start()
