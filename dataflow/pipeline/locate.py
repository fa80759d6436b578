"""Locate: finds the rows of tickets and holds their blocks, in the order in which batches need them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from dataflow.pipeline.blocks import BlockTable, BlockUse
from dataflow.pipeline.clocks import StageClock
from dataflow.pipeline.plan import Ticket
from dataflow.sampling.layout import Integers
from dataflow.sampling.mixed_stream import MixedStream
from dataflow.sampling.stream import Located, Stream

# So many slots take hardly longer to locate than one.
_SLOTS_AT_ONCE = 4096


def locate(
    planned: Iterator[Ticket], stream: Stream | MixedStream, table: BlockTable, clock: StageClock
) -> Iterator[Ticket]:
    """Find each ticket's rows and hold their blocks, so that fetches start in the order in which batches need them.

    For streams in which a slot is a row: nothing has to be read to know what comes.
    """
    lanes = _Lanes()
    for tickets in _groups(planned):
        group = _Group(tickets, stream, lanes)
        for number, ticket in enumerate(tickets):
            passed: list[BlockUse] = []
            for visit in group.entered(number):
                before = group.before(visit)
                if before is not None and group.is_done(visit, number):
                    # No row of this batch is in it: its memory may be what the next block waits for.
                    table.release([before])
                elif before is not None:
                    passed.append(before)
                slot, epoch, block = group.start(visit)
                order = stream.row_permutation(epoch, block)
                group.enter(visit, table.hold_ahead(block, slot, order, clock))
            group.complete(number)
            table.lend(ticket.uses)
            table.release(passed)
            yield ticket
    table.release(lanes.held.values())


def _groups(planned: Iterator[Ticket]) -> Iterator[list[Ticket]]:
    """Tickets one by one at first, so that the first batch does not wait, then more and more at once."""
    size = 1
    while group := list(islice(planned, size)):
        yield group
        size = max(1, min(2 * size, _SLOTS_AT_ONCE // max(1, len(group[0].slots))))


class _Lanes:
    """Where lanes are: the use that each one holds, of which block, and the last slot that it takes from it."""

    def __init__(self) -> None:
        self.held: dict[int, BlockUse] = {}
        self.place: dict[int, tuple[int, int]] = {}


class _Group:
    """Some tickets, with the visits of lanes to blocks that their rows make, found for all at once.

    A visit is a run of slots of one lane in one block. They are numbered lane by lane, in the order in which tickets
    come to them.
    """

    def __init__(self, tickets: Sequence[Ticket], stream: Stream | MixedStream, lanes: _Lanes) -> None:
        self._tickets = tickets
        self._lanes = lanes
        self._slots = np.concatenate([ticket.slots for ticket in tickets])
        self._located = stream.locate(self._slots)
        sizes = [len(ticket.slots) for ticket in tickets]
        self._bounds = [0, *np.cumsum(sizes).tolist()]
        lane = self._located.lane
        # Within a lane a sort that is stable keeps the order of tickets.
        by_lane = np.argsort(lane, kind="stable")
        begins = _begins(lane[by_lane], self._located, by_lane)
        firsts = np.flatnonzero(begins)
        #: For each visit its lane, its first row in the group, and its last one.
        self._lane: list[int] = lane[by_lane[firsts]].tolist()
        self._first: list[int] = by_lane[firsts].tolist()
        self._last: list[int] = by_lane[np.append(firsts[1:], len(by_lane)) - 1].tolist()
        self._uses: list[BlockUse | None] = [self._held(visit) for visit in range(len(firsts))]
        visit_of_row = np.empty(len(by_lane), np.int64)
        visit_of_row[by_lane] = np.cumsum(begins) - 1
        self._find_uses(visit_of_row, sizes)
        # Visits to enter, in the order in which rows come to them.
        entered = sorted((first, visit) for visit, first in enumerate(self._first) if self._uses[visit] is None)
        self._entered: list[list[int]] = [[] for _ in tickets]
        number = 0
        for first, visit in entered:
            while first >= self._bounds[number + 1]:
                number += 1
            self._entered[number].append(visit)

    def entered(self, number: int) -> Sequence[int]:
        """The visits that begin in a ticket."""
        return self._entered[number]

    def before(self, visit: int) -> BlockUse | None:
        """What the lane holds when a visit begins."""
        return self._lanes.held.get(self._lane[visit])

    def is_done(self, visit: int, number: int) -> bool:
        """Whether no row of a ticket is in the visit before this one."""
        goes_on = visit > 0 and self._lane[visit - 1] == self._lane[visit]
        return not goes_on or self._last[visit - 1] < self._bounds[number]

    def start(self, visit: int) -> tuple[int, int, int]:
        """Slot, epoch and block of the first row of a visit."""
        row = self._first[visit]
        return int(self._slots[row]), int(self._located.epoch[row]), int(self._located.block[row])

    def enter(self, visit: int, use: BlockUse) -> None:
        """The lane holds the block of a visit from now on."""
        lane = self._lane[visit]
        self._uses[visit] = self._lanes.held[lane] = use
        self._lanes.place[lane] = self._place(visit)

    def complete(self, number: int) -> None:
        """Fill in a ticket, all of whose visits were entered."""
        ticket = self._tickets[number]
        rows = slice(self._bounds[number], self._bounds[number + 1])
        distinct = slice(self._use_bounds[number], self._use_bounds[number + 1])
        uses = [self._uses[visit] for visit in self._visits[distinct]]
        ticket.uses = [use for use in uses if use is not None]
        ticket.use_of_row = self._use_of_row[rows] - np.int32(distinct.start)
        ticket.offsets, ticket.epochs = self._located.offset[rows], self._located.epoch[rows]
        ticket.blocks = self._located.block[rows]

    def _held(self, visit: int) -> BlockUse | None:
        """What the lane holds already, if a visit goes on from the group before."""
        lane = self._lane[visit]
        if visit > 0 and self._lane[visit - 1] == lane:
            return None
        return self._lanes.held[lane] if self._lanes.place.get(lane) == self._place(visit) else None

    def _place(self, visit: int) -> tuple[int, int]:
        row = self._first[visit]
        return int(self._located.block[row]), int(self._located.last_slot[row])

    def _find_uses(self, visit_of_row: Integers, sizes: Sequence[int]) -> None:
        """The visits of each ticket, each once, and for each row which of them it is in."""
        count = len(self._first)
        ticket_of_row = np.repeat(np.arange(len(sizes)), sizes)
        distinct, inverse = np.unique(ticket_of_row * count + visit_of_row, return_inverse=True)
        self._visits: list[int] = (distinct % count).tolist()
        self._use_of_row = inverse.astype(np.int32)
        self._use_bounds: list[int] = np.searchsorted(distinct, np.arange(len(sizes) + 1) * count).tolist()


def _begins(lane: Integers, located: Located, by_lane: Integers) -> NDArray[np.bool_]:
    """Whether each row, lane by lane, begins a visit."""
    begins = np.ones(len(lane), np.bool_)
    begins[1:] = False
    for values in (lane, located.block[by_lane], located.last_slot[by_lane]):
        begins[1:] |= values[1:] != values[:-1]
    return begins
