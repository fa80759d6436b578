"""Plan: the tickets of a rank, one for each batch it will deliver, in stream order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from dataflow.pipeline.blocks import BlockTable, BlockUse
from dataflow.pipeline.clocks import StageClock
from dataflow.pipeline.lanes import Demand, Lanes
from dataflow.sampling.layout import Integers
from dataflow.sampling.ranks import padded_share, share
from dataflow.sampling.state import LaneCursor
from dataflow.sampling.stream import Located, Stream

# So many slots take hardly longer to locate than one.
_SLOTS_AT_ONCE = 4096


@dataclass(slots=True, eq=False)
class Ticket:
    """One batch of one rank: which slots it holds, and what is known of them so far.

    Attributes:
        number: Count of the batch in this iteration, from 0.
        slots: int64[rows], the slots of the rank; those from `own` on repeat others, to fill a last batch.
        own: Rows that are the rank's own.
        end: Slots of the stream that are delivered once this batch is, over all ranks.
        uses: For each row the use of its block; filled by the planner where a slot is a row.
        offsets: int64[rows], each sample's place in the order of that use, likewise.
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
    offsets: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    epochs: Integers = field(default_factory=lambda: np.empty(0, np.int64))
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


def locate(planned: Iterator[Ticket], stream: Stream, table: BlockTable, clock: StageClock) -> Iterator[Ticket]:
    """Find each ticket's rows and hold their blocks, so that fetches start in the order in which batches need them.

    For streams in which a slot is a row: nothing has to be read to know what comes.
    """
    lanes = stream.rules.lanes
    # For each lane, the use that it is in, of which block, and up to which slot.
    held = np.empty(lanes, object)
    held_block = np.full(lanes, -1, np.int64)
    held_until = np.full(lanes, -1, np.int64)
    for ticket, located in _located(planned, stream):
        slots, lane = ticket.slots, ticket.slots % lanes
        entering = (slots > held_until[lane]) | (located.block != held_block[lane])
        uses = held[lane]
        passed: list[BlockUse] = []
        for at in np.flatnonzero(entering).tolist():
            number, slot, block = int(lane[at]), int(slots[at]), int(located.block[at])
            # A lane that comes twice in the batch may have entered the block just before.
            if slot > held_until[number] or block != held_block[number]:
                if held[number] is not None and held_until[number] < slots[0]:
                    # No row of this batch is in it: its memory may be what the next block waits for.
                    table.release([held[number]])
                elif held[number] is not None:
                    passed.append(held[number])
                order = stream.row_permutation(int(located.epoch[at]), block)
                held[number] = table.hold_ahead(block, slot, order, clock)
                held_block[number], held_until[number] = block, located.last_slot[at]
            uses[at] = held[number]
        ticket.uses, ticket.offsets, ticket.epochs = uses.tolist(), located.offset, located.epoch
        table.lend(ticket.uses)
        table.release(passed)
        yield ticket
    table.release([use for use in held.tolist() if use is not None])


def _located(planned: Iterator[Ticket], stream: Stream) -> Iterator[tuple[Ticket, Located]]:
    """Tickets and their samples: found one by one at first, then for more and more at once."""
    size = 1
    while group := list(islice(planned, size)):
        located = stream.locate(np.concatenate([ticket.slots for ticket in group]))
        end = 0
        for ticket in group:
            start, end = end, end + len(ticket.slots)
            yield ticket, Located(*(values[start:end] for values in located))
        size = max(1, min(2 * size, _SLOTS_AT_ONCE // max(1, len(group[0].slots))))


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
