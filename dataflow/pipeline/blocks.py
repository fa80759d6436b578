"""The blocks in memory: each held by reference count, fetched once however many want it, within a bound of bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow import _native
from dataflow.dataset.columns import ColumnView
from dataflow.pipeline.clocks import StageClock

Columns = tuple[ColumnView, ...]

# Held for an instant whenever a block arrives; of all blocks, since a lock more for each would cost more.
_opening = threading.Lock()


class PipelineStopped(Exception):
    """Raised in the threads of a pipeline that is being closed; never seen by a user."""


class HeldBlock:
    """One block on its way into memory, or there.

    Thousands of these come and go, so that each is one object and one lock: an event or a dictionary a block would set
    off Python's garbage collection.

    Attributes:
        number: Number of the block in the manifest.
        slot: First slot of the stream that needs it; fetches are ordered by this.
        nbytes: Bytes that count against the bound.
        uses: Passes that hold it.
    """

    __slots__ = ("_buffer", "_columns", "_decode", "_error", "_latch", "_there", "nbytes", "number", "slot", "uses")

    def __init__(self, number: int, slot: int, nbytes: int, decode: Callable[[Any, int], Columns]) -> None:
        self.number = number
        self.slot = slot
        self.nbytes = nbytes
        self.uses = 0
        self._decode = decode
        self._buffer: Any = None
        self._columns: Columns | None = None
        self._error: BaseException | None = None
        self._there = False
        # Held until the bytes are there; after that, by the thread that decodes them.
        self._latch = threading.Lock()
        self._latch.acquire()

    @property
    def arrived(self) -> bool:
        """Whether `wait` returns at once."""
        return self._there

    def arrive(self, buffer: Any) -> None:
        """The bytes are there."""
        self._buffer = buffer
        self._open()

    def fail(self, error: BaseException) -> None:
        """The bytes will not come."""
        self._error = error
        self._open()

    def wait(self) -> None:
        """Wait for the bytes; raises what kept them from coming."""
        if not self._there:
            with self._latch:
                pass
        if self._error is not None:
            raise self._error

    def columns(self, clock: StageClock) -> Columns:
        """The columns that are read; the first thread that asks decodes the bytes, on its clock."""
        columns = self._columns
        if columns is None:
            self.wait()
            with self._latch:
                columns = self._columns
                if columns is None:
                    clock.work = self.number
                    with clock.waiting("busy"):
                        columns = self._columns = self._decode(self._buffer, self.number)
                    self._buffer = None
        return columns

    def _open(self) -> None:
        # A read that ends and a pipeline that stops may both come here; the first one counts.
        with _opening:
            if not self._there:
                self._there = True
                self._latch.release()


class BlockUse:
    """One pass over a block, held by whoever still takes rows from it.

    Attributes:
        block: The block.
        order: int32, the stored row at each offset of the pass.
        held_order: The same memory for the native core.
        references: Holders.
        ahead: Whether it counts as read-ahead.
    """

    __slots__ = ("ahead", "block", "held_order", "order", "references")

    def __init__(self, block: HeldBlock, order: NDArray[np.int32]) -> None:
        self.block = block
        self.order = order
        self.held_order = _native.Array(order)
        self.references = 1
        self.ahead = False


class BlockTable:
    """All blocks that a pipeline holds. Whoever needs one holds a use of it; without uses it is gone.

    Args:
        sizes: Bytes of a block, by number.
        fetch: Starts to bring a block that nobody held.
        decode: Bytes and block number to the columns that are read.
        limit_bytes: Bound on all blocks together, now.
        ahead_bytes: Bound on those that lanes hold ahead of their need, which leaves room for the ones that they need.
    """

    def __init__(
        self,
        sizes: Callable[[int], int],
        fetch: Callable[[HeldBlock], None],
        decode: Callable[[Any, int], Columns],
        limit_bytes: Callable[[], int],
        ahead_bytes: int,
    ) -> None:
        self._sizes = sizes
        self._fetch = fetch
        self._decode = decode
        self._limit = limit_bytes
        self._most_ahead = ahead_bytes
        self._ahead = 0
        self._held: dict[int, HeldBlock] = {}
        self._lent = 0
        self._room = threading.Condition()
        self._stopped = False
        self.used_bytes = 0
        self.peak_bytes = 0

    def hold(self, number: int, slot: int, order: NDArray[np.int32]) -> BlockUse:
        """Hold a block now, beyond the bound if need be: for the rows that are needed next."""
        with self._room:
            return self._take(number, slot, order)

    def hold_ahead(self, number: int, slot: int, order: NDArray[np.int32], clock: StageClock) -> BlockUse:
        """Hold a block once there is room, or once nothing is lent: then no one else could make room."""
        with self._room:
            if not self._fits(number) and self._lent:
                with clock.waiting("blocked"):
                    self._room.wait_for(lambda: self._stopped or self._fits(number) or not self._lent)
            return self._take(number, slot, order)

    def try_hold(self, number: int, slot: int, order: NDArray[np.int32]) -> BlockUse | None:
        """Hold a block ahead of its need, if there is room for that now."""
        with self._room:
            if self._ahead + self._sizes(number) > self._most_ahead or not self._fits(number):
                return None
            use = self._take(number, slot, order)
            use.ahead = True
            self._ahead += use.block.nbytes
            return use

    def need(self, use: BlockUse) -> None:
        """A block that was held ahead is needed now."""
        with self._room:
            self._end_ahead(use)

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
            self.used_bytes = 0
            self._room.notify_all()

    def _fits(self, number: int) -> bool:
        return number in self._held or self.used_bytes + self._sizes(number) <= self._limit()

    def _take(self, number: int, slot: int, order: NDArray[np.int32]) -> BlockUse:
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
        return BlockUse(block, order)

    def _end_ahead(self, use: BlockUse) -> None:
        if use.ahead:
            use.ahead = False
            self._ahead -= use.block.nbytes

    def _drop(self, uses: Iterable[BlockUse]) -> None:
        if self._stopped:
            return
        for use in uses:
            use.references -= 1
            if use.references:
                continue
            self._end_ahead(use)
            block = use.block
            block.uses -= 1
            if block.uses == 0:
                del self._held[block.number]
                self.used_bytes -= block.nbytes
        self._room.notify_all()
