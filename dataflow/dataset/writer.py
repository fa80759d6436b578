"""Writes a dataset: rows or record batches in, Arrow shards of equal blocks and a manifest out."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from dataflow.dataset.block_size import MAX_BLOCK_SIZE, usual_block_bytes
from dataflow.dataset.manifest_file import check_properties
from dataflow.dataset.manifest_writer import ManifestWriter
from dataflow.dataset.row_buffer import RowBuffer
from dataflow.dataset.shard_file import ShardFile
from dataflow.dataset.target import prepare_target, shard_name
from dataflow.errors import OptionError
from dataflow.formats.arrow import dictionary_column
from dataflow.formats.format import MAX_BLOCK_BYTES
from dataflow.storage import Entry, open_store

__all__ = ["ShardWriter"]

# So much is held back until the number of rows in a block is chosen; a smaller dataset is then known as a whole.
SAMPLE_BYTES = 32 << 20
SAMPLE_ROWS = 1 << 18


class ShardWriter:
    """Writes rows to Arrow shards; the folder becomes a dataset when the `with` block ends without an exception.

    All blocks have the same number of rows, except the last one and those that would reach twice `block_bytes`. The
    number is chosen from the first rows. Not to be shared between threads.

    Example:
        with ShardWriter("s3://bucket/cats", total_bytes=300 << 30) as writer:
            writer.write({"image": jpeg, "label": 3})

    Args:
        url: The dataset's folder. It must be empty, but for what a run that was stopped has left.
        schema: Columns of a row; None takes them from the first rows.
        block_bytes: Wanted size of a block before compression. None: 1/4096 of the dataset, at least 64 KiB and at most
            2 MiB, or 512 KiB when the dataset is large and `total_bytes` is not given.
        total_bytes: About how large the dataset will be, if known.
        rows_per_block: Number of rows of a block, instead of one that follows from `block_bytes`.
        shard_bytes: A shard that has reached this size is finished.
        compression: None, or "zstd" for token and text datasets. Media are compressed already.
        properties: JSON-able facts to keep with the dataset, such as the list of classes; may be changed until the end.

    Raises:
        OptionError: The folder is not empty, or an argument makes no sense.
    """

    def __init__(
        self,
        url: str,
        schema: pa.Schema | None = None,
        *,
        block_bytes: int | None = None,
        total_bytes: int | None = None,
        rows_per_block: int | None = None,
        shard_bytes: int = 256 << 20,
        compression: str | None = None,
        properties: dict[str, Any] | None = None,
    ) -> None:
        for name, value in (
            ("block_bytes", block_bytes),
            ("rows_per_block", rows_per_block),
            ("shard_bytes", shard_bytes),
        ):
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}, it must be at least 1")
        if compression not in (None, "zstd"):
            raise OptionError(f"compression is {compression!r}, it must be None or 'zstd'")
        self.properties = properties if properties is not None else {}
        check_properties(self.properties)  # now, not after hours of writing
        self._store = open_store(url)
        self._block_bytes = block_bytes
        # A block is closed early at twice this size; rows that were counted by the caller are left as they are.
        self._limit = block_bytes or (MAX_BLOCK_SIZE if rows_per_block is None else MAX_BLOCK_BYTES // 2)
        self._total_bytes = total_bytes
        self._block_rows = rows_per_block
        self._shard_bytes = shard_bytes
        self._compression = compression
        self._schema = schema
        if schema is not None:
            _check_schema(schema)
        self._buffer = RowBuffer(schema)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._shard: ShardFile | None = None
        self._num_shards = 0
        self._publishing: tuple[ShardFile, Future[Entry]] | None = None
        self._closed = False
        prepare_target(self._store)
        self._manifest = ManifestWriter("arrow", properties=self.properties)
        # One shard is uploaded while the next is written.
        self._publisher = ThreadPoolExecutor(1, thread_name_prefix="dataflow-publish")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abort()

    def write(self, row: Mapping[str, Any]) -> None:
        """Adds one row: bytes, strings, numbers, None, 1-D arrays, lists and dicts of these.

        Raises:
            OptionError: The row does not fit the dataset; names row and column.
            StorageError: A shard could not be written.
        """
        self._check_open()
        buffer = self._buffer
        buffer.append(row)
        rows, size = self._pending_rows + buffer.num_rows, self._pending_bytes + buffer.num_bytes
        if self._block_rows is None:
            full = size >= SAMPLE_BYTES or rows >= SAMPLE_ROWS
        else:
            full = rows >= self._block_rows or size >= 2 * self._limit
        if full:
            self._flush_rows()
            self._drain()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Adds the rows of a record batch, in blocks of the dataset's own size.

        Raises:
            OptionError: Its columns are not those of the dataset.
            StorageError: A shard could not be written.
        """
        self._check_open()
        self._flush_rows()
        self._push(batch)
        self._drain()

    def close(self) -> None:
        """Writes what is left, then the manifest: from then on the folder is a dataset. May be called again.

        Raises:
            OptionError: Nothing was written.
            StorageError: A shard or the manifest could not be written.
        """
        if self._closed:
            return
        try:
            self._flush_rows()
            if self._block_rows is None:
                self._choose_rows(whole=True)
            self._drain()
            if self._pending_rows:
                self._write_block(self._take(self._pending_rows))
            if self._schema is None or not (self._shard or self._num_shards):
                raise OptionError(f"no row was written to {self._store.url}: a dataset needs at least one")
            self._finish_shard()
            self._collect()
            self._manifest.write(self._store, self._schema)
        finally:
            self.abort()

    def abort(self) -> None:
        """Gives up: no manifest is written, so that what is there is not a dataset. Nothing happens after `close`."""
        self._closed = True
        self._publisher.shutdown(wait=True, cancel_futures=True)
        if self._publishing is not None:
            self._publishing[0].discard()
        if self._shard is not None:
            self._shard.discard()
            self._shard = None

    def _check_open(self) -> None:
        if self._closed:
            raise OptionError(f"the writer of {self._store.url} is closed")

    def _flush_rows(self) -> None:
        if self._buffer.num_rows:
            self._push(self._buffer.take())

    def _push(self, batch: pa.RecordBatch) -> None:
        if self._schema is None:
            _check_schema(batch.schema)
            self._schema = self._buffer.schema = batch.schema
        elif not batch.schema.equals(self._schema):
            difference = next(
                (
                    f"column {new.name!r} of type {new.type} instead of {old.name!r} of type {old.type}"
                    for old, new in zip(self._schema, batch.schema, strict=False)
                    if not new.equals(old)
                ),
                f"columns {batch.schema.names} instead of {self._schema.names}",
            )
            raise OptionError(f"a record batch does not fit the dataset: {difference}. Cast it first")
        if batch.num_rows:
            self._pending.append(batch)
            self._pending_rows += batch.num_rows
            self._pending_bytes += batch.nbytes

    def _choose_rows(self, whole: bool) -> None:
        """Chooses the number of rows of a block from the rows at hand, which may be the whole dataset."""
        if self._block_bytes is None:
            self._block_bytes = usual_block_bytes(self._total_bytes or (self._pending_bytes if whole else None))
        self._limit = self._block_bytes
        mean = self._pending_bytes / max(1, self._pending_rows)
        self._block_rows = max(1, round(self._block_bytes / max(1.0, mean)))

    def _drain(self) -> None:
        """Writes the blocks that are complete."""
        if self._block_rows is None:
            if self._pending_bytes < SAMPLE_BYTES and self._pending_rows < SAMPLE_ROWS:
                return
            self._choose_rows(whole=False)
        assert self._block_rows is not None
        while self._pending_rows >= self._block_rows or self._pending_bytes >= 2 * self._limit:
            self._write_block(self._take(min(self._block_rows, self._pending_rows)))

    def _take(self, rows: int) -> pa.RecordBatch:
        """Removes the next rows from those that wait."""
        pieces: list[pa.RecordBatch] = []
        taken = 0
        while taken < rows:
            first = self._pending[0]
            wanted = min(rows - taken, first.num_rows)
            self._pending_bytes -= first.nbytes
            if wanted == first.num_rows:
                del self._pending[0]
            else:
                self._pending[0] = first.slice(wanted)
                self._pending_bytes += self._pending[0].nbytes
            pieces.append(first.slice(0, wanted))
            taken += wanted
        self._pending_rows -= rows
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _write_block(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows > 1 and batch.nbytes >= 2 * self._limit:
            half = batch.num_rows // 2
            self._write_block(batch.slice(0, half))
            self._write_block(batch.slice(half))
            return
        if self._shard is None:
            self._shard = ShardFile(self._store, shard_name(self._num_shards), self._schema, self._compression)
            self._num_shards += 1
        self._shard.write(batch)
        if self._shard.num_bytes >= self._shard_bytes:
            self._finish_shard()

    def _finish_shard(self) -> None:
        if self._shard is None:
            return
        self._collect()
        self._publishing = (self._shard, self._publisher.submit(self._shard.publish))
        self._shard = None

    def _collect(self) -> None:
        """Waits for the shard that is being published, and notes it in the manifest."""
        if self._publishing is not None:
            shard, future = self._publishing
            entry = future.result()
            self._publishing = None
            # Without the store's version of the file: a dataset written twice is the same to the byte.
            self._manifest.add(entry.path, entry.size, "", shard.blocks)


def _check_schema(schema: pa.Schema) -> None:
    if len(set(schema.names)) != len(schema.names):
        raise OptionError(f"the schema has columns of the same name: {schema.names}")
    column = dictionary_column(schema)
    if column is not None:
        raise OptionError(f"column {column!r} is dictionary-encoded: blocks must be readable one by one. Cast it first")
