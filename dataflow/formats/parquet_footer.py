"""The footer of a Parquet file: its columns, and where each row group lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.storage import join_url

if TYPE_CHECKING:
    from dataflow.storage import Store

__all__ = ["Footer", "RowGroup", "parse_footer", "read_footer"]

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
# Footers are kept in the manifest. Statistics of wide tables with many row groups make them large.
MAX_FOOTER_BYTES = 16 << 20
TAIL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Where a row group lies.

    Attributes:
        number: Its number in the file.
        start: Offset of its first byte.
        length: Bytes to the end of its last column chunk.
        rows: Number of rows.
        decoded: Bytes of its pages before compression.
    """

    number: int
    start: int
    length: int
    rows: int
    decoded: int


@dataclass(frozen=True, slots=True)
class Footer:
    """A footer.

    Attributes:
        data: Its bytes.
        metadata: `pyarrow.parquet.FileMetaData`.
        schema: Columns as they are stored, with dictionaries and extension types.
        groups: The row groups.
    """

    data: bytes
    metadata: Any
    schema: pa.Schema
    groups: tuple[RowGroup, ...]


def read_footer(store: Store, path: str) -> Footer:
    """Reads the footer of a file and checks that what it names lies in the file.

    Raises:
        CorruptDataError: This is no whole Parquet file; names it and the offset.
        DatasetError: The file is encrypted, or its footer is too large.
    """
    url = join_url(store.url, path)
    size = store.size(path)
    tail = bytes(store.read_range(path, max(0, size - TAIL_BYTES), min(size, TAIL_BYTES)))
    if tail[-4:] == ENCRYPTED_MAGIC:
        raise _encrypted(url)
    if size < 12 or tail[-4:] != MAGIC:
        raise CorruptDataError(
            f"{url}: not a whole Parquet file: {MAGIC!r} is missing at its end ({size} bytes). Write or copy it again"
        )
    length = int.from_bytes(tail[-8:-4], "little")
    start = size - 8 - length
    if start < 4:
        raise CorruptDataError(f"{url}: its footer has {length} bytes, the file {size}. Write or copy it again")
    if length > MAX_FOOTER_BYTES:
        raise DatasetError(
            f"{url}: its footer has {length} bytes, more than the limit of {MAX_FOOTER_BYTES}. Convert the file "
            "(`dataflow shard`), or write it again with fewer columns or row groups, or without statistics"
        )
    data = tail[-8 - length : -8] if length + 8 <= len(tail) else bytes(store.read_range(path, start, length))
    try:
        footer = parse_footer(data)
    except (pa.ArrowException, OSError, MemoryError, ValueError, TypeError, RuntimeError) as error:
        if "encrypt" in str(error) or "decrypt" in str(error):
            raise _encrypted(url) from error
        raise CorruptDataError(
            f"{url}: damaged footer at offset {start}: {error}. Write or copy the file again"
        ) from error
    for group in footer.groups:
        if group.rows and not (4 <= group.start < group.start + group.length <= start):
            raise CorruptDataError(
                f"{url}: row group {group.number} lies at bytes {group.start} to {group.start + group.length}, which "
                f"are not before the footer at {start}. Write or copy the file again"
            )
    return footer


# Blocks of a shard come many times, and those of several shards in turn.
@lru_cache(maxsize=32)
def parse_footer(data: bytes) -> Footer:
    """Parses the bytes of a footer.

    Raises:
        Exception: What pyarrow raises; ValueError where what it says makes no sense.
    """
    from pyarrow import parquet

    file = pa.BufferReader(b"".join((MAGIC, data, len(data).to_bytes(4, "little"), MAGIC)))
    metadata = parquet.read_metadata(file)
    groups = tuple(_row_group(metadata.row_group(number), number) for number in range(metadata.num_row_groups))
    return Footer(data, metadata, metadata.schema.to_arrow_schema(), groups)


def _row_group(group: Any, number: int) -> RowGroup:
    starts, ends = [], []
    decoded = 0
    for place in range(group.num_columns):
        column = group.column(place)
        if column.file_path:
            raise ValueError(f"row group {number} has columns in another file ({column.file_path!r})")
        start = column.data_page_offset
        if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
            start = column.dictionary_page_offset
        if column.total_compressed_size < 0 or column.total_uncompressed_size < 0:
            raise ValueError(f"row group {number} has a column of negative size")
        starts.append(start)
        ends.append(start + column.total_compressed_size)
        decoded += max(column.total_uncompressed_size, _fixed_bytes(column))
    if not 0 <= group.num_rows < 1 << 31:
        raise ValueError(f"row group {number} has {group.num_rows} rows")
    first = min(starts, default=0)
    return RowGroup(number, first, max(ends, default=0) - first, group.num_rows, decoded)


def _fixed_bytes(column: Any) -> int:
    """Bytes that a column of numbers decodes to: runs of equal values may be stored in next to nothing."""
    width = {"INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}.get(column.physical_type, 1)
    return int(column.num_values) * width


def _encrypted(url: str) -> DatasetError:
    return DatasetError(f"{url}: is encrypted, and keys are not supported. Write it again without encryption")
