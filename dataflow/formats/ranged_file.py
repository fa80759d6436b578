"""Bytes that are somewhere, as the read-only file object that pyarrow wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataflow.storage import Buffer

__all__ = ["RangedFile"]


class RangedFile:
    """A file of which the bytes from `start` to `end` can be read.

    Args:
        read: Returns bytes by offset and length; is asked for nothing outside the range.
        start: Offset of the first byte.
        end: Offset after the last byte: the size that the file seems to have.

    Attributes:
        failure: What `read` raised: pyarrow may wrap what passes through it.
    """

    closed = False

    def __init__(self, read: Callable[[int, int], Buffer], start: int, end: int) -> None:
        self.failure: Exception | None = None
        self._read = read
        self._start = start
        self._end = end
        self._position = 0

    def read(self, length: int) -> Buffer:
        """Returns the next bytes, fewer at the end."""
        length = max(0, min(length, self._end - self._position))
        if self._position < self._start:
            raise ValueError(f"bytes from {self._position} are asked for, and only those from {self._start} are there")
        try:
            data = self._read(self._position, length)
        except Exception as error:
            self.failure = error
            raise
        self._position += length
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = (0, self._position, self._end)[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to close: the bytes belong to the caller."""
