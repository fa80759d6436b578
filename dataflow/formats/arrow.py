"""Arrow IPC shards: each record batch is a block. Files (`ARROW1`) and streams are read; ours are files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash
from pyarrow import ipc

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats.arrow_footer import DAMAGED, MAGIC, check_footer, rest
from dataflow.formats.format import MAX_BLOCK_BYTES, Block, Place, ShardIndex, Skipped
from dataflow.formats.types import plain_schema
from dataflow.formats.window import Window
from dataflow.storage import join_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataflow.storage import Buffer, Store

__all__ = ["ArrowFormat", "dictionary_column"]

FEATHER_1 = b"FEA1"


class ArrowFormat:
    """Record batches of an Arrow IPC file or stream. Extension types become the values that they store."""

    name = "arrow"
    suffixes = (".arrow", ".arrows", ".feather", ".ipc")

    def index(self, store: Store, path: str, block_bytes: int, skip_bad: bool = False) -> ShardIndex:
        """See `Format.index`. The record batches are the blocks: `block_bytes` has no say.

        A damaged record batch is left out alone if its end is known, else with all that follows.
        """
        url = join_url(store.url, path)
        source = _Source(Window(store, path), url)
        magic = bytes(source.window.read(0, len(MAGIC)))
        if magic.startswith(FEATHER_1):
            raise DatasetError(f"{url}: is Feather of version 1, which is no Arrow file. Write it again as version 2.")
        is_file = magic == MAGIC
        if is_file:
            source.position = 8  # the magic is padded to 8 bytes; what follows is a stream
        reader = ipc.MessageReader.open_stream(pa.PythonFile(source, mode="r"))
        schema: pa.Schema | None = None
        columns = pa.schema([])
        blocks: list[Block] = []
        skipped: list[Skipped] = []
        broken = False
        while not broken:
            start = source.position
            source.checksum.reset()
            message = None
            try:
                message = reader.read_next_message()
                if message.type == "schema" and schema is None:
                    schema = ipc.read_schema(message)
                    _check_columns(schema, url)
                    columns = plain_schema(schema)
                    continue
                if message.type != "record batch" or schema is None:
                    raise CorruptDataError(f"unexpected {message.type} message")
                rows = _fit(_decode(message, schema), columns).num_rows
            except StopIteration:
                break
            except (CorruptDataError, *DAMAGED) as error:
                if source.failure is not None:
                    raise source.failure from None
                if not skip_bad or schema is None:
                    raise CorruptDataError(
                        f"{url}: damaged or cut off at offset {start} of {source.window.size} bytes: {error}. "
                        "Write or copy the shard again."
                    ) from error
                if message is None:
                    broken = True
                    skipped.append(rest(start, str(error)))
                else:
                    skipped.append(Skipped(f"record batch at offset {start}", "a damaged record batch", str(error)))
                continue
            blocks.append(Block(start, source.position - start, rows, source.checksum.digest()))
        end = _end_error(source, is_file)
        if end and not (skip_bad and schema is not None):
            raise CorruptDataError(f"{url}: {end}")
        if schema is None:
            raise CorruptDataError(f"{url}: holds no Arrow schema. Write or copy the shard again.")
        if end and not broken:
            skipped.append(rest(source.position, end))
        if is_file and not end:
            end_offset = source.window.size if broken else start
            blocks = check_footer(source.window, schema, blocks, end_offset, skipped if skip_bad else None, url)
        detail = b"" if columns is schema else schema.serialize().to_pybytes()
        return ShardIndex(blocks, columns, skipped, detail)

    def read(self, data: Buffer, schema: pa.Schema, place: Place) -> pa.RecordBatch:
        """See `Format.read`. Uncompressed columns are views of `data`, at addresses divisible by 8 if `data` is.

        A shard that was written with fewer columns, in another order, or with types that are not plain, has its own
        schema as `place.detail`.
        """
        try:
            if not place.detail:
                return _decode(ipc.read_message(pa.py_buffer(data)), schema)
            own = ipc.read_schema(pa.py_buffer(place.detail))
            return _fit(_decode(ipc.read_message(pa.py_buffer(data)), own), schema)
        except DAMAGED as error:
            raise CorruptDataError(f"not an Arrow record batch of the dataset's schema: {error}") from error

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """See `Format.merge`. A record batch can only be read with the schema that it was written with."""
        if first.equals(second):
            return first
        columns = {field.name: field for field in first}
        for field in second:
            if field.name not in columns:
                raise DatasetError(f"has a column {field.name!r} that earlier shards lack")
            if not field.equals(columns[field.name]):
                earlier = columns[field.name]
                raise DatasetError(f"has column {field.name!r} as {field.type}, earlier shards have {earlier.type}")
        missing = [name for name in first.names if name not in second.names]
        raise DatasetError(f"lacks column {missing[0]!r}" if missing else "has the columns in another order")


class _Source:
    """A shard as the file object that pyarrow's message reader takes bytes from."""

    closed = False

    def __init__(self, window: Window, url: str) -> None:
        self.window = window
        self.position = 0
        self.checksum = xxhash.xxh3_128()
        self.short = False
        self.failure: Exception | None = None
        self._url = url

    def read(self, length: int) -> memoryview:
        """Returns the next bytes. A length taken from a damaged shard is checked before memory is."""
        remaining = self.window.size - self.position
        if length > remaining:
            self.short = True
        elif length > MAX_BLOCK_BYTES:
            self.failure = DatasetError(
                f"{self._url}: the record batch at offset {self.position} has {length} bytes, more than a block's "
                f"limit of {MAX_BLOCK_BYTES}. Write it again in smaller record batches (`dataflow shard`)."
            )
            raise self.failure
        try:
            data = self.window.read(self.position, min(length, remaining))
        except Exception as error:  # kept whole: pyarrow may wrap what passes through it
            self.failure = error
            raise
        self.position += len(data)
        self.checksum.update(data)
        return data

    def tell(self) -> int:
        return self.position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing to close: the store belongs to the caller."""


def _decode(message: ipc.Message, schema: pa.Schema) -> pa.RecordBatch:
    batch = ipc.read_record_batch(message, schema)
    # Offsets that point outside their buffer would crash whoever reads the column, so nothing unchecked leaves here.
    batch.validate(full=True)
    return batch


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema in its types, null where the batch has none of that name."""
    columns = []
    for field in schema:
        missing = field.name not in batch.schema.names
        column = pa.nulls(batch.num_rows, field.type) if missing else batch.column(field.name)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _end_error(source: _Source, is_file: bool) -> str:
    """What is wrong with the end: a writer that was killed leaves none, and that must not pass for a whole shard."""
    size = source.window.size
    if source.short:
        return f"cut off: no end-of-stream mark after {size} bytes. Write or copy it again."
    if is_file:
        if bytes(source.window.read(size - len(MAGIC), len(MAGIC))) != MAGIC:
            return f"cut off: no Arrow footer at its end ({size} bytes). Write or copy it again."
    elif source.position != size:
        return (
            f"the Arrow stream ends at offset {source.position}, but the file has {size} bytes. Keep one stream a file."
        )
    return ""


