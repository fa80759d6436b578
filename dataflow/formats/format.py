"""What a shard format is: how to find the blocks of a shard, and how to turn one block into rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from dataflow.storage import Buffer, Store

__all__ = ["MAX_BLOCK_BYTES", "Block", "Format", "ShardIndex", "Skipped"]

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
    """

    start: int
    length: int
    rows: int
    checksum: bytes


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in a shard that belongs to no row, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The blocks of one shard in order, its columns, and what it holds besides rows."""

    blocks: list[Block]
    schema: pa.Schema
    skipped: list[Skipped] = field(default_factory=list)


class Format(Protocol):
    """A shard format. After `read` everything is Arrow, and nothing downstream knows the format."""

    @property
    def name(self) -> str:
        """Name in a manifest."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Lower-case endings of file names in this format, with the dot."""

    def index(self, store: Store, path: str, block_bytes: int) -> ShardIndex:
        """Finds the blocks of one shard in a single sequential pass, in bounded memory.

        Args:
            store: Where the shard is.
            path: The shard's path in the store.
            block_bytes: Wanted size of a block, for formats that leave a choice.

        Raises:
            CorruptDataError: The shard is damaged; names the shard and the offset.
            DatasetError: The shard is sound, but not something that can be loaded; says what to do.
        """

    def read(self, data: Buffer, schema: pa.Schema) -> pa.RecordBatch:
        """Decodes the bytes of one block, with columns as in `schema`.

        Raises:
            CorruptDataError: The bytes are not a block of this format. The caller adds shard and block.
        """

    def merge(self, first: pa.Schema, second: pa.Schema) -> pa.Schema:
        """Returns the schema that blocks of shards with either schema can be read with.

        Raises:
            DatasetError: There is none; says which column differs.
        """
