"""Shards of rows of text: JSON lines, CSV, plain text; as they are, or compressed."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats.compression import COMPRESSIONS, compression_of, decode
from dataflow.formats.format import Block, Place, ShardIndex, Skipped
from dataflow.formats.row_source import MAX_ROW_BYTES, RowSource, open_rows
from dataflow.formats.sound_rows import SoundRows, without
from dataflow.storage import join_url

if TYPE_CHECKING:
    from dataflow.formats.rows import RowKind, RowScan
    from dataflow.storage import Buffer, Store

__all__ = ["LinesFormat"]

# What pyarrow raises on damaged bytes: its own errors, and Python's.
DAMAGED = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, AttributeError, MemoryError)
# The fact where damaged rows lie: for each block that has some, start and end of these within its rows.
DAMAGED_ROWS = "damaged rows"


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

    def index(self, store: Store, path: str, block_bytes: int, skip_bad: bool = False) -> ShardIndex:
        """See `Format.index`. Every row is decoded; types are those that hold all values exactly.

        Damaged rows are left out alone, and what follows damaged compression as a whole. A value that does not go with
        those before it in its column makes a damaged row.
        """
        url = join_url(store.url, path)
        scan = self._kind.scan(skip_bad)
        found = _Found()
        try:
            _index(open_rows(store, path, skip_bad), scan, min(block_bytes, MAX_ROW_BYTES), skip_bad, found)
        except CorruptDataError as error:
            raise CorruptDataError(f"{url}: {error}") from error
        except DatasetError as error:
            raise DatasetError(f"{url}: {error}") from error
        schema = scan.schema()
        if found.blocks and not len(schema):
            raise DatasetError(f"{url}: its rows have no columns. Leave it out")
        facts = dict(scan.facts)
        compression = compression_of(path)
        if compression:
            facts["compression"] = compression
        if found.damaged:
            facts[DAMAGED_ROWS] = found.damaged
        return ShardIndex(found.blocks, schema, found.skipped, json.dumps(facts).encode() if facts else b"")

    def read(self, data: Buffer, schema: pa.Schema, place: Place) -> pa.RecordBatch:
        """See `Format.read`. Columns that a shard lacks are null."""
        try:
            facts = _parse(place.detail)
            packed = "compression" in facts
            rows = decode(facts["compression"], data)[place.skip :] if packed else bytes(data)
            damaged = facts.get(DAMAGED_ROWS, {}).get(_name(place))
            if damaged is not None:
                rows = without(rows, damaged)
            if packed:
                rows = rows[: self._kind.end(rows, place.rows, facts)]
            return self._kind.read(rows, schema, facts)
        except DAMAGED as error:
            raise CorruptDataError(f"not rows of {self.name} with the dataset's columns: {error}") from error

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """See `Format.merge`."""
        return self._kind.merge(first, second)


class _Found:
    """What was found in a shard so far."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.skipped: list[Skipped] = []
        self.damaged: dict[str, list[tuple[int, int]]] = {}


def _index(source: RowSource, scan: RowScan, block_bytes: int, skip_bad: bool, found: _Found) -> None:
    source.fill(block_bytes)
    while (head := scan.head(source.data, source.ended)) is None:
        source.more()
    line = 1 + source.data.count(b"\n", 0, head)
    if head:
        source.take(head)
    while True:
        at = source.fill(block_bytes)
        end = _block_end(source, scan, at, line, skip_bad) if source.data else 0
        if not end:
            break
        rows = bytes(source.data[:end])
        stored = source.take(end)
        if skip_bad:
            sound = SoundRows(scan, rows, line)
            count = sound.count
            found.skipped += sound.skipped
        else:
            count = scan.add(rows, line)
        line += rows.count(b"\n")
        if count:
            block = Block(stored.start, stored.length, count, stored.checksum, stored.skip)
            found.blocks.append(block)
            if skip_bad and sound.spans:
                found.damaged[_name(block)] = sound.spans
    if source.failure is not None:
        found.skipped.append(Skipped(f"everything from line {line}", "damaged or cut off", str(source.failure)))
    elif source.data:
        found.skipped.append(Skipped(f"everything from line {line}", f"a row of more than {MAX_ROW_BYTES >> 20} MiB"))


def _block_end(source: RowSource, scan: RowScan, at: int, line: int, skip_bad: bool) -> int:
    """The end of the rows of the next block in the data; 0 if there is no row that is whole."""
    while True:
        end = scan.cut(source.data, at, source.ended and source.failure is None, line)
        if end is not None:
            return end
        if source.failure is not None and source.ended:
            return scan.complete(source.data)
        if skip_bad and len(source.data) > MAX_ROW_BYTES:
            return 0
        source.more()


def _name(block: Block | Place) -> str:
    """Tells blocks of a shard apart: several may begin within one piece of a compressed file."""
    return f"{block.start}+{block.skip}"


# Blocks of a shard come many times, and those of several shards in turn.
@lru_cache(maxsize=32)
def _parse(detail: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(detail) if detail else {}
    return facts
