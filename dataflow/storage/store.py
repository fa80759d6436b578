"""What every store can do, whatever is behind its URL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

__all__ = ["Buffer", "Entry", "Store"]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes in memory. Object stores hand out read-only views of the client's own memory, without a copy."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a store says of one object.

    Attributes:
        path: Relative to the root of the store, parts separated by "/".
        size: Bytes.
        version: The ETag, or size, time and inode of a local file: another one after the object was replaced.
    """

    path: str
    size: int
    version: str


class Store(Protocol):
    """The objects below one URL.

    Every method blocks, may be called from many threads at once, lets other threads run while it waits, gives up on a
    connection that moves no bytes, and retries what may pass. A store may be used after a fork, and pickles as its URL.

    Paths are relative to the root: never absolute, never with "..".

    Raises:
        OptionError: A path or range that cannot be.
        StorageNotFoundError: There is nothing at the path.
        StorageRangeError: The object ends before the range.
        StorageError: Reading or writing failed for good.
    """

    @property
    def url(self) -> str:
        """The root, without a slash at its end and without credentials."""
        ...

    @property
    def concurrency(self) -> int:
        """How many reads in flight keep this store busy."""
        ...

    def entry(self, path: str) -> Entry:
        """Size and version of one object."""
        ...

    def size(self, path: str) -> int:
        """Bytes of one object."""
        ...

    def read_range(self, path: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`, never fewer."""
        ...

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One buffer for each (start, length), in the order given. Near ranges may share a request."""
        ...

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every object in the folder `prefix` and below, sorted by path. Nothing there is an empty listing."""
        ...

    def put_atomic(self, path: str, data: bytes | memoryview | Path) -> None:
        """Writes bytes, or the content of a local file. Nobody ever sees a part of it under `path`."""
        ...

    def delete(self, path: str) -> None:
        """Removes one object. It is no error when there is none."""
        ...
