"""The blocks that are read together, numbered through: those of one dataset, or of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.dataset.block import decode_block
from dataflow.dataset.block_source import BlockSource
from dataflow.dataset.manifest import Manifest
from dataflow.storage import Buffer

__all__ = ["Blocks", "MixedBlocks", "Sizes", "Stored", "StoredBlocks"]

Integers = npt.NDArray[np.int64]


class Sizes(Protocol):
    """How many blocks there are, and how large.

    Attributes:
        rows: int [blocks], rows of each.
        lengths: int64 [blocks], bytes of each.
        block_rows: Rows that a usual block has.
    """

    rows: npt.NDArray[np.int32]
    lengths: Integers
    block_rows: int
    num_blocks: int
    num_rows: int
    num_bytes: int


class Stored(NamedTuple):
    """The dataset that rows are from."""

    manifest: Manifest
    source: BlockSource


class Blocks(Sizes, Protocol):
    """Blocks that can be read.

    Attributes:
        schema: Columns of their rows.
        first_rows: int64 [blocks], the number of each block's first row within its own dataset.
    """

    schema: pa.Schema
    first_rows: Integers

    @property
    def concurrency(self) -> int:
        """How many reads in flight keep the stores busy."""
        ...

    @property
    def hits(self) -> tuple[int, int]:
        """Blocks that came from a cache, and their bytes."""
        ...

    def fetch(self, block: int) -> Buffer:
        """The bytes of a block; errors as those of `fetch_block`."""
        ...

    def decode(self, block: int, data: Buffer) -> pa.RecordBatch:
        """The rows of a block from its bytes; errors as those of `decode_block`."""
        ...

    def stored(self, source: str) -> Stored:
        """The dataset that is known by a name among those of a mixture, or the only one."""
        ...


class StoredBlocks:
    """The blocks of one dataset.

    Args:
        manifest: The dataset.
        source: What brings its blocks.
    """

    def __init__(self, manifest: Manifest, source: BlockSource) -> None:
        self.rows, self.lengths, self.first_rows = manifest.rows, manifest.lengths, manifest.first_rows
        self.block_rows, self.schema = manifest.block_rows, manifest.schema
        self.num_blocks, self.num_rows, self.num_bytes = manifest.num_blocks, manifest.num_rows, manifest.num_bytes
        self._stored = Stored(manifest, source)

    @property
    def concurrency(self) -> int:
        return self._stored.source.store.concurrency

    @property
    def hits(self) -> tuple[int, int]:
        return self._stored.source.hits, self._stored.source.hit_bytes

    def fetch(self, block: int) -> Buffer:
        return self._stored.source.fetch(self._stored.manifest, block)

    def decode(self, block: int, data: Buffer) -> pa.RecordBatch:
        return decode_block(self._stored.manifest, block, data)

    def stored(self, source: str) -> Stored:
        return self._stored


class MixedBlocks:
    """The blocks of several datasets one after the other; rows have the columns that all have.

    Args:
        parts: The blocks of each dataset, by name.
        schema: The columns that all have.

    Attributes:
        names: Names of the datasets.
        firsts: int64 [datasets + 1], where the blocks of each begin, and the end.
    """

    def __init__(self, parts: Sequence[tuple[str, StoredBlocks]], schema: pa.Schema) -> None:
        self.names = tuple(name for name, _ in parts)
        self._parts = tuple(blocks for _, blocks in parts)
        self.schema = schema
        self.rows = np.concatenate([part.rows for part in self._parts])
        self.lengths = np.concatenate([part.lengths for part in self._parts])
        self.first_rows = np.concatenate([part.first_rows for part in self._parts])
        self.block_rows = max(part.block_rows for part in self._parts)
        self.num_blocks = sum(part.num_blocks for part in self._parts)
        self.num_rows = sum(part.num_rows for part in self._parts)
        self.num_bytes = sum(part.num_bytes for part in self._parts)
        self.firsts: Integers = np.cumsum([0, *(part.num_blocks for part in self._parts)])

    @property
    def concurrency(self) -> int:
        return max(part.concurrency for part in self._parts)

    @property
    def hits(self) -> tuple[int, int]:
        found = [part.hits for part in self._parts]
        return sum(blocks for blocks, _ in found), sum(nbytes for _, nbytes in found)

    def fetch(self, block: int) -> Buffer:
        part, number = self._at(block)
        return part.fetch(number)

    def decode(self, block: int, data: Buffer) -> pa.RecordBatch:
        part, number = self._at(block)
        return part.decode(number, data).select(self.schema.names)

    def stored(self, source: str) -> Stored:
        return self._parts[self.names.index(source)].stored(source)

    def _at(self, block: int) -> tuple[StoredBlocks, int]:
        number = int(np.searchsorted(self.firsts, block, side="right")) - 1
        return self._parts[number], block - int(self.firsts[number])
