"""How many rows each block of a dataset has: all that the order needs to know of it."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BlockLayout:
    """Rows of every block, as the usual number and the blocks that differ from it.

    Attributes:
        num_blocks: Number of blocks.
        usual: Rows of a block that is not listed.
        exceptional: int64[exceptions], ascending block numbers whose rows differ.
        exceptional_rows: int64[exceptions], their rows.
    """

    num_blocks: int
    usual: int
    exceptional: Integers
    exceptional_rows: Integers

    @classmethod
    def of(cls, rows: NDArray[Any]) -> BlockLayout:
        """Describe blocks with these rows; any integer array [blocks]."""
        if len(rows) == 0:
            return cls(0, 0, np.empty(0, np.int64), np.empty(0, np.int64))
        values, counts = np.unique(rows, return_counts=True)
        usual = int(values[np.argmax(counts)])
        exceptional = np.flatnonzero(rows != usual).astype(np.int64)
        return cls(len(rows), usual, exceptional, rows[exceptional].astype(np.int64))

    @property
    def num_rows(self) -> int:
        """Rows of all blocks together."""
        usual_blocks = self.num_blocks - len(self.exceptional)
        return usual_blocks * self.usual + int(self.exceptional_rows.sum())

    def rows_of(self, block: int) -> int:
        """Rows of one block."""
        at = bisect_left(self.exceptional, block)
        if at < len(self.exceptional) and self.exceptional[at] == block:
            return int(self.exceptional_rows[at])
        return self.usual

    def rows(self, blocks: Integers) -> Integers:
        """Rows of the given blocks, int64 of the same shape."""
        out = np.full(blocks.shape, self.usual, np.int64)
        if len(self.exceptional):
            at = np.minimum(np.searchsorted(self.exceptional, blocks), len(self.exceptional) - 1)
            found = self.exceptional[at] == blocks
            out[found] = self.exceptional_rows[at[found]]
        return out
