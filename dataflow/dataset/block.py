"""From a block's number to its rows, in the two steps that a pipeline runs apart: bytes that are right, then Arrow."""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import xxhash

from dataflow.dataset.manifest import Manifest
from dataflow.errors import CorruptDataError, StorageError, StorageRangeError
from dataflow.formats import format_named
from dataflow.formats.numeric import numeric_array
from dataflow.storage import Buffer, Store, join_url

__all__ = ["decode_block", "decode_stored_block", "describe_block", "describe_row", "fetch_block", "read_block"]

logger = logging.getLogger(__name__)


def read_block(store: Store, manifest: Manifest, block: int, verify: bool = True) -> pa.RecordBatch:
    """Reads the rows of one block: `fetch_block`, then `decode_block`."""
    return decode_block(manifest, block, fetch_block(store, manifest, block, verify))


def fetch_block(store: Store, manifest: Manifest, block: int, verify: bool = True) -> Buffer:
    """Reads the bytes of one block in one range and checks them.

    Args:
        store: The store at `manifest.base_url`.
        manifest: The dataset.
        block: Number of the block.
        verify: Compare the checksum. Bytes that differ are read once more: the error may have been on the way.

    Raises:
        CorruptDataError: The bytes are not those that were indexed; names shard, block, range and both checksums.
        StorageError: The store could not be read.
    """
    path = manifest.shard_path(manifest.shard_of(block))
    start, length = int(manifest.starts[block]), int(manifest.lengths[block])
    if start < 0 or length < 0:
        raise CorruptDataError(f"{describe_block(manifest, block)}: the manifest is damaged. Index the shards again")
    data = _read(store, manifest, block, path, start, length)
    if not verify:
        return data
    expected = manifest.checksum(block)
    actual = xxhash.xxh3_128_digest(data)
    if actual != expected:
        logger.warning("%s: wrong checksum, reading it again", describe_block(manifest, block))
        data = _read(store, manifest, block, path, start, length)
        actual = xxhash.xxh3_128_digest(data)
    if actual != expected:
        raise CorruptDataError(
            f"{describe_block(manifest, block)}: xxh3-128 is {actual.hex()}, the manifest says {expected.hex()}"
            f"{_change_note(store, manifest, block)}. Restore the shard, or index it again if it was changed on purpose"
        )
    return data


def decode_block(manifest: Manifest, block: int, data: Buffer) -> pa.RecordBatch:
    """Turns the bytes of one block into its rows, with the columns of `manifest.schema`, without those excluded.

    Raises:
        CorruptDataError: They are no block of the dataset's format, or have another number of rows.
    """
    batch = decode_stored_block(manifest, block, data)
    excluded = manifest.excluded_from(block)
    if len(excluded):
        batch = batch.take(numeric_array(np.delete(np.arange(batch.num_rows), excluded)))
    return batch


def decode_stored_block(manifest: Manifest, block: int, data: Buffer) -> pa.RecordBatch:
    """Turns the bytes of one block into all rows that are stored in it; else as `decode_block`.

    Raises:
        CorruptDataError: They are no block of the dataset's format, or have another number of rows.
    """
    place = manifest.place(block)
    try:
        batch = format_named(manifest.format).read(data, manifest.schema, place)
    except CorruptDataError as error:
        raise CorruptDataError(f"{describe_block(manifest, block)}: {error}") from error
    if batch.num_rows != place.rows:
        raise CorruptDataError(
            f"{describe_block(manifest, block)}: has {batch.num_rows} rows, the manifest says {place.rows}. Index the "
            "shards again"
        )
    return batch


def describe_block(manifest: Manifest, block: int) -> str:
    """Names a block in messages: its number, shard, byte range and rows."""
    shard = manifest.shard_path(manifest.shard_of(block))
    start, first_row = int(manifest.starts[block]), int(manifest.first_rows[block])
    end, last_row = start + int(manifest.lengths[block]) - 1, first_row + int(manifest.rows[block]) - 1
    url = join_url(manifest.base_url, shard)
    return f"block {block} ({url}, bytes {start}-{end}, rows {first_row}-{last_row})"


def describe_row(manifest: Manifest, block: int, row: int, key: object = None) -> str:
    """Names a row in messages: its block and shard, its number in the dataset, and its key where it has one."""
    shard = join_url(manifest.base_url, manifest.shard_path(manifest.shard_of(block)))
    number = int(manifest.first_rows[block]) + row
    named = "" if key is None else f", key {key!r}"
    return f"{manifest.url}: row {row} of block {block} ({shard}, sample {number}{named})"


def _read(store: Store, manifest: Manifest, block: int, path: str, start: int, length: int) -> Buffer:
    try:
        return store.read_range(path, start, length)
    except StorageRangeError as error:  # other errors are those of the store, and no fault of the data
        note = _change_note(store, manifest, block)
        raise CorruptDataError(f"{describe_block(manifest, block)}: cannot be read{note}. Restore the shard") from error


def _change_note(store: Store, manifest: Manifest, block: int) -> str:
    """What the store knows of a shard that is not as it was indexed."""
    shard = manifest.shard_of(block)
    size, version = manifest.shard_size(shard), manifest.shard_version(shard)
    try:
        entry = store.entry(manifest.shard_path(shard))
    except StorageError:
        return ""
    if entry.size != size:
        return f"; the shard has {entry.size} bytes, the manifest says {size}"
    if version and entry.version != version:
        return f"; the shard was replaced since it was indexed (its version is {entry.version}, was {version})"
    return ""
