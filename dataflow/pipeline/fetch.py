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


class Fetcher:
    """Reads requested blocks with up to `concurrency` threads, in the order of the slots that need them.

    Threads rather than an event loop: a store's blocking read releases the interpreter for all but microseconds, and
    costs far less than a task and its callbacks.

    Args:
        read: Brings the checked bytes of a block.
        concurrency: Most reads in flight.
        clocks: Where the time is counted.
    """

    def __init__(self, read: Callable[[int], Any], concurrency: int, clocks: Clocks) -> None:
        self._read = read
        self._concurrency = concurrency
        self._clocks = clocks
        self._requests: list[tuple[int, int, HeldBlock]] = []
        self._arrival = count()
        self._changed = threading.Condition()
        self._idle = 0
        self._stopped = False
        self.threads: list[threading.Thread] = []
        self.blocks = 0
        self.nbytes = 0

    def request(self, block: HeldBlock) -> None:
        """Bring a block; its `wait` returns when it is there."""
        with self._changed:
            heapq.heappush(self._requests, (block.slot, next(self._arrival), block))
            if self._idle:
                self._changed.notify()
            elif len(self.threads) < self._concurrency and not self._stopped:
                thread = threading.Thread(target=self._run, name=f"dataflow-fetch-{len(self.threads)}", daemon=True)
                self.threads.append(thread)
                thread.start()

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
                self._changed.wait_for(lambda: self._requests or self._stopped)
                self._idle -= 1
                clock.starved += perf_counter() - start
                if self._stopped:
                    return
                _, _, block = heapq.heappop(self._requests)
            if block.uses == 0:
                continue
            start = perf_counter()
            try:
                buffer = self._read(block.number)
            except BaseException as error:  # whatever it is, it belongs to whoever needs the block
                block.fail(error)
            else:
                block.arrive(buffer)
                with self._changed:
                    self.blocks += 1
                    self.nbytes += block.nbytes
            clock.busy += perf_counter() - start
            del block
