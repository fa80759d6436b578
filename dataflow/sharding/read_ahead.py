"""Reads ahead in threads; what comes out is in order, whatever the number of threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["read_ahead"]

Item = TypeVar("Item")
Result = TypeVar("Result")

# Reads that wait may take about this much memory in each process, however large the items are.
_WAITING_BYTES = 64 << 20
_AHEAD = 2


def read_ahead(items: Iterable[tuple[Item, int]], read: Callable[[Item], Result], threads: int) -> Iterator[Result]:
    """Yields `read(item)` for each item, in order, with several reads under way.

    Args:
        items: What to read, each with about how many bytes it has.
        read: Called in a thread.
        threads: Number of threads.
    """
    waiting: deque[tuple[Future[Result], int]] = deque()
    nbytes = 0
    with ThreadPoolExecutor(threads, thread_name_prefix="dataflow-read") as pool:
        try:
            for item, size in items:
                while waiting and (len(waiting) >= _AHEAD * threads or nbytes + size > _WAITING_BYTES):
                    future, done = waiting.popleft()
                    nbytes -= done
                    yield future.result()
                waiting.append((pool.submit(read, item), size))
                nbytes += size
            while waiting:
                yield waiting.popleft()[0].result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
