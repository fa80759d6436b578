"""JSON lines: one object a line. Its keys are the columns."""

from __future__ import annotations

from collections.abc import Iterator
from json import JSONDecoder

import pyarrow as pa

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats.json_nulls import to_nulls, without_nulls
from dataflow.formats.json_types import JsonType
from dataflow.formats.newlines import BLANK, cut_after, decode_text, line_ends, rows_end
from dataflow.formats.rows import mark_end

__all__ = ["JsonRows"]

CHUNK_BYTES = 1 << 20
# pyarrow parses at most 100,000 rows at once, and a row has 3 bytes or more.
CHUNK_ROWS = 100_000
SMALL_CHUNK_BYTES = 256 << 10


class JsonRows:
    """Rows that are JSON objects. Python's json finds the types, pyarrow's decodes."""

    def scan(self, skip_bad: bool = False) -> JsonScan:
        """See `RowKind.scan`."""
        return JsonScan()

    def end(self, data: bytes, rows: int, facts: dict[str, object]) -> int:
        """See `RowKind.end`."""
        return rows_end(data, rows)

    def read(self, data: bytes, schema: pa.Schema, facts: dict[str, object]) -> pa.RecordBatch:
        """See `RowKind.read`."""
        batches = [_decode(chunk, schema) for chunk in _chunks(data)]
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """See `Format.merge`. The union of the keys, in types that hold all values."""
        rows = JsonType.of_schema(first)
        rows.absorb(JsonType.of_schema(second))
        return rows.schema()


class JsonScan:
    """One pass over a shard; see `RowScan`."""

    def __init__(self) -> None:
        self.facts: dict[str, object] = {}
        self._rows = JsonType()
        self._decoder = JSONDecoder()

    def head(self, data: bytearray, whole: bool) -> int | None:
        start = mark_end(data, whole)
        if start is not None and data[start : start + 1] == b"[":
            raise DatasetError(
                "line 1: a JSON array, not one object a line. Write it again as JSON lines (`jq -c '.[]'`)"
            )
        return start

    def cut(self, data: bytearray, at: int, whole: bool, line: int) -> int | None:
        end = cut_after(data, at)
        return len(data) if end is None and whole else end

    def add(self, data: bytes, line: int, locate: bool = True) -> int:
        text = decode_text(data, line)
        count = 0
        decode, add = self._decoder.decode, self._rows.add
        for number, row in enumerate(text.split("\n"), line):
            if not row or not row.strip(" \t\r"):
                continue
            try:
                value = decode(row)
            except (ValueError, RecursionError) as error:
                raise CorruptDataError(f"line {number}: not JSON: {error}. Correct or remove the line") from error
            if type(value) is not dict:
                raise DatasetError(f"line {number}: not an object, but {type(value).__name__} {row[:60]!r}")
            try:
                add(value)
            except DatasetError as error:
                raise DatasetError(f"line {number}: {error}") from error
            count += 1
        self._check(data, line, count, locate)
        return count

    def schema(self) -> pa.Schema:
        return self._rows.schema()

    def back_to(self, schema: pa.Schema) -> None:
        self._rows = JsonType.of_schema(schema)

    def ends(self, data: bytes) -> list[int]:
        return line_ends(data)

    def complete(self, data: bytearray) -> int:
        return data.rfind(b"\n") + 1

    def _check(self, data: bytes, line: int, count: int, locate: bool) -> None:
        """Decodes the rows as a reader will, which finds what Python's json lets pass, such as a key given twice."""
        schema = self.schema()
        if not len(schema):
            return  # empty objects so far
        rows = JsonRows()
        try:
            if rows.read(data, schema, {}).num_rows == count:
                return
        except (pa.ArrowException, ValueError) as error:
            failure = error
        else:
            failure = ValueError(f"these are not {count} rows")
        for number, row in enumerate(data.split(b"\n") if locate else (), line):
            try:
                if row.strip(BLANK):
                    rows.read(row, schema, {})
            except (pa.ArrowException, ValueError) as error:
                text = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
                raise CorruptDataError(f"line {number}: {text}. Correct or remove the line") from error
        raise CorruptDataError(f"lines from {line}: {failure}. Correct or remove them") from failure


def _chunks(data: bytes) -> Iterator[bytes]:
    """Runs of whole lines that pyarrow parses at once."""
    start = 0
    while start < len(data):
        many = data.count(b"\n", start, start + CHUNK_BYTES) > CHUNK_ROWS
        most = start + (SMALL_CHUNK_BYTES if many else CHUNK_BYTES)
        end = data.rfind(b"\n", start, most) + 1 or cut_after(data, most) or len(data)
        chunk = data[start:end]
        if chunk.strip(BLANK + b"\n"):
            yield chunk
        start = end


def _decode(chunk: bytes, schema: pa.Schema) -> pa.RecordBatch:
    from pyarrow import json

    read_as = pa.schema([pa.field(field.name, without_nulls(field.type)) for field in schema])
    table = json.read_json(
        pa.BufferReader(chunk),
        read_options=json.ReadOptions(use_threads=False, block_size=len(chunk) + 1),
        parse_options=json.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="ignore"),
    )
    table.validate(full=True)  # the reader takes bytes that are no UTF-8
    (batch,) = table.select(schema.names).combine_chunks().to_batches()
    columns = [to_nulls(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
