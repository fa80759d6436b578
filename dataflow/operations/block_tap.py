"""A store that passes on the blocks of a shard which is read through it: what an index pass reads is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dataflow.storage import Buffer, Entry, Store

__all__ = ["BlockTap"]


class BlockTap:
    """Reads from another store, and collects the blocks of one shard from what is read from front to back.

    Args:
        store: The other store.
        ranges: Start and length of each block.
        take: Is given the number and the bytes of each block that passed whole.
    """

    def __init__(self, store: Store, ranges: Sequence[tuple[int, int]], take: Callable[[int, bytes], None]) -> None:
        self.url, self.concurrency = store.url, store.concurrency
        self.passed: set[int] = set()
        self._store = store
        self._ranges = ranges
        self._take = take
        self._next = 0  # the block that is being collected
        self._held = bytearray()

    def entry(self, path: str) -> Entry:
        return self._store.entry(path)

    def size(self, path: str) -> int:
        return self._store.size(path)

    def put_atomic(self, path: str, data: bytes | memoryview | Path) -> None:
        self._store.put_atomic(path, data)

    def delete(self, path: str) -> None:
        self._store.delete(path)

    def read_range(self, path: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`."""
        data = self._store.read_range(path, start, length)
        self._collect(start, memoryview(data))
        return data

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One buffer for each (start, length)."""
        found = self._store.read_ranges(path, ranges)
        for (start, _), data in zip(ranges, found, strict=True):
            self._collect(start, memoryview(data))
        return found

    def _collect(self, start: int, data: memoryview) -> None:
        end = start + len(data)
        while self._next < len(self._ranges):
            first, length = self._ranges[self._next]
            wanted = first + len(self._held)
            if wanted < start:  # passed over: whoever wants this block has to read it
                self._go_on()
                continue
            if wanted >= end:
                return
            self._held += data[wanted - start : first + length - start]
            if len(self._held) < length:
                return
            block, whole = self._next, bytes(self._held)
            self._go_on()
            self.passed.add(block)
            self._take(block, whole)

    def _go_on(self) -> None:
        self._next += 1
        self._held = bytearray()

    def list(self, prefix: str = "") -> Iterator[Entry]:
        return self._store.list(prefix)
