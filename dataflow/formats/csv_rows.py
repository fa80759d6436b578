"""CSV and TSV: a header names the columns, and values with delimiters, quotes or newlines are quoted."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats.csv_types import FALSE, TRUE, CsvType
from dataflow.formats.newlines import cut_after, decode_text, line_ends, rows_end
from dataflow.formats.row_source import MAX_ROW_BYTES
from dataflow.formats.rows import mark_end
from dataflow.formats.types import merge_fields

__all__ = ["CsvRows"]


class CsvRows:
    """Rows of values between delimiters."""

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter
        d = re.escape(delimiter)
        value = rf'(?:"(?:[^"]++|"")*+"|[^"{d}\r\n][^{d}\r\n]*+|)'
        # Nothing is tried twice: a value has one reading, so that damaged rows take no longer than good ones.
        self.row = re.compile(rf"{value}(?:{d}{value})*+\r?(?:\n|\Z)".encode())
        self.ended_row = re.compile(rf"{value}(?:{d}{value})*+\r?\n".encode())

    def scan(self, skip_bad: bool = False) -> CsvScan:
        """See `RowKind.scan`."""
        return CsvScan(self, skip_bad)

    def end(self, data: bytes, rows: int, facts: dict[str, object]) -> int:
        """See `RowKind.end`."""
        if b'"' not in data:
            return rows_end(data, rows, b"\r")
        end = 0
        while rows and end < len(data):
            match = self.row.match(data, end)
            if match is None:
                raise ValueError(f"no row at offset {end}")
            rows -= bool(match[0].strip(b"\r\n"))
            end = match.end()
        return end

    def rows(self, data: bytes, line: int) -> Iterator[tuple[int, bytes]]:
        """Each row of whole rows, and the number of its first line; blank lines are left out.

        Raises:
            CorruptDataError: There is something that is no row; names the line.
        """
        start = 0
        while start < len(data):
            match = self.row.match(data, start)
            if match is None:
                raise _no_row(line)
            if match[0].strip(b"\r\n"):
                yield line, match[0]
            line += match[0].count(b"\n")
            start = match.end()

    def read(self, data: bytes, schema: pa.Schema, facts: dict[str, Any]) -> pa.RecordBatch:
        """See `RowKind.read`."""
        from pyarrow import csv as reader

        if not data.strip(b"\r\n"):
            return pa.RecordBatch.from_pylist([], schema)
        table = reader.read_csv(
            pa.BufferReader(data),
            read_options=reader.ReadOptions(use_threads=False, column_names=facts["columns"], block_size=len(data) + 1),
            parse_options=reader.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=reader.ConvertOptions(
                column_types=schema,
                include_columns=schema.names,
                null_values=[""],
                strings_can_be_null=False,
                true_values=TRUE,
                false_values=FALSE,
            ),
        )
        (batch,) = table.combine_chunks().to_batches()
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """See `Format.merge`. The same columns in any order; what is not the same kind of values is text."""
        return merge_fields(first, second, _merged)


def _merged(first: pa.Field, second: pa.Field) -> pa.Field:
    kind = CsvType.of_field(first)
    kind.absorb(CsvType.of_field(second))
    return kind.field(first.name)


class CsvScan:
    """One pass over a shard; see `RowScan`."""

    def __init__(self, kind: CsvRows, skip_bad: bool) -> None:
        self.facts: dict[str, Any] = {}
        self._kind = kind
        self._skip_bad = skip_bad
        self._types: dict[str, CsvType] = {}

    def head(self, data: bytearray, whole: bool) -> int | None:
        start = mark_end(data, whole)
        if start is None:
            return None
        while data.startswith((b"\n", b"\r\n"), start):
            start = data.index(b"\n", start) + 1
        if start == len(data):
            return start if whole else None
        match = (self._kind.row if whole else self._kind.ended_row).match(data, start)
        line = 1 + data.count(b"\n", 0, start)
        if match is None:
            if whole:
                raise _no_row(line)
            return None
        text = decode_text(bytes(match[0]), line)
        names = next(csv.reader(io.StringIO(text, newline=""), delimiter=self._kind.delimiter, strict=True))
        for name in names:
            if names.count(name) > 1:
                raise DatasetError(f"line {line}: the header has two columns {name!r}. Name them differently")
        self.facts = {"columns": names}
        self._types = {name: CsvType() for name in names}
        return match.end()

    def cut(self, data: bytearray, at: int, whole: bool, line: int) -> int | None:
        if b'"' not in data:
            end = cut_after(data, at)
            return len(data) if end is None and whole else end
        end = 0
        while end < max(at, 1):
            match = (self._kind.row if whole else self._kind.ended_row).match(data, end)
            if match is not None:
                end = match.end()
            elif self._skip_bad and (whole or len(data) > MAX_ROW_BYTES):
                following = cut_after(data, end + 1)
                if following is None and not whole:
                    return None
                end = following or len(data)
            elif whole:
                raise _no_row(line + data.count(b"\n", 0, end))
            else:
                return None  # more data may bring the end, unless the row is damaged: that is told where the data ends
        return end

    def add(self, data: bytes, line: int, locate: bool = True) -> int:
        text = pa.schema([pa.field(name, pa.string()) for name in self._types])
        try:
            batch = self._kind.read(data, text, self.facts)
        except (pa.ArrowException, ValueError) as error:
            raise (self._locate(data, line, text) if locate else CorruptDataError(str(error))) from error
        if batch.num_rows != self._count(data, line, batch.num_rows):
            raise self._locate(data, line, text) if locate else CorruptDataError(f"no {batch.num_rows} rows")
        for name, kind in self._types.items():
            kind.add(batch.column(name))
        return int(batch.num_rows)

    def schema(self) -> pa.Schema:
        return pa.schema([kind.field(name) for name, kind in self._types.items()])

    def back_to(self, schema: pa.Schema) -> None:
        self._types = {field.name: CsvType.of_field(field) for field in schema}

    def ends(self, data: bytes) -> list[int]:
        if b'"' not in data:
            return line_ends(data)
        ends, end = [], 0
        while end < len(data):
            match = self._kind.row.match(data, end)
            end = match.end() if match is not None else cut_after(data, end + 1) or len(data)
            ends.append(end)
        return ends

    def complete(self, data: bytearray) -> int:
        if b'"' not in data:
            return data.rfind(b"\n") + 1
        end = 0
        while (match := self._kind.ended_row.match(data, end)) is not None:
            end = match.end()
        return end

    def _count(self, data: bytes, line: int, expected: int) -> int:
        """Rows by the rules of this module, which are stricter than those of the reader."""
        if b'"' in data:
            return sum(1 for _ in self._kind.rows(data, line))
        # The reader takes a carriage return alone for the end of a row.
        lone = re.search(rb"\r(?!\n|\Z)", data)
        if lone is not None:
            raise _no_row(line + data.count(b"\n", 0, lone.start()))
        return expected

    def _locate(self, data: bytes, line: int, schema: pa.Schema) -> CorruptDataError:
        """Finds the row that cannot be read."""
        for number, row in self._kind.rows(data, line):
            try:
                if self._kind.read(row, schema, self.facts).num_rows == 1:
                    continue
            except (pa.ArrowException, ValueError) as error:
                text = re.sub(r"^(In CSV column #\d+: |CSV parse error: |Row #\d+: )+", "", str(error))
                return CorruptDataError(f"line {number}: {text}. Correct or remove the row")
            return _no_row(number)
        return CorruptDataError(f"lines from {line}: they cannot be read together. Quote all values")


def _no_row(line: int) -> CorruptDataError:
    return CorruptDataError(
        f"line {line}: not a row: a quote is not closed, text follows a closing quote, or a carriage return stands "
        "alone. Quote values with quotes or line ends in them, and double the quotes"
    )
