"""Runs through the blocks of a dataset in order, with work on several of them under way."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from dataflow.dataset import Manifest
from dataflow.storage import open_store

__all__ = ["OnProgress", "in_order", "usual_workers"]

Result = TypeVar("Result")

#: Is told of rows and bytes that are done.
OnProgress = Callable[[int, int], None]

# Blocks under way may have about this many bytes, however large one is.
_BYTES_UNDER_WAY = 256 << 20
_AHEAD = 2


def usual_workers(manifest: Manifest) -> int:
    """As many threads as keep the store and the processors busy."""
    return max(open_store(manifest.base_url).concurrency, os.cpu_count() or 1)


def in_order(
    manifest: Manifest, work: Callable[[int], Result], blocks: Iterable[int] | None = None, workers: int | None = None
) -> Iterator[tuple[int, Result]]:
    """Yields block and `work(block)` for each block, in order, while the next ones are worked on.

    Args:
        manifest: The dataset.
        work: Called in a thread.
        blocks: Which blocks; None for all.
        workers: Number of threads; None for what suits the store.
    """
    workers = workers or usual_workers(manifest)
    waiting: deque[tuple[int, Future[Result], int]] = deque()
    nbytes = 0
    with ThreadPoolExecutor(workers, thread_name_prefix="dataflow-blocks") as pool:
        try:
            for block in range(manifest.num_blocks) if blocks is None else blocks:
                size = int(manifest.lengths[block])
                while waiting and (len(waiting) >= _AHEAD * workers or nbytes + size > _BYTES_UNDER_WAY):
                    done, future, length = waiting.popleft()
                    nbytes -= length
                    yield done, future.result()
                waiting.append((block, pool.submit(work, block), size))
                nbytes += size
            while waiting:
                done, future, _ = waiting.popleft()
                yield done, future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
