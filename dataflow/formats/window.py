"""Reads a shard from front to back through one window of bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xxhash

    from dataflow.storage import Store

__all__ = ["Window"]

# Large enough to keep an object store busy with few requests, small enough to index many shards at once.
WINDOW_BYTES = 8 << 20


class Window:
    """The bytes of one shard, fetched a few MiB at a time.

    Args:
        store: Where the shard is.
        path: The shard's path in the store.
    """

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._path = path
        self.size = store.size(path)
        self._start = 0
        self._bytes = memoryview(b"")

    def read(self, start: int, length: int) -> memoryview:
        """Returns `length` bytes from `start`, fewer where the shard ends first."""
        length = max(0, min(length, self.size - start))
        if start < self._start or start + length > self._start + len(self._bytes):
            self._bytes = memoryview(b"")  # the old window goes before the new one comes
            wanted = min(max(length, WINDOW_BYTES), self.size - start)
            if wanted > 0:
                self._bytes = memoryview(self._store.read_range(self._path, start, wanted))
            self._start = start
        return self._bytes[start - self._start : start - self._start + length]

    def update(self, checksum: xxhash.xxh3_128, start: int, end: int) -> None:
        """Feeds the bytes from `start` to `end` to a running checksum, piece by piece."""
        while start < end:
            held = self._start + len(self._bytes) - start if start >= self._start else 0
            piece = min(end - start, held if held > 0 else WINDOW_BYTES)
            checksum.update(self.read(start, piece))
            start += piece
