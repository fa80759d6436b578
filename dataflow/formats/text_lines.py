"""Plain text: one row a line, in the column `text`."""

from __future__ import annotations

import pyarrow as pa

from dataflow.formats.newlines import BLANK, cut_after, decode_text, line_ends, rows_end
from dataflow.formats.rows import mark_end

__all__ = ["TextRows"]

SCHEMA = pa.schema([pa.field("text", pa.string())])


class TextRows:
    """Rows that are lines."""

    def scan(self, skip_bad: bool = False) -> TextScan:
        """See `RowKind.scan`."""
        return TextScan()

    def end(self, data: bytes, rows: int, facts: dict[str, object]) -> int:
        """See `RowKind.end`."""
        return rows_end(data, rows)

    def read(self, data: bytes, schema: pa.Schema, facts: dict[str, object]) -> pa.RecordBatch:
        """See `RowKind.read`."""
        from pyarrow import compute

        whole = pa.array([data], pa.large_binary()).cast(pa.large_string())
        lines = compute.split_pattern(whole, "\n").values.cast(pa.string())
        lines = lines.filter(compute.not_equal(compute.ascii_trim(lines, BLANK.decode()), ""))
        if b"\r\n" in data or data.endswith(b"\r"):
            lines = compute.replace_substring_regex(lines, r"\r\z", "")
        return pa.RecordBatch.from_arrays([lines], schema=schema)

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """See `Format.merge`. All have the same column."""
        return first


class TextScan:
    """One pass over a shard; see `RowScan`."""

    def __init__(self) -> None:
        self.facts: dict[str, object] = {}

    def head(self, data: bytearray, whole: bool) -> int | None:
        return mark_end(data, whole)

    def cut(self, data: bytearray, at: int, whole: bool, line: int) -> int | None:
        end = cut_after(data, at)
        return len(data) if end is None and whole else end

    def add(self, data: bytes, line: int, locate: bool = True) -> int:
        decode_text(data, line)
        return int(TextRows().read(data, SCHEMA, {}).num_rows)

    def schema(self) -> pa.Schema:
        return SCHEMA

    def back_to(self, schema: pa.Schema) -> None:
        """Rows tell nothing of the columns."""

    def ends(self, data: bytes) -> list[int]:
        return line_ends(data)

    def complete(self, data: bytearray) -> int:
        return data.rfind(b"\n") + 1
