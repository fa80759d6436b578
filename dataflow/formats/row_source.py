"""The bytes of a shard of rows from front to back, decoded, and where in the file each run of rows lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import xxhash

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats.compression import MAX_DECODED_BYTES, MAX_MEMBER_BYTES, Member, compression_of, members
from dataflow.formats.window import WINDOW_BYTES, Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataflow.storage import Store

__all__ = ["MAX_ROW_BYTES", "RowSource", "Stored", "open_rows"]

#: A longer row is no row of text.
MAX_ROW_BYTES = 64 << 20


class Stored:
    """Where a run of rows lies: the arguments of a `Block`."""

    __slots__ = ("checksum", "length", "skip", "start")

    def __init__(self, start: int, length: int, skip: int, checksum: bytes) -> None:
        self.start = start
        self.length = length
        self.skip = skip
        self.checksum = checksum


class RowSource(Protocol):
    """A shard that is read row by row.

    Attributes:
        data: Decoded bytes that are not taken yet, from the start of a row.
        ended: Whether `data` goes to the end of the shard, or of what can be read of it.
        failure: What is wrong with what follows, so that the last row may lack its end.
    """

    data: bytearray
    ended: bool
    failure: CorruptDataError | None

    def fill(self, block_bytes: int) -> int:
        """Reads enough for a block, and returns the offset in `data` before which its rows begin."""
        ...

    def more(self) -> None:
        """Reads on, about as much again: the last row is longer than what is there."""
        ...

    def take(self, end: int) -> Stored:
        """Takes the rows before `end`, an offset in `data` where a row ends."""
        ...


def open_rows(store: Store, path: str, skip_bad: bool = False) -> RowSource:
    """Opens a shard at its start; its name tells whether it is compressed.

    Args:
        store: Where the shard is.
        path: Its path there.
        skip_bad: Take what lies before damage, instead of raising an error.
    """
    window = Window(store, path)
    compression = compression_of(path)
    return _Packed(window, compression, skip_bad) if compression else _Plain(window)


class _Plain:
    """Rows as they lie in the file: a block can begin at any row."""

    def __init__(self, window: Window) -> None:
        self.data = bytearray()
        self.ended = window.size == 0
        self.failure: CorruptDataError | None = None
        self._window = window
        self._start = 0  # offset of data in the file

    def fill(self, block_bytes: int) -> int:
        self._extend(block_bytes)
        return min(block_bytes, len(self.data))

    def more(self) -> None:
        if len(self.data) > MAX_ROW_BYTES:
            raise _long_row()
        self._extend(max(2 * len(self.data), 64 << 10))

    def take(self, end: int) -> Stored:
        stored = Stored(self._start, end, 0, xxhash.xxh3_128_digest(memoryview(self.data)[:end]))
        del self.data[:end]
        self._start += end
        return stored

    def _extend(self, length: int) -> None:
        while len(self.data) < length and not self.ended:
            at = self._start + len(self.data)
            self.data += self._window.read(at, min(length - len(self.data), WINDOW_BYTES))
            self.ended = self._start + len(self.data) == self._window.size


class _Packed:
    """Rows in the members of a compressed file: a block begins with a member, and skips what is not its own in it."""

    def __init__(self, window: Window, compression: str, skip_bad: bool) -> None:
        self.data = bytearray()
        self.ended = False
        self.failure: CorruptDataError | None = None
        self._skip_bad = skip_bad
        self._members: Iterator[Member] = members(compression, window.read, window.size)
        self._held: list[Member] = []
        self._skip = 0  # bytes of the first held member before data
        self._next: Member | None = None
        self._advance()

    def fill(self, block_bytes: int) -> int:
        # Compressed rows are far larger in memory, so that both sizes count.
        stored = sum(len(member.stored) for member in self._held)
        while not self.ended and (
            not self.data or (stored < block_bytes and self._skip + len(self.data) < 4 * block_bytes)
        ):
            stored += self._add()
        return len(self.data)

    def more(self) -> None:
        if len(self.data) > MAX_ROW_BYTES:
            raise _long_row()
        wanted = 2 * len(self.data)
        while not self.ended and len(self.data) <= wanted:
            self._add()

    def take(self, end: int) -> Stored:
        count, reached = 0, -self._skip  # members that hold the rows, and where in data the last one ends
        while reached < end:
            reached += len(self._held[count].data)
            count += 1
        used = self._held[:count]
        decoded = sum(len(member.data) for member in used)
        if decoded > MAX_DECODED_BYTES:
            raise DatasetError(
                f"the compressed pieces at offset {used[0].start}, which share a row, have {decoded} bytes, more than "
                f"the limit of {MAX_DECODED_BYTES}. Convert the file (`dataflow shard`)"
            )
        checksum = xxhash.xxh3_128()
        for member in used:
            checksum.update(member.stored)
        stored = Stored(used[0].start, sum(len(member.stored) for member in used), self._skip, checksum.digest())
        del self.data[:end]
        if reached == end:
            self._held, self._skip = self._held[count:], 0
        else:
            last = used[-1]
            self._held, self._skip = self._held[count - 1 :], len(last.data) - (reached - end)
        return stored

    def _add(self) -> int:
        member = self._next
        assert member is not None
        self._held.append(member)
        self.data += member.data
        self._advance()
        return len(member.stored)

    def _advance(self) -> None:
        try:
            self._next = next(self._members, None)
        except CorruptDataError as error:
            if not self._skip_bad:
                raise
            self._next, self.failure = None, error
        self.ended = self._next is None


def _long_row() -> DatasetError:
    return DatasetError(
        f"a row of more than {MAX_ROW_BYTES >> 20} MiB: is it one row a line? Keep large values in tars or in Parquet"
    )


assert MAX_ROW_BYTES <= MAX_MEMBER_BYTES
