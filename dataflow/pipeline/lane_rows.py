"""The rows of one lane at run time: its blocks one after the other, the next one held ahead of its need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dataflow.pipeline.blocks import BlockTable, BlockUse, HeldBlock
from dataflow.pipeline.clocks import StageClock
from dataflow.pipeline.transform import Sample
from dataflow.sampling.cursor import Cursor
from dataflow.sampling.lanes import span_length
from dataflow.sampling.random import SampleKey
from dataflow.sampling.stream import Stream, Visit


class Item(NamedTuple):
    """A sample of a lane.

    Attributes:
        sample: What stages made of it so far.
        key: What its random numbers are keyed by: the row, or the first row, that it is from, and which part of it.
        documents: The same for each document that was packed into it.
    """

    sample: Sample
    key: SampleKey
    documents: tuple[SampleKey, ...] = ()


class Working(NamedTuple):
    """The clocks of the thread that has a lane's turn."""

    clock: StageClock
    read_clock: StageClock


class Items(Protocol):
    """Items in a fixed order, with a cursor from which they can be had again."""

    @property
    def cursor(self) -> Cursor:
        """Where it stands after the items that were given."""
        ...

    def next(self, working: Working) -> Item | None:
        """The next item; None where there are no more."""
        ...


@dataclass(frozen=True, slots=True)
class RowRules:
    """What the rows of all lanes share.

    Attributes:
        stream: The order of samples.
        table: Where blocks come from.
        read: A block and a row to a sample and the row that it is.
        exact: Whether lanes end with their epoch instead of going on with the next.
    """

    stream: Stream
    table: BlockTable
    read: Callable[[HeldBlock, SampleKey, StageClock, StageClock], tuple[Sample, SampleKey]]
    exact: bool


class LaneRows:
    """The rows of one lane from a position on.

    Attributes:
        cursor: Rows that were taken.
        items: Items that the lane gave so far, which says how soon its next block is needed.
    """

    def __init__(self, lane: int, rules: RowRules, position: int, items: int) -> None:
        self.cursor = position
        self.items = items
        self._lane = lane
        self._rules = rules
        self._visits: Iterator[Visit] | None = None
        self._visit: Visit | None = None
        self._use: BlockUse | None = None
        self._next: tuple[Visit, BlockUse | None] | None = None

    def prepare(self) -> None:
        """Start to bring the block of the next row, and the one after it if there is room."""
        if self._visits is not None:
            return
        stream, lane = self._rules.stream, self._lane
        items = span_length(stream.num_rows, stream.rules.lanes, lane) if self._rules.exact else None
        self._visits = stream.visits(lane, self.cursor, items=items)
        self._look_ahead()
        self._enter()

    def next(self, working: Working) -> Item | None:
        """The next row as a sample; None past the end of an exact lane."""
        rules = self._rules
        self.prepare()
        while self._visit is not None and self._use is not None:
            visit = self._visit
            offset = visit.first + self.cursor - visit.item
            if offset >= visit.stop:
                self._enter()
                continue
            row = int(self._use.order[offset])
            self.cursor += 1
            key = SampleKey(rules.stream.rules.seed, rules.stream.rules.source, visit.epoch, visit.block, row)
            return Item(*rules.read(self._use.block, key, *working))
        return None

    def _enter(self) -> None:
        """Go on to the next block of the lane, and look one further ahead."""
        table = self._rules.table
        if self._use is not None:
            table.release([self._use])
        self._visit = self._use = None
        if self._next is None:
            return
        visit, use = self._next
        # Nothing else may keep the lane from the block that it needs now, however full the memory is.
        if use is not None:
            table.need(use)
        self._use = use or table.hold(visit.block, self._slot(), self._order(visit))
        self._visit = visit
        self._look_ahead()

    def _look_ahead(self) -> None:
        assert self._visits is not None
        visit = next(self._visits, None)
        table = self._rules.table
        self._next = visit and (visit, table.try_hold(visit.block, self._slot() + 1, self._order(visit)))

    def _order(self, visit: Visit) -> NDArray[np.int32]:
        return self._rules.stream.row_permutation(visit.epoch, visit.block)

    def _slot(self) -> int:
        return self.items * self._rules.stream.rules.lanes + self._lane
