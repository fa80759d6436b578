"""What one kind of rows of text has to know: where a row ends, which types its values have, how to decode them."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

__all__ = ["RowKind", "RowScan", "mark_end"]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def mark_end(data: bytearray, whole: bool) -> int | None:
    """The end of the mark that some programs write at the start of UTF-8 files; None if more data is needed to tell."""
    if len(data) < len(BYTE_ORDER_MARK) and not whole:
        return None
    return len(BYTE_ORDER_MARK) if data.startswith(BYTE_ORDER_MARK) else 0


class RowScan(Protocol):
    """One pass over the rows of a shard.

    Attributes:
        facts: JSON-able facts that its blocks need to be decoded.
    """

    facts: dict[str, object]

    def head(self, data: bytearray, whole: bool) -> int | None:
        """The end of what comes before the first row; None if more data is needed to tell."""
        ...

    def cut(self, data: bytearray, at: int, whole: bool, line: int) -> int | None:
        """The first end of a row at or after an offset (and after 0); None if that is not in `data`.

        Args:
            data: Bytes from the start of a row.
            at: The offset.
            whole: Whether there is nothing behind `data`: its last row needs no newline.
            line: Number of the first line, for messages.
        """
        ...

    def add(self, data: bytes, line: int, locate: bool = True) -> int:
        """Looks at whole rows, and returns how many they are.

        Args:
            data: The rows.
            line: Number of the first line.
            locate: Find out which row is damaged, if one is.

        Raises:
            CorruptDataError: A row is damaged; names the line.
            DatasetError: Rows do not go together; names the line and the column.
        """
        ...

    def schema(self) -> pa.Schema:
        """The columns of the rows so far."""
        ...

    def back_to(self, schema: pa.Schema) -> None:
        """Forgets rows: those before them had this `schema()`."""
        ...

    def ends(self, data: bytes) -> list[int]:
        """Where each row of some ends, if rows that are damaged end with their line."""
        ...

    def complete(self, data: bytearray) -> int:
        """The end of the last row that is whole, in data that lacks what follows."""
        ...


class RowKind(Protocol):
    """A kind of rows."""

    def scan(self, skip_bad: bool = False) -> RowScan:
        """Begins a shard, of which rows that are damaged are to end the pass, or to be cut off with their line."""
        ...

    def end(self, data: bytes, rows: int, facts: dict[str, object]) -> int:
        """The end of the `rows`-th row of `data`, which begins with a row."""
        ...

    def read(self, data: bytes, schema: pa.Schema, facts: dict[str, object]) -> pa.RecordBatch:
        """Decodes whole rows.

        Raises:
            Exception: What pyarrow raises on what cannot be decoded.
        """
        ...

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """See `Format.merge`."""
        ...
