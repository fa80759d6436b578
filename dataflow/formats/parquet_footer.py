"""The footer of a Parquet file: its columns, and where each row group lies.

What decoding needs is kept, and statistics, page indexes and other programs' notes are not: they would fill manifests,
and damaged ones bring pyarrow down.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats.thrift import Fields, Struct, integer, octets, pick, write
from dataflow.formats.types import plain_type
from dataflow.storage import join_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataflow.storage import Buffer, Store

__all__ = ["Footer", "RowGroup", "dictionary_bytes", "pack_detail", "parse_detail", "read_footer"]

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
MAX_FOOTER_BYTES = 64 << 20
# What is left of a footer is kept in the manifest.
MAX_DETAIL_BYTES = 16 << 20
TAIL_BYTES = 64 << 10

# The names of fields are those of parquet.thrift.
VERSION, SCHEMA, NUM_ROWS, ROW_GROUPS, KEY_VALUE_METADATA, CREATED_BY, ENCRYPTION = 1, 2, 3, 4, 5, 6, 8
COLUMNS, TOTAL_BYTE_SIZE, ROWS = 1, 2, 3
FILE_PATH, FILE_OFFSET, META_DATA, CRYPTO_METADATA = 1, 2, 3, 8
TYPE, ENCODINGS, PATH, CODEC, NUM_VALUES, UNCOMPRESSED, COMPRESSED, DATA_PAGE, DICTIONARY_PAGE = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    9,
    11,
)
KEY, VALUE = 1, 2
UNCOMPRESSED_PAGE_SIZE = 2
# More than the header of a dictionary's page has.
PAGE_HEADER_BYTES = 256
WANTED: Fields = {
    VERSION: None,
    SCHEMA: None,
    NUM_ROWS: None,
    ROW_GROUPS: {
        COLUMNS: {
            FILE_PATH: None,
            FILE_OFFSET: None,
            META_DATA: dict.fromkeys(
                (TYPE, ENCODINGS, PATH, CODEC, NUM_VALUES, UNCOMPRESSED, COMPRESSED, DATA_PAGE, DICTIONARY_PAGE)
            ),
            CRYPTO_METADATA: None,
        },
        TOTAL_BYTE_SIZE: None,
        ROWS: None,
    },
    KEY_VALUE_METADATA: {KEY: None, VALUE: None},
    CREATED_BY: None,
    ENCRYPTION: None,
}
# Bytes of a value of the physical types BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE; others have at least one.
BYTE_ARRAY = 6
WIDTHS = {0: 1, 1: 4, 2: 8, 3: 8, 4: 4, 5: 8}


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Where a row group lies.

    Attributes:
        number: Its number in the file.
        start: Offset of its first byte.
        length: Bytes to the end of its last column chunk.
        rows: Number of rows.
        decoded: Bytes of its pages before compression.
        dictionaries: Offsets of the dictionary pages of its columns of bytes and text.
    """

    number: int
    start: int
    length: int
    rows: int
    decoded: int
    dictionaries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Footer:
    """A footer.

    Attributes:
        data: What is kept of its bytes.
        metadata: `pyarrow.parquet.FileMetaData`.
        schema: Columns, in plain types.
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
        DatasetError: The file is encrypted, its footer is too large, or its columns cannot be told apart.
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
        raise _too_large(url, length, MAX_FOOTER_BYTES)
    data = tail[-8 - length : -8] if length + 8 <= len(tail) else bytes(store.read_range(path, start, length))
    try:
        footer = _footer(data, url)
    except (pa.ArrowException, OSError, MemoryError, ValueError, TypeError, RecursionError) as error:
        raise CorruptDataError(
            f"{url}: damaged footer at offset {start}: {error}. Write or copy the file again"
        ) from error
    if len(footer.data) > MAX_DETAIL_BYTES:
        raise _too_large(url, len(footer.data), MAX_DETAIL_BYTES)
    for group in footer.groups:
        if group.rows and not (4 <= group.start < group.start + group.length <= start):
            raise CorruptDataError(
                f"{url}: row group {group.number} lies at bytes {group.start} to {group.start + group.length}, which "
                f"are not before the footer at {start}. Write or copy the file again"
            )
    return footer


def pack_detail(footer: Footer, blocks: Sequence[RowGroup]) -> bytes:
    """What blocks need to be decoded: where the row groups start that are blocks, and the footer."""
    starts = [-1] * len(footer.groups)
    for group in blocks:
        starts[group.number] = group.start
    return b"".join((len(starts).to_bytes(4, "little"), np.array(starts, "<i8").tobytes(), footer.data))


# Blocks of a shard come many times, and those of several shards in turn.
@lru_cache(maxsize=32)
def parse_detail(detail: bytes) -> tuple[dict[int, int], Any]:
    """The number of the row group that starts at each offset, and the file's `pyarrow.parquet.FileMetaData`.

    Raises:
        Exception: What pyarrow raises on bytes that are no footer; ValueError.
    """
    count = int.from_bytes(detail[:4], "little")
    starts = np.frombuffer(detail, "<i8", count=count, offset=4)
    metadata = _metadata(detail[4 + starts.nbytes :])
    return {start: number for number, start in enumerate(starts.tolist()) if start >= 0}, metadata


def dictionary_bytes(data: Buffer, group: RowGroup) -> int:
    """Bytes of the largest dictionary of a row group, and so at most of a value that is stored once and decoded often.

    Raises:
        ValueError: There is no page where a dictionary should be.
    """
    view = memoryview(data)
    largest = 0
    for offset in group.dictionaries:
        header, _ = pick(bytes(view[offset - group.start :][:PAGE_HEADER_BYTES]), {UNCOMPRESSED_PAGE_SIZE: None})
        largest = max(largest, integer(header, UNCOMPRESSED_PAGE_SIZE))
    return largest


def _metadata(data: bytes) -> Any:
    from pyarrow import parquet

    return parquet.read_metadata(pa.BufferReader(b"".join((MAGIC, data, len(data).to_bytes(4, "little"), MAGIC))))


def _footer(stored: bytes, url: str) -> Footer:
    fields, end = pick(stored, WANTED)
    if ENCRYPTION in fields:
        raise _encrypted(url)
    if end != len(stored):
        raise ValueError(f"it ends after {end} of {len(stored)} bytes")
    groups = tuple(_row_group(group, number, url) for number, group in enumerate(_structs(fields, ROW_GROUPS)))
    # Of the notes, only the one that has the columns' Arrow types says how to decode.
    notes = [note for note in _structs(fields, KEY_VALUE_METADATA) if octets(note, KEY) == b"ARROW:schema"]
    fields.pop(KEY_VALUE_METADATA, None)
    if notes:
        fields[KEY_VALUE_METADATA] = (9, notes[:1])
    data = write(fields)
    metadata = _metadata(data)
    if metadata.num_row_groups != len(groups):
        raise ValueError(f"it has {len(groups)} row groups, of which pyarrow finds {metadata.num_row_groups}")
    schema = metadata.schema.to_arrow_schema()
    columns = pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
    if not len(columns):
        raise DatasetError(f"{url}: has no columns. Leave it out")
    for name in columns.names:
        if columns.names.count(name) > 1:
            raise DatasetError(f"{url}: has two columns {name!r}. Write it again with different names")
    return Footer(data, metadata, columns, groups)


def _row_group(group: Struct, number: int, url: str) -> RowGroup:
    starts, ends, dictionaries = [], [], []
    decoded = 0
    for chunk in _structs(group, COLUMNS):
        if CRYPTO_METADATA in chunk:
            raise _encrypted(url)
        if octets(chunk, FILE_PATH):
            raise ValueError(f"row group {number} has columns in another file ({octets(chunk, FILE_PATH)!r})")
        _, column = chunk.get(META_DATA, (0, b""))
        if not isinstance(column, dict):
            raise ValueError(f"row group {number} has a column without metadata")
        start = integer(column, DATA_PAGE)
        dictionary = integer(column, DICTIONARY_PAGE, 0)
        if 0 < dictionary < start:
            start = dictionary
            if integer(column, TYPE) == BYTE_ARRAY:
                dictionaries.append(dictionary)
        compressed, uncompressed = integer(column, COMPRESSED), integer(column, UNCOMPRESSED)
        values = integer(column, NUM_VALUES)
        if min(compressed, uncompressed, values) < 0:
            raise ValueError(f"row group {number} has a column of negative size")
        starts.append(start)
        ends.append(start + compressed)
        # Runs of equal values may be stored in next to nothing.
        decoded += max(uncompressed, values * WIDTHS.get(integer(column, TYPE), 1))
    rows = integer(group, ROWS)
    if not 0 <= rows < 1 << 31:
        raise ValueError(f"row group {number} has {rows} rows")
    first = min(starts, default=0)
    return RowGroup(number, first, max(ends, default=0) - first, rows, decoded, tuple(dictionaries))


def _structs(struct: Struct, number: int) -> list[Struct]:
    value = struct.get(number, (0, []))[1]
    if not isinstance(value, list):
        raise ValueError(f"field {number} is no list of structs")
    return value


def _too_large(url: str, length: int, limit: int) -> DatasetError:
    return DatasetError(
        f"{url}: its footer has {length} bytes, more than the limit of {limit}. Convert the file (`dataflow shard`), "
        "or write it again with fewer columns or row groups"
    )


def _encrypted(url: str) -> DatasetError:
    return DatasetError(f"{url}: is encrypted, and keys are not supported. Write it again without encryption")
