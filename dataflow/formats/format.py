"""What a shard format is: how to find the blocks of a shard, and how to turn one block into rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from dataflow.storage import Buffer, Store

__all__ = ["MAX_BLOCK_BYTES", "Block", "Format", "Place", "ShardIndex", "Skipped"]

#: A block is read and held as a unit, so a larger one is refused when the shard is indexed.
MAX_BLOCK_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Block:
    """One contiguous byte range of a shard, decoded as a unit.

    Attributes:
        start: Offset of the first byte in the shard.
        length: Number of bytes.
        rows: Number of rows that the bytes decode to.
        checksum: xxh3-128 digest of the bytes (16 bytes, big-endian).
        skip: Decoded bytes before the first row, where a compressed block begins within a row of the block before it.
    """

    start: int
    length: int
    rows: int
    checksum: bytes
    skip: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """What a format may need beside the bytes of a block to decode it.

    Attributes:
        start: Offset of the block in its shard.
        rows: Number of rows that it holds.
        skip: See `Block.skip`.
        detail: See `ShardIndex.detail`.
    """

    start: int
    rows: int
    skip: int = 0
    detail: bytes = b""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that belongs to no row, and why.

    Attributes:
        name: What it is and where.
        reason: Why it was left out, in words that many things may share.
        note: How that was seen, e.g. a decoder's error.
    """

    name: str
    reason: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """What was found in one shard.

    Attributes:
        blocks: Its blocks in order.
        schema: Its columns.
        skipped: What it holds besides rows, and what is damaged, where that was to be left out.
        detail: What all its blocks need to be decoded beside their own bytes, such as the footer of a Parquet file. It
            is kept in the manifest.
    """

    blocks: list[Block]
    schema: pa.Schema
    skipped: list[Skipped] = field(default_factory=list)
    detail: bytes = b""


class Format(Protocol):
    """A shard format. After `read` everything is Arrow, and nothing downstream knows the format."""

    @property
    def name(self) -> str:
        """Name in a manifest."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Lower-case endings of file names in this format, with the dot."""

    def index(self, store: Store, path: str, block_bytes: int, skip_bad: bool = False) -> ShardIndex:
        """Finds the blocks of one shard in a single sequential pass, in bounded memory.

        Args:
            store: Where the shard is.
            path: The shard's path in the store.
            block_bytes: Wanted size of a block, for formats that leave a choice.
            skip_bad: Leave out what is damaged, and list it as skipped, as long as something can be made of the rest.

        Raises:
            CorruptDataError: The shard is damaged; names the shard and the offset.
            DatasetError: The shard is sound, but not something that can be loaded; says what to do.
        """

    def read(self, data: Buffer, schema: pa.Schema, place: Place) -> pa.RecordBatch:
        """Decodes the bytes of one block, with columns as in `schema`.

        Args:
            data: The bytes.
            schema: The columns of the dataset.
            place: Where the block lies, and what is known of it and its shard.

        Raises:
            CorruptDataError: The bytes are not a block of this format. The caller adds shard and block.
        """

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """Returns the schema that blocks of shards with either schema can be read with.

        Raises:
            DatasetError: There is none; says which column differs.
        """
