"""Work of many batches for the threads that do it: chunks of samples, in the order in which batches ask."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from dataflow.pipeline.blocks import PipelineStopped


class Failure(NamedTuple):
    """An error, and the number of the sample that it is of."""

    at: int
    error: BaseException


class Chunk:
    """Some samples of a batch, and what came of them.

    Attributes:
        samples: The samples.
        keys: What their random numbers depend on.
        first: Number of the first of them in the batch.
        done: Whether it is known what came.
        values: What they became, up to the first error.
        failure: That error; its sample is counted from the first of the batch.
        urgent: Whether it matters more than what comes of samples before.
    """

    __slots__ = ("done", "failure", "first", "keys", "samples", "urgent", "values")

    def __init__(self, samples: list[Any], keys: list[Any], first: int) -> None:
        self.samples = samples
        self.keys = keys
        self.first = first
        self.done = False
        self.values: list[Any] = []
        self.failure: Failure | None = None
        self.urgent = False


class WorkQueue:
    """Between threads that have samples, and those that do something with them. Bounded by what batches are in work."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._idle = 0
        self.stopped = False
        lock = threading.Lock()
        self._work_changed = threading.Condition(lock)
        self._done = threading.Condition(lock)

    def run(self, chunks: Sequence[Chunk]) -> tuple[list[Any], Failure | None]:
        """What becomes of the chunks of a batch, up to the first error.

        Raises:
            PipelineStopped: The queue was stopped.
        """
        values: list[Any] = []
        with self._done:
            self._chunks.extend(chunks)
            self._work_changed.notify(len(chunks))
            for chunk in chunks:
                while not (chunk.done or self.stopped):
                    for other in chunks:
                        if other.urgent:
                            return values, other.failure
                    self._done.wait()
                if self.stopped:
                    raise PipelineStopped
                values += chunk.values
                if chunk.failure is not None:
                    return values, chunk.failure
        return values, None

    def take(self, wait: bool) -> Chunk | None:
        """The next chunk; None if the queue was stopped.

        Args:
            wait: Whether the thread has nothing else to do. One that has leaves chunks to those that have not.
        """
        with self._work_changed:
            if wait:
                self._idle += 1
                self._work_changed.wait_for(lambda: self.stopped or self._chunks)
                self._idle -= 1
            elif self._idle:
                return None
            return self._chunks.popleft() if self._chunks and not self.stopped else None

    def put_back(self, chunks: Sequence[Chunk]) -> None:
        """Leave chunks to other threads."""
        with self._work_changed:
            self._chunks.extendleft(reversed(chunks))
            self._work_changed.notify(len(chunks))

    def settle(self, chunk: Chunk, values: list[Any], failure: Failure | None = None, urgent: bool = False) -> None:
        """Say what came of a chunk; the sample of a failure is counted from the first of the chunk."""
        with self._done:
            chunk.values = values
            chunk.failure = failure and Failure(chunk.first + failure.at, failure.error)
            chunk.urgent = urgent
            chunk.done = True
            self._done.notify_all()

    def stop(self) -> None:
        """Wake all that wait, for good."""
        with self._done:
            self.stopped = True
            self._chunks.clear()
            self._work_changed.notify_all()
            self._done.notify_all()
