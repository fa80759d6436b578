"""Shards of rows of text: JSON lines, CSV, plain text; as they are, or compressed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats.compression import COMPRESSIONS, compression_of, decode
from dataflow.formats.format import Block, Place, ShardIndex
from dataflow.formats.row_source import MAX_ROW_BYTES, RowSource, open_rows
from dataflow.storage import join_url

if TYPE_CHECKING:
    from dataflow.formats.rows import RowKind, RowScan
    from dataflow.storage import Buffer, Store

__all__ = ["LinesFormat"]

# What pyarrow raises on damaged bytes: its own errors, and Python's.
DAMAGED = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError)


class LinesFormat:
    """Rows of text of one kind.

    A block is a run of whole rows. In a compressed file it is a run of gzip members or zstd frames: those in which its
    rows begin, and those into which the last row reaches.

    Args:
        name: Name in a manifest.
        suffixes: Endings of names of files that are not compressed.
        kind: How rows are told apart and decoded.
    """

    def __init__(self, name: str, suffixes: tuple[str, ...], kind: RowKind) -> None:
        self.name = name
        self.suffixes = tuple(suffix + packed for suffix in suffixes for packed in ("", *COMPRESSIONS))
        self._kind = kind

    def index(self, store: Store, path: str, block_bytes: int) -> ShardIndex:
        """See `Format.index`. Every row is decoded; types are those that hold all values exactly."""
        url = join_url(store.url, path)
        scan = self._kind.scan()
        try:
            blocks = _index(open_rows(store, path), scan, min(block_bytes, MAX_ROW_BYTES))
        except CorruptDataError as error:
            raise CorruptDataError(f"{url}: {error}") from error
        except DatasetError as error:
            raise DatasetError(f"{url}: {error}") from error
        schema = scan.schema()
        if blocks and not len(schema):
            raise DatasetError(f"{url}: its rows have no columns. Leave it out")
        facts = dict(scan.facts)
        compression = compression_of(path)
        if compression:
            facts["compression"] = compression
        return ShardIndex(blocks, schema, detail=json.dumps(facts).encode() if facts else b"")

    def read(self, data: Buffer, schema: pa.Schema, place: Place) -> pa.RecordBatch:
        """See `Format.read`. Columns that a shard lacks are null."""
        try:
            facts = json.loads(place.detail) if place.detail else {}
            if "compression" in facts:
                decoded = decode(facts["compression"], data)[place.skip :]
                rows = decoded[: self._kind.end(decoded, place.rows, facts)]
            else:
                rows = bytes(data)
            return self._kind.read(rows, schema, facts)
        except DAMAGED as error:
            raise CorruptDataError(f"not rows of {self.name} with the dataset's columns: {error}") from error

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """See `Format.merge`."""
        return self._kind.merge(first, second)


def _index(source: RowSource, scan: RowScan, block_bytes: int) -> list[Block]:
    blocks: list[Block] = []
    source.fill(block_bytes)
    while (head := scan.head(source.data, source.ended)) is None:
        source.more()
    line = 1 + source.data.count(b"\n", 0, head)
    if head:
        source.take(head)
    while True:
        at = source.fill(block_bytes)
        if not source.data:
            return blocks
        while (end := scan.cut(source.data, at, source.ended, line)) is None:
            source.more()
        rows = bytes(source.data[:end])
        stored = source.take(end)
        count = scan.add(rows, line)
        line += rows.count(b"\n")
        if count:
            blocks.append(Block(stored.start, stored.length, count, stored.checksum, stored.skip))
