"""Lanes at run time, for pipelines that drop samples: each lane reads on until it has its next item."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataflow.errors import FilterError
from dataflow.pipeline.blocks import BlockTable, BlockUse, HeldBlock, PipelineStopped
from dataflow.pipeline.clocks import StageClock
from dataflow.pipeline.transform import DROPPED, Sample, Transform
from dataflow.sampling.lanes import delivered_items, span_length
from dataflow.sampling.random import SampleKey
from dataflow.sampling.state import LaneCursor
from dataflow.sampling.stream import Stream, Visit

# Of few rows, a lane may well draw many in turn that are dropped, although others are kept.
_LEAST_DROPPED = 1000
# Others hold the turn for microseconds, unless they work.
_STOP_SECONDS = 0.01


class LaneItem(NamedTuple):
    """A sample that a lane let through, up to its last filter."""

    sample: Sample
    key: SampleKey


@dataclass(frozen=True, slots=True)
class LaneRules:
    """What all lanes of a pipeline share.

    Attributes:
        stream: The samples before any stage.
        table: Where blocks come from.
        read: A block and a row to a sample and the row that it is.
        transform: The stages up to the last filter.
        filters: Names of the filters, for messages.
        exact: Whether lanes end with their epoch instead of going on with the next.
    """

    stream: Stream
    table: BlockTable
    read: Callable[[HeldBlock, SampleKey, StageClock, StageClock], tuple[Sample, SampleKey]]
    transform: Transform
    filters: str
    exact: bool


class Lane:
    """One lane: a deterministic generator of items with a cursor.

    Batches take turns: each says which item it wants and which it wanted before, so that threads that work on several
    batches at once leave every lane's order alone.
    """

    def __init__(self, number: int, rules: LaneRules, cursor: LaneCursor) -> None:
        self._rules = rules
        self._items = cursor.items
        self._upstream = cursor.upstream
        self._turn = threading.Condition()
        self._stopped = False
        self._visits: Iterator[Visit] | None = None
        self._visit: Visit | None = None
        self._use: BlockUse | None = None
        self._next: tuple[Visit, BlockUse | None] | None = None
        self.number = number

    def take(
        self, before: int, item: int, clock: StageClock, read_clock: StageClock
    ) -> tuple[LaneItem | None, LaneCursor]:
        """The item with this number, once the lane's turn has come; None past the end of an exact lane.

        Args:
            before: Items of the lane that the batches before have taken or passed.
            item: Number of the wanted item; those from `before` to it belong to other ranks and are dropped.
            clock: Clock of the calling thread.
            read_clock: Its clock for reads.
        """
        with self._turn:
            if self._items < before:
                with clock.waiting("blocked"):
                    self._turn.wait_for(lambda: self._stopped or self._items >= before)
            if self._stopped:
                raise PipelineStopped
            found = None
            while self._items <= item:
                found = self._advance(clock, read_clock)
                self._items += 1
            self._turn.notify_all()
            return found, LaneCursor(self._items, self._upstream)

    def stop(self) -> None:
        """Wake all that wait for their turn."""
        self._stopped = True
        # Whoever has the turn may be in the user's function for long; it wakes the others when it is through.
        if self._turn.acquire(timeout=_STOP_SECONDS):
            self._turn.notify_all()
            self._turn.release()

    def prepare(self) -> None:
        """Start to bring the block of the next item, and the one after it if there is room."""
        with self._turn:
            if self._visits is None:
                self._open()

    def _open(self) -> None:
        rules = self._rules
        items = span_length(rules.stream.num_rows, rules.stream.rules.lanes, self.number) if rules.exact else None
        self._visits = rules.stream.visits(self.number, self._upstream, items=items)
        self._look_ahead()
        self._enter()

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
        return self._items * self._rules.stream.rules.lanes + self.number

    def _advance(self, clock: StageClock, read_clock: StageClock) -> LaneItem | None:
        rules = self._rules
        if self._visits is None:
            self._open()
        dropped = 0
        while self._visit is not None and self._use is not None:
            visit = self._visit
            offset = visit.first + self._upstream - visit.item
            if offset >= visit.stop:
                self._enter()
                continue
            row = int(self._use.order[offset])
            self._upstream += 1
            key = SampleKey(rules.stream.rules.seed, rules.stream.rules.source, visit.epoch, visit.block, row)
            read, key = rules.read(self._use.block, key, clock, read_clock)
            sample = rules.transform(read, key)
            if sample is not DROPPED:
                return LaneItem(sample, key)
            dropped += 1
            if dropped >= max(rules.stream.num_rows, _LEAST_DROPPED) and not rules.exact:
                raise FilterError(
                    f"filter {rules.filters} let none of {dropped} samples of lane {self.number} through, at least an "
                    "epoch's worth: check the condition, or the column that it reads"
                )
        return None


class Demand(NamedTuple):
    """A batch wants item number `item` of a lane; batches before it took or passed those up to `before`."""

    lane: Lane
    before: int
    item: int


class Lanes:
    """The lanes that a rank runs, made when they are first needed.

    Args:
        rules: What they share.
        cursors: Where each stands; lanes that are not named stand at the start.
    """

    def __init__(self, rules: LaneRules, cursors: Mapping[int, LaneCursor]) -> None:
        self._rules = rules
        self._cursors = cursors
        self._lanes: dict[int, Lane] = {}
        self._lock = threading.Lock()
        self._wanted: dict[int, int] = {}

    def demand(self, slot: int) -> Demand:
        """Note that a batch wants a slot; called in stream order."""
        count = self._rules.stream.rules.lanes
        number, item = slot % count, slot // count
        with self._lock:
            lane = self._lanes.get(number)
            if lane is None:
                cursor = self._cursors.get(number, LaneCursor(0, 0))
                lane = self._lanes[number] = Lane(number, self._rules, cursor)
                # A rank's cursor of a lane at its border may lag behind; the lane then passes what others delivered.
                self._wanted[number] = cursor.items
                lane.prepare()
            before = self._wanted[number]
            self._wanted[number] = item + 1
        return Demand(lane, before, item)

    def catch_up(self, end: int) -> list[Demand]:
        """Note that every lane that runs passes all slots before `end`, also those of other ranks."""
        with self._lock:
            numbers = list(self._lanes)
        count = self._rules.stream.rules.lanes
        behind = [(number, delivered_items(number, end, count)) for number in numbers]
        return [self.demand((items - 1) * count + lane) for lane, items in behind if items > self._wanted[lane]]

    def running(self) -> list[int]:
        """Lanes that were asked for so far."""
        with self._lock:
            return list(self._lanes)

    def stop(self) -> None:
        """Wake all that wait for a lane."""
        with self._lock:
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.stop()
