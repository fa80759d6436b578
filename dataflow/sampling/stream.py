"""The stream of one source: slots to samples, over one epoch or without end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataflow.sampling.lanes import position_of_slot, span_length
from dataflow.sampling.layout import BlockLayout, Integers
from dataflow.sampling.order import EpochOrder
from dataflow.sampling.random import SampleKey

# A stream needs the order of the epoch that it is in and of the next; old ones come back only after a seek.
_EPOCHS_KEPT = 2


class Located(NamedTuple):
    """Samples of some slots; int64 arrays of the slots' shape.

    Attributes:
        epoch: Epoch of each slot.
        block: Block that holds the sample.
        offset: Its place among the permuted rows of the block (see `Stream.row_permutation`).
        last_slot: The last slot of the stream that the same lane takes from this block in this pass over it.
        lane: The lane that reads it.
    """

    epoch: Integers
    block: Integers
    offset: Integers
    last_slot: Integers
    lane: Integers


class Visit(NamedTuple):
    """A run of a lane's items in one block: offsets first .. stop-1 of its permuted rows, from item `item` on."""

    epoch: int
    block: int
    first: int
    stop: int
    item: int


@dataclass(frozen=True, slots=True, eq=False)
class StreamRules:
    """What the stream of a source depends on, and nothing else.

    Attributes:
        layout: Rows of each block.
        seed: Any integer of 128 bits.
        source: Name of the source within a mixture; "" for a dataset alone.
        lanes: Number of lanes.
        shuffle: Whether blocks and rows are permuted (`lanes` is 1 where not).
    """

    layout: BlockLayout
    seed: int
    source: str
    lanes: int
    shuffle: bool

    def open(self, epoch: int) -> Stream:
        """The stream from the start of an epoch on."""
        return Stream(self, epoch)


class Stream:
    """The slots of a source from the start of an epoch on; slot g is in epoch first_epoch + g // num_rows."""

    def __init__(self, rules: StreamRules, first_epoch: int) -> None:
        self.rules = rules
        self.first_epoch = first_epoch
        self.num_rows = rules.layout.num_rows
        self._orders: OrderedDict[int, EpochOrder] = OrderedDict()

    def locate(self, slots: Integers) -> Located:
        """The samples of slots (int64[n])."""
        lanes = self.rules.lanes
        epochs = self.first_epoch + slots // self.num_rows
        in_epoch = slots % self.num_rows
        positions = position_of_slot(in_epoch, self.num_rows, lanes)
        blocks, offsets, left = (np.empty(len(slots), np.int64) for _ in range(3))
        for epoch in sorted(set(epochs.tolist())):
            here = epochs == epoch
            blocks[here], offsets[here], left[here] = self.order(epoch).locate(positions[here])
        # A lane leaves a block at the block's end or at the end of its span, whichever comes first.
        label = in_epoch % lanes
        span_left = self.num_rows // lanes + (label < self.num_rows % lanes) - in_epoch // lanes
        last = slots + (np.minimum(left, span_left) - 1) * lanes
        return Located(epochs, blocks, offsets, last, slots % lanes)

    def samples(self, first: int, count: int) -> tuple[Integers, NDArray[np.int32]]:
        """The samples of count slots from one on, all of one epoch, in bulk: (block int64[n], row in it int32[n])."""
        lanes = self.rules.lanes
        epoch, in_epoch = divmod(first, self.num_rows)
        order = self.order(self.first_epoch + epoch)
        blocks, rows = np.empty(count, np.int64), np.empty(count, np.int32)
        for number in range(min(lanes, count)):
            start = position_of_slot(in_epoch + number, self.num_rows, lanes)
            items = len(range(number, count, lanes))
            blocks[number::lanes], rows[number::lanes] = order.samples(start, start + items)
        return blocks, rows

    def visits(self, lane: int, item: int, *, items: int | None = None) -> Iterator[Visit]:
        """The blocks that a lane passes from one of its items on: without end, or up to item number `items`."""
        lanes, num_rows = self.rules.lanes, self.num_rows
        while items is None or item < items:
            slot = item * lanes + lane
            epoch, in_epoch = divmod(slot, num_rows)
            position = np.array([position_of_slot(in_epoch, num_rows, lanes)], np.int64)
            block, offset, left = (int(value[0]) for value in self.order(self.first_epoch + epoch).locate(position))
            length = min(left, span_length(num_rows, lanes, in_epoch % lanes) - in_epoch // lanes)
            if items is not None:
                length = min(length, items - item)
            yield Visit(self.first_epoch + epoch, block, offset, offset + length, item)
            item += length

    def key(self, epoch: int, block: int, row: int) -> SampleKey:
        """What a sample's random numbers are keyed by."""
        return SampleKey(self.rules.seed, self.rules.source, epoch, block, row)

    def source_ids(self, blocks: Integers) -> Integers | None:
        """Of a mixture, the number of each block's source; else None."""
        return None

    def row_permutation(self, epoch: int, block: int) -> NDArray[np.int32]:
        """Stored row at each offset of a block in an epoch, int32."""
        return self.order(epoch).row_permutation(block)

    def order(self, epoch: int) -> EpochOrder:
        """The virtual order of an epoch. Threads that ask at once may each build it: it is a pure value."""
        order = self._orders.get(epoch)
        if order is None:
            rules = self.rules
            order = EpochOrder(rules.layout, rules.seed, rules.source, epoch, shuffle=rules.shuffle)
            self._orders[epoch] = order
            if len(self._orders) > _EPOCHS_KEPT:
                self._orders.popitem(last=False)
        return order
