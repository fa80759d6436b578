"""Checks the bytes of one block: their checksum, their rows, and the images in them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from dataflow.dataset import Manifest, decode_block, describe_block, fetch_block
from dataflow.errors import CorruptDataError, StorageError
from dataflow.operations.column_types import is_binary
from dataflow.operations.fault import Fault
from dataflow.operations.images import image_problem, names_images
from dataflow.sharding.image_kind import HEAD_BYTES, image_kind
from dataflow.storage import Buffer, Store, join_url

__all__ = ["check_block"]

_KEY = "key"


def check_block(store: Store, manifest: Manifest, block: int, data: Buffer, decode: bool) -> list[Fault]:
    """What is wrong with a block.

    Args:
        store: The store at `manifest.base_url`.
        manifest: The dataset.
        block: Number of the block.
        data: Its bytes.
        decode: Whether to decode images.
    """
    shard = join_url(manifest.base_url, manifest.shard_path(manifest.shard_of(block)))
    expected, found = manifest.checksum(block), xxhash.xxh3_128_digest(data)
    if found != expected:
        try:  # the error may have been on the way
            data = fetch_block(store, manifest, block)
        except CorruptDataError as error:
            return [Fault("checksum", shard, str(error), block, expected=expected.hex(), found=found.hex())]
        except StorageError as error:
            return [Fault("unreadable", shard, f"{describe_block(manifest, block)}: {error}", block)]
    try:
        rows = decode_block(manifest, block, data)
    except CorruptDataError as error:
        return [Fault("block", shard, str(error), block)]
    faults = []
    for row, column, problem in _value_problems(rows, decode):
        number = int(manifest.first_rows[block]) + row
        key = str(rows.column(_KEY)[row].as_py()) if _KEY in rows.schema.names else None
        named = f"row {number}" if key is None else f"row {number} ({key!r})"
        message = f"{describe_block(manifest, block)}: {named}: {column!r} {problem}"
        faults.append(Fault("value", shard, message, block, number, key, column))
    return faults


def _value_problems(rows: pa.RecordBatch, decode: bool) -> Iterator[tuple[int, str, str]]:
    """Row, column and problem of each image that is none, or that does not decode."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not is_binary(field.type):
            continue
        promised = names_images(field.name)
        for row, head in enumerate(pc.binary_slice(column, 0, HEAD_BYTES).to_pylist()):
            if head is None or not (promised or (decode and image_kind(head))):
                continue
            problem = image_problem(memoryview(column[row].as_buffer()), decode)
            if problem:
                yield row, field.name, problem
