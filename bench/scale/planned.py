"""What the planner of a rank does with blocks, ticket by ticket: the real planner, over a table that only takes notes.

Nothing in the order of what it does depends on time, so that it is found once and played at any speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import count
from typing import Any, NamedTuple, cast

from dataflow.pipeline.blocks import BlockTable
from dataflow.pipeline.clocks import StageClock
from dataflow.pipeline.locate import locate
from dataflow.pipeline.plan import BatchRules, Ticket, tickets
from dataflow.sampling.stream import Stream


class Action(Enum):
    """What is done with uses of blocks."""

    HOLD = "hold one more, ahead of its need"
    LEND = "lend them to the batch"
    RELEASE = "let go of them"


class Step(NamedTuple):
    """One thing that the planner does.

    Attributes:
        action: What.
        uses: Numbers of the uses, each once.
        block: Of a hold: number of the block.
        slot: Of a hold: the slot that needs it.
    """

    action: Action
    uses: tuple[int, ...]
    block: int = -1
    slot: int = -1


class PlannedTicket(NamedTuple):
    """A batch of a rank.

    Attributes:
        number: Count from 0.
        rows: Rows of the batch.
        steps: What the planner does, in order, up to when workers may take the batch.
        uses: Uses of blocks that have its rows, each once.
    """

    number: int
    rows: int
    steps: tuple[Step, ...]
    uses: tuple[int, ...]


class PlannedRank:
    """The tickets of a rank, found as far as they are asked for."""

    def __init__(self, stream: Stream, batches: BatchRules, stop_slot: int | None = None) -> None:
        self._notes = _Notes()
        planned = tickets(batches, stream.rules.lanes, 0, stop_slot, None)
        table = cast(BlockTable, self._notes)
        self._located: Iterator[Ticket] | None = locate(planned, stream, table, StageClock())
        self._tickets: list[PlannedTicket] = []

    def ticket(self, number: int) -> PlannedTicket | None:
        """The ticket of a number; None after the last one."""
        while number >= len(self._tickets) and self._located is not None:
            ticket = next(self._located, None)
            if ticket is None:
                self._located = None
                break
            uses = tuple(cast(list[int], ticket.uses))
            self._tickets.append(PlannedTicket(ticket.number, len(ticket.slots), self._notes.taken(), uses))
        return self._tickets[number] if number < len(self._tickets) else None


class _Notes:
    """Stands where the planner expects a `BlockTable`; uses are numbers."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._numbers = count()

    def taken(self) -> tuple[Step, ...]:
        steps, self._steps = tuple(self._steps), []
        return steps

    def hold_ahead(self, number: int, slot: int, order: Any, clock: StageClock) -> int:
        use = next(self._numbers)
        self._steps.append(Step(Action.HOLD, (use,), number, slot))
        return use

    def lend(self, uses: Iterable[int]) -> None:
        self._steps.append(Step(Action.LEND, tuple(dict.fromkeys(uses))))

    def release(self, uses: Iterable[int]) -> None:
        if released := tuple(uses):
            self._steps.append(Step(Action.RELEASE, released))
