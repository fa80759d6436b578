"""Datasets whose rows know their own numbers, with blocks of any sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import dataflow
from dataflow.dataset import ManifestWriter
from dataflow.storage import open_store

SCHEMA = pa.schema([("number", pa.int64())])


def write_rows(folder: Path, count: int, *, rows_per_block: int = 4, shard_bytes: int = 16 << 10) -> str:
    """Rows 0 .. count-1 in equal blocks, spread over several shards."""
    with dataflow.ShardWriter(
        str(folder), schema=SCHEMA, rows_per_block=rows_per_block, shard_bytes=shard_bytes
    ) as writer:
        for number in range(count):
            writer.write({"number": number})
    return str(folder)


def write_blocks(folder: Path, blocks: Sequence[int]) -> str:
    """Rows in blocks of the given sizes, empty and oversize ones too: what an indexed shard of others may look like."""
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    with pa.ipc.new_file(str(folder / "rows.arrow"), SCHEMA) as writer:
        for rows in blocks:
            writer.write_batch(pa.record_batch([pa.array(range(first, first + rows), pa.int64())], schema=SCHEMA))
            first += rows
    dataflow.index(str(folder))
    return str(folder)


def write_nothing(folder: Path) -> str:
    """A dataset without a single block."""
    folder.mkdir(parents=True, exist_ok=True)
    ManifestWriter("arrow").write(open_store(str(folder)), SCHEMA)
    return str(folder)