def _check_columns(schema: pa.Schema, url: str) -> None:
    if not len(schema):
        raise DatasetError(f"{url}: has no columns. Leave it out.")
    for field in schema:
        _names(field)  # pyarrow decodes names when asked: those that are no UTF-8 would fail whoever reads the rows
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise DatasetError(f"{url}: has two columns {name!r}. Write it again with different names.")
    column = dictionary_column(schema)
    if column is not None:
        raise DatasetError(
            f"{url}: column {column!r} is dictionary-encoded, so that its blocks cannot be read one by one. "
            "Write it again with plain values (`table.cast`), or as Parquet."
        )
    column = _column_with(schema, pa.types.is_run_end_encoded)
    if column is not None:
        raise DatasetError(
            f"{url}: column {column!r} is run-end encoded, so that a few bytes may be any number of rows. "
            "Write it again with plain values (`pyarrow.compute.run_end_decode`)."
        )


def _names(field: pa.Field) -> list[str]:
    inner = (name for place in range(field.type.num_fields) for name in _names(field.type.field(place)))
    return [field.name, *inner]


def dictionary_column(schema: pa.Schema) -> str | None:
    """Returns the name of the first column that is dictionary-encoded, at any depth, or None."""
    return _column_with(schema, pa.types.is_dictionary)


def _column_with(schema: pa.Schema, encoded: Callable[[pa.DataType], bool]) -> str | None:
    def found(kind: pa.DataType) -> bool:
        if isinstance(kind, pa.BaseExtensionType):
            return found(kind.storage_type)
        return encoded(kind) or any(found(kind.field(i).type) for i in range(kind.num_fields))

    return next((field.name for field in schema if found(field.type)), None)
