"""Plan: the tickets of a rank, one for each batch it will deliver, in stream order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dataflow.pipeline.blocks import BlockUse
from dataflow.pipeline.lanes import Demand, Lanes
from dataflow.sampling.cursor_table import LaneCursor
from dataflow.sampling.layout import Integers
from dataflow.sampling.ranks import padded_share, share

_NO_ROWS = np.empty(0, np.int64)
_NO_USES = np.empty(0, np.int32)


@dataclass(slots=True, eq=False)
class Ticket:
    """One batch of one rank: which slots it holds, and what is known of them so far.

    Attributes:
        number: Count of the batch in this iteration, from 0.
        slots: int64[rows], the slots of the rank; those from `own` on repeat others, to fill a last batch.
        own: Rows that are the rank's own.
        end: Slots of the stream that are delivered once this batch is, over all ranks.
        uses: The uses of blocks that have its rows, each once; filled by the planner where a slot is a row.
        use_of_row: int32[rows], number of each row's use among them, likewise.
        offsets: int64[rows], each sample's place in the order of that use, likewise.
        blocks: int64[rows], likewise.
        epochs: int64[rows], likewise.
        demands: What each lane has to do for it, the rows of the batch first; filled where lanes drop samples.
        running: Lanes that run by then, where they end with the epoch.
        cursors: Lanes and where they stand after this batch; filled when it is assembled, where lanes drop samples.
        done: When each stage was done with it, seconds of the performance counter.
    """

    number: int
    slots: Integers
    own: int
    end: int
    uses: list[BlockUse] = field(default_factory=list)
    use_of_row: NDArray[np.int32] = field(default_factory=lambda: _NO_USES)
    offsets: Integers = field(default_factory=lambda: _NO_ROWS)
    blocks: Integers = field(default_factory=lambda: _NO_ROWS)
    epochs: Integers = field(default_factory=lambda: _NO_ROWS)
    demands: list[Demand] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    cursors: dict[int, LaneCursor] = field(default_factory=dict)
    done: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchRules:
    """How a stream is cut into batches.

    Attributes:
        batch_size: Rows of a rank in a batch.
        rank: Number of this rank.
        ranks: Number of ranks.
        drop_last: Whether a last batch that is not full is left out.
    """

    batch_size: int
    rank: int
    ranks: int
    drop_last: bool

    @property
    def global_batch(self) -> int:
        """Slots of a batch over all ranks."""
        return self.batch_size * self.ranks


def tickets(
    rules: BatchRules, lanes: int, first_slot: int, stop_slot: int | None, steps: int | None
) -> Iterator[Ticket]:
    """The tickets from a slot on, up to a slot (exclusive) or a number of batches, whichever is given."""
    number = 0
    slot = first_slot
    while steps is None or number < steps:
        count = rules.global_batch
        if stop_slot is not None and slot + count > stop_slot:
            count = stop_slot - slot
            if count <= 0 or rules.drop_last:
                return
            slots, own = padded_share(slot, count, lanes, rules.ranks, rules.rank)
        else:
            slots = share(slot, count, lanes, rules.ranks, rules.rank)
            own = len(slots)
        slot += count
        yield Ticket(number, slots, own, slot)
        number += 1


def demand(planned: Iterator[Ticket], lanes: Lanes, exact: bool) -> Iterator[Ticket]:
    """Tell the lanes what each ticket wants of them.

    For streams whose lanes drop samples: which rows come is known only when they are read, so each lane looks ahead by
    itself. Where lanes end with the epoch, all that run keep in step, so that every rank knows when they have ended.
    """
    for ticket in planned:
        ticket.demands = [lanes.demand(slot) for slot in ticket.slots.tolist()]
        if exact:
            ticket.demands += lanes.catch_up(ticket.end)
            ticket.running = lanes.running()
        yield ticket
