"""The blocks in memory: each held by reference count, fetched once however many want it, within a bound of bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataflow.dataset.columns import ColumnView, column_view
from dataflow.pipeline.clocks import StageClock
from dataflow.sampling.stream import Stream


class PipelineStopped(Exception):
    """Raised in the threads of a pipeline that is being closed; never seen by a user."""


@dataclass(slots=True, eq=False)
class HeldBlock:
    """One block on its way into memory, or there.

    Attributes:
        number: Number of the block in the manifest.
        slot: First slot of the stream that needs it; fetches are ordered by this.
        nbytes: Bytes that count against the bound.
    """

    number: int
    slot: int
    nbytes: int
    _decode: Callable[[Any, int], pa.RecordBatch]
    uses: int = 0
    _buffer: Any = None
    _batch: pa.RecordBatch | None = None
    _error: BaseException | None = None
    _arrived: threading.Event = field(default_factory=threading.Event)
    _views: dict[str, ColumnView] = field(default_factory=dict)
    _permutations: dict[int, NDArray[np.int32]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def arrived(self) -> bool:
        """Whether `wait` returns at once."""
        return self._arrived.is_set()

    def arrive(self, buffer: Any) -> None:
        """The bytes are there."""
        self._buffer = buffer
        self._arrived.set()

    def fail(self, error: BaseException) -> None:
        """The bytes will not come."""
        if not self._arrived.is_set():
            self._error = error
            self._arrived.set()

    def wait(self) -> None:
        """Wait for the bytes; raises what kept them from coming."""
        self._arrived.wait()
        if self._error is not None:
            raise self._error

    def batch(self, clock: StageClock) -> pa.RecordBatch:
        """The rows; the first thread that asks decodes the bytes, on its clock."""
        batch = self._batch
        if batch is None:
            with self._lock:
                if self._batch is None:
                    self.wait()
                    with clock.waiting("busy"):
                        self._batch = self._decode(self._buffer, self.number)
                    self._buffer = None
                batch = self._batch
        return batch

    def view(self, column: str, clock: StageClock) -> ColumnView:
        """One column of the rows."""
        view = self._views.get(column)
        if view is None:
            view = self._views[column] = column_view(column, self.batch(clock).column(column))
        return view

    def permutation(self, epoch: int, stream: Stream) -> NDArray[np.int32]:
        """Stored row at each offset of the block in an epoch."""
        permutation = self._permutations.get(epoch)
        if permutation is None:
            permutation = self._permutations[epoch] = stream.row_permutation(epoch, self.number)
        return permutation


@dataclass(slots=True, eq=False)
class BlockUse:
    """One pass over a block, held by whoever still takes rows from it."""

    block: HeldBlock
    references: int = 1


class BlockTable:
    """All blocks that a pipeline holds. Whoever needs one holds a use of it; without uses it is gone.

    Args:
        sizes: Bytes of a block, by number.
        fetch: Starts to bring a block that nobody held.
        decode: Bytes and block number to rows.
        limit_bytes: Bound on all blocks together.
    """

    def __init__(
        self,
        sizes: Callable[[int], int],
        fetch: Callable[[HeldBlock], None],
        decode: Callable[[Any, int], pa.RecordBatch],
        limit_bytes: int,
    ) -> None:
        self._sizes = sizes
        self._fetch = fetch
        self._decode = decode
        self._limit = limit_bytes
        self._held: dict[int, HeldBlock] = {}
        self._lent = 0
        self._room = threading.Condition()
        self._stopped = False
        self.used_bytes = 0
        self.peak_bytes = 0

    def hold(self, number: int, slot: int) -> BlockUse:
        """Hold a block now, beyond the bound if need be: for the rows that are needed next."""
        with self._room:
            return self._take(number, slot)

    def hold_ahead(self, number: int, slot: int, clock: StageClock) -> BlockUse:
        """Hold a block once there is room, or once nothing is lent: then no one else could make room."""
        with self._room:
            if not self._fits(number) and self._lent:
                with clock.waiting("blocked"):
                    self._room.wait_for(lambda: self._stopped or self._fits(number) or not self._lent)
            return self._take(number, slot)

    def try_hold(self, number: int, slot: int) -> BlockUse | None:
        """Hold a block if there is room now."""
        with self._room:
            return self._take(number, slot) if self._fits(number) else None

    def lend(self, uses: Iterable[BlockUse]) -> None:
        """Add a reference to each use, for one batch that takes rows from them."""
        with self._room:
            self._lent += 1
            for use in uses:
                use.references += 1

    def give_back(self, uses: Iterable[BlockUse]) -> None:
        """The batch has taken its rows."""
        with self._room:
            self._lent -= 1
            self._drop(uses)

    def release(self, uses: Iterable[BlockUse]) -> None:
        """End what `hold` began."""
        with self._room:
            self._drop(uses)

    def stop(self) -> None:
        """Wake all that wait here or for a block; they raise PipelineStopped."""
        with self._room:
            self._stopped = True
            for block in self._held.values():
                block.fail(PipelineStopped())
            self._held.clear()
            self._room.notify_all()

    def _fits(self, number: int) -> bool:
        return number in self._held or self.used_bytes + self._sizes(number) <= self._limit

    def _take(self, number: int, slot: int) -> BlockUse:
        if self._stopped:
            raise PipelineStopped
        block = self._held.get(number)
        if block is None:
            block = HeldBlock(number, slot, self._sizes(number), self._decode)
            self._held[number] = block
            self.used_bytes += block.nbytes
            self.peak_bytes = max(self.peak_bytes, self.used_bytes)
            self._fetch(block)
        block.uses += 1
        return BlockUse(block)

    def _drop(self, uses: Iterable[BlockUse]) -> None:
        for use in uses:
            use.references -= 1
            if use.references:
                continue
            block = use.block
            block.uses -= 1
            if block.uses == 0:
                self._held.pop(block.number, None)
                self.used_bytes -= block.nbytes
        self._room.notify_all()
