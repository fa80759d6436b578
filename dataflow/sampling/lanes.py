"""Lanes: the virtual order cut into contiguous spans that are read side by side.

Slot g of the stream belongs to lane g % lanes and is that lane's item g // lanes.
"""

from __future__ import annotations

from typing import Any, overload

from dataflow.sampling.layout import Integers

_MOST_LANES = 1024
_BLOCKS_PER_LANE = 16
_OPEN_BYTES = 2 << 30


def default_lanes(num_blocks: int, block_bytes: int) -> int:
    """The largest power of two within 1,024, a sixteenth of the blocks, and 2 GiB of open blocks; at least 1.

    Args:
        num_blocks: Blocks of the dataset.
        block_bytes: Decoded bytes of the largest usual block.
    """
    most = min(_MOST_LANES, num_blocks // _BLOCKS_PER_LANE, _OPEN_BYTES // max(1, block_bytes))
    return 1 << (most.bit_length() - 1) if most else 1


def span_length(num_rows: int, lanes: int, lane: int) -> int:
    """Positions in the span of a lane."""
    return num_rows // lanes + (lane < num_rows % lanes)


@overload
def position_of_slot(slots: int, num_rows: int, lanes: int) -> int: ...
@overload
def position_of_slot(slots: Integers, num_rows: int, lanes: int) -> Integers: ...
def position_of_slot(slots: int | Integers, num_rows: int, lanes: int) -> int | Integers:
    """Position in the virtual order of slots of one epoch (0 <= slot < num_rows)."""
    lane = slots % lanes
    extra = num_rows % lanes
    # min(lane, extra), for integers and arrays alike.
    start: Any = lane * (num_rows // lanes) + lane - (lane > extra) * (lane - extra)
    return start + slots // lanes  # type: ignore[no-any-return]


def slot_of_position(position: int, num_rows: int, lanes: int) -> int:
    """The inverse of `position_of_slot`."""
    short, extra = divmod(num_rows, lanes)
    if position < extra * (short + 1):
        lane, item = divmod(position, short + 1)
    else:
        lane, item = divmod(position - extra * (short + 1), short)
        lane += extra
    return item * lanes + lane


def delivered_items(lane: int, slots: int, lanes: int) -> int:
    """How many of the first `slots` slots of the stream belong to a lane."""
    return max(0, -((lane - slots) // lanes))
