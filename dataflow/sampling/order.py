"""The virtual order of one epoch: every row of a dataset at one position, and back."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dataflow import _native
from dataflow.sampling.keys import key
from dataflow.sampling.layout import BlockLayout, Integers

# A prefix sum over all blocks is simple and fast, but takes 16 bytes a block: above this many it has to pay.
_SPARSE_FROM_BLOCKS = 10**7
_SPARSE_SHARE = 0.01


class _Placement(Protocol):
    """Where the permuted blocks start in the virtual order."""

    def place(self, positions: Integers) -> Integers: ...
    def start(self, places: Integers) -> Integers: ...
    def block(self, places: Integers) -> Integers: ...
    def place_of_block(self, blocks: Integers) -> Integers: ...


class _BlockPermutation:
    """A Feistel permutation of the block numbers, or the identity."""

    def __init__(self, num_blocks: int, block_key: int | None) -> None:
        self._num_blocks = num_blocks
        self._key = block_key

    def block(self, places: Integers) -> Integers:
        # A permutation of nothing has no network.
        if self._key is None or not self._num_blocks:
            return places
        return _native.permute(places, self._num_blocks, self._key)

    def place_of_block(self, blocks: Integers) -> Integers:
        if self._key is None or not self._num_blocks:
            return blocks
        return _native.unpermute(blocks, self._num_blocks, self._key)


class _DensePlacement(_BlockPermutation):
    """Starts by a prefix sum over the permuted blocks."""

    def __init__(self, layout: BlockLayout, block_key: int | None) -> None:
        super().__init__(layout.num_blocks, block_key)
        self._blocks = super().block(np.arange(layout.num_blocks, dtype=np.int64))
        self._starts = np.zeros(layout.num_blocks + 1, np.int64)
        np.cumsum(layout.rows(self._blocks), out=self._starts[1:])

    def place(self, positions: Integers) -> Integers:
        return np.searchsorted(self._starts, positions, side="right") - 1

    def start(self, places: Integers) -> Integers:
        return self._starts[places]

    def block(self, places: Integers) -> Integers:
        return self._blocks[places]


class _SparsePlacement(_BlockPermutation):
    """Starts as place * usual, corrected by the exceptional blocks placed before: memory for the exceptions only."""

    def __init__(self, layout: BlockLayout, block_key: int | None) -> None:
        super().__init__(layout.num_blocks, block_key)
        self._usual = layout.usual
        places = self.place_of_block(layout.exceptional)
        by_place = np.argsort(places)
        self._places = places[by_place]
        self._rows = layout.exceptional_rows[by_place]
        self._correction = np.concatenate(([0], np.cumsum(self._rows - self._usual)))
        self._starts = self._places * self._usual + self._correction[:-1]

    def place(self, positions: Integers) -> Integers:
        # The last exceptional block that starts at or before the position; blocks after it are usual ones.
        before = np.searchsorted(self._starts, positions, side="right") - 1
        if not len(self._places):
            return positions // self._usual
        after_end = positions - (self._starts[before] + self._rows[before])
        beyond = self._places[before] + 1 + after_end // max(self._usual, 1)
        inside = np.where(after_end < 0, self._places[before], beyond)
        return np.where(before < 0, positions // max(self._usual, 1), inside)

    def start(self, places: Integers) -> Integers:
        return places * self._usual + self._correction[np.searchsorted(self._places, places, side="left")]


class EpochOrder:
    """The order of all rows in one epoch of one source.

    Blocks are permuted (or stay, without shuffle) and laid end to end; the rows of a block are permuted inside it. So
    what is at a position is computed: nothing is stored for a sample.

    Attributes:
        num_rows: Number of positions.
    """

    def __init__(self, layout: BlockLayout, seed: int, source: str, epoch: int, *, shuffle: bool = True) -> None:
        self.num_rows = layout.num_rows
        self._layout = layout
        self._epoch_key = key(seed, source, epoch)
        self._shuffle = shuffle
        sparse = (
            layout.num_blocks >= _SPARSE_FROM_BLOCKS and len(layout.exceptional) <= _SPARSE_SHARE * layout.num_blocks
        )
        block_key = key(self._epoch_key, "blocks") if shuffle else None
        self._placement: _Placement = (_SparsePlacement if sparse else _DensePlacement)(layout, block_key)

    def locate(self, positions: Integers) -> tuple[Integers, Integers, Integers]:
        """Where positions lie: (block, offset in the permuted block, rows left in the block from there), int64 each."""
        places = self._placement.place(positions)
        blocks = self._placement.block(places)
        offsets = positions - self._placement.start(places)
        return blocks, offsets, self._layout.rows(blocks) - offsets

    def row_permutation(self, block: int) -> NDArray[np.int32]:
        """Stored row at each offset of the permuted block, int32[rows of the block]."""
        rows = self._layout.rows_of(block)
        if not self._shuffle:
            return np.arange(rows, dtype=np.int32)
        return _native.row_permutation(rows, self._row_key(block))

    def samples(self, start: int, stop: int) -> tuple[Integers, NDArray[np.int32]]:
        """The samples at positions start .. stop-1, in bulk: (block int64[n], row in the block int32[n])."""
        if start >= stop:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        first, last = self._placement.place(np.array([start, stop - 1], np.int64)).tolist()
        places = np.arange(first, last + 1, dtype=np.int64)
        blocks = self._placement.block(places)
        counts = self._layout.rows(blocks)
        if self._shuffle:
            keys = np.fromiter(map(self._row_key, blocks.tolist()), np.uint64, len(blocks))
            rows = _native.row_permutations(counts, keys)
        else:
            rows = np.concatenate([np.arange(count, dtype=np.int32) for count in counts.tolist()])
        skip = start - int(self._placement.start(places[:1])[0])
        return np.repeat(blocks, counts)[skip : skip + stop - start], rows[skip : skip + stop - start]

    def position(self, block: int, row: int) -> int:
        """The position of a sample: the inverse of `samples`."""
        place = self._placement.place_of_block(np.array([block], np.int64))
        offset = np.flatnonzero(self.row_permutation(block) == row)[0]
        return int(self._placement.start(place)[0] + offset)

    def _row_key(self, block: int) -> int:
        return key(self._epoch_key, "rows", block)
