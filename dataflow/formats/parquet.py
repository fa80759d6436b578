"""Parquet shards: each row group is a block, decoded from its own bytes and the file's footer alone."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats.format import MAX_BLOCK_BYTES, Block, Place, ShardIndex, Skipped
from dataflow.formats.parquet_footer import RowGroup, dictionary_bytes, pack_detail, parse_detail, read_footer
from dataflow.formats.ranged_file import RangedFile
from dataflow.formats.types import merge_columns
from dataflow.storage import join_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dataflow.storage import Buffer, Store

__all__ = ["BATCH_ROWS", "DAMAGED", "LARGE_BLOCK_BYTES", "ParquetFormat", "fit"]

#: A row group is read and held as a unit. Larger ones work, but a loader wants many smaller blocks.
LARGE_BLOCK_BYTES = 64 << 20
# Rows that are decoded at once: the decoder is quickest at some thousands.
BATCH_ROWS = 8192
# What pyarrow raises on damaged bytes: its own errors, and Python's for short reads and absurd lengths.
DAMAGED = (pa.ArrowException, OSError, EOFError, MemoryError, ValueError, TypeError)
# Shards are indexed by several threads. Of row groups that are large, one is in memory at a time.
_large = threading.Lock()


class ParquetFormat:
    """Row groups of Parquet files. Dictionaries become plain values, extension types the values that they store."""

    name = "parquet"
    suffixes = (".parquet", ".pq")

    def index(self, store: Store, path: str, block_bytes: int, skip_bad: bool = False) -> ShardIndex:
        """See `Format.index`. The row groups are the blocks: `block_bytes` has no say. Each is decoded once."""
        url = join_url(store.url, path)
        footer = read_footer(store, path)
        schema = footer.schema
        blocks: list[Block] = []
        kept: list[RowGroup] = []
        skipped: list[Skipped] = []
        for group in footer.groups:
            if not group.rows:
                continue
            size = max(group.length, group.decoded)
            if size > MAX_BLOCK_BYTES:
                raise _too_large(url, group, size)
            with _large if size > LARGE_BLOCK_BYTES else nullcontext():
                data = store.read_range(path, group.start, group.length)
                try:
                    self._check(data, footer.metadata, group, schema, url)
                except CorruptDataError as error:
                    if not skip_bad:
                        raise
                    name = f"row group {group.number} at offset {group.start}"
                    skipped.append(Skipped(name, "a damaged row group", str(error.__cause__)))
                    continue
                kept.append(group)
                blocks.append(Block(group.start, group.length, group.rows, xxhash.xxh3_128_digest(data)))
        return ShardIndex(blocks, schema, skipped, pack_detail(footer, kept))

    def read(self, data: Buffer, schema: pa.Schema, place: Place) -> pa.RecordBatch:
        """See `Format.read`."""
        try:
            numbers, metadata = parse_detail(place.detail)
            if place.start not in numbers:
                raise CorruptDataError(f"the footer knows of no row group at offset {place.start}")
            return pa.concat_batches(list(_decode(data, metadata, numbers[place.start], place.start, schema)))
        except DAMAGED as error:
            raise CorruptDataError(f"not a Parquet row group of the dataset's columns: {error}") from error

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """See `Format.merge`. Columns may be in another order, and have types of which one holds the other's values."""
        return merge_columns(first, second)

    def _check(self, data: Buffer, metadata: Any, group: RowGroup, schema: pa.Schema, url: str) -> None:
        """Decodes a row group as `read` will."""
        rows = size = 0
        try:
            # A value that is stored once may be decoded many times: few rows at once, until it is known how much it is.
            most = max(1, min(BATCH_ROWS, MAX_BLOCK_BYTES // (dictionary_bytes(data, group) + 1)))
            for batch in _decode(data, metadata, group.number, group.start, schema, most):
                rows += batch.num_rows
                size += batch.nbytes
                if size > MAX_BLOCK_BYTES:
                    raise _too_large(url, group, size)
            if rows != group.rows:
                raise CorruptDataError(f"it has {rows} rows, its footer says {group.rows}")
        except (CorruptDataError, *DAMAGED) as error:
            raise CorruptDataError(
                f"{url}: row group {group.number} at offset {group.start} is damaged: {error}. Write or copy the file "
                "again"
            ) from error


def _decode(
    data: Buffer, metadata: Any, number: int, offset: int, schema: pa.Schema, most: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    view = memoryview(data)

    def piece(start: int, length: int) -> memoryview:
        return view[start - offset : start - offset + length]

    source = pa.PythonFile(RangedFile(piece, offset, offset + len(view)), mode="r")
    with parquet.ParquetFile(source, metadata=metadata, pre_buffer=False, page_checksum_verification=True) as file:
        for batch in file.iter_batches(most, row_groups=[number], use_threads=False):
            # Offsets that point outside their buffer would crash whoever reads the column.
            batch.validate(full=True)
            yield fit(batch, schema)


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema, in its types; null where the batch has none of that name."""
    columns = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        column = batch.column(place) if place >= 0 else pa.nulls(batch.num_rows, field.type)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _too_large(url: str, group: RowGroup, size: int) -> DatasetError:
    return DatasetError(
        f"{url}: row group {group.number} has {size} bytes, more than a block's limit of {MAX_BLOCK_BYTES}. Convert "
        "the file (`dataflow shard`), or write it again with smaller row groups"
    )
