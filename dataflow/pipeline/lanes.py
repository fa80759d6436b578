"""Lanes at run time, where rows are not samples one to one: each lane reads on until it has its next item."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dataflow.pipeline.blocks import PipelineStopped
from dataflow.pipeline.clocks import StageClock
from dataflow.pipeline.deciding import Deciding
from dataflow.pipeline.lane_rows import Item, LaneRows, RowRules, Working
from dataflow.pipeline.lane_stages import LanePlace, most_dropped
from dataflow.sampling.cursor import rows_before
from dataflow.sampling.cursor_table import LaneCursor
from dataflow.sampling.lanes import delivered_items

# Others hold the turn for microseconds, unless they work.
_STOP_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class LaneRules:
    """What all lanes of a pipeline share.

    Attributes:
        rows: What their rows share.
        deciding: The stages that decide which items there are.
    """

    rows: RowRules
    deciding: Deciding


class Lane:
    """One lane: a deterministic generator of items with a cursor.

    Batches take turns: each says which item it wants and which it wanted before, so that threads that work on several
    batches at once leave every lane's order alone.
    """

    def __init__(self, number: int, rules: LaneRules, cursor: LaneCursor) -> None:
        self.number = number
        self._rows = LaneRows(number, rules.rows, rows_before(cursor.upstream), cursor.items)
        self._items = rules.deciding.open(self._rows, cursor.upstream, lane_place(number, rules.rows))
        self._turn = threading.Condition()
        self._stopped = False

    def take(self, before: int, item: int, clock: StageClock, read_clock: StageClock) -> tuple[Item | None, LaneCursor]:
        """The item with this number, once the lane's turn has come; None past the end of an exact lane.

        Args:
            before: Items of the lane that the batches before have taken or passed.
            item: Number of the wanted item; those from `before` to it belong to other ranks and are dropped.
            clock: Clock of the calling thread.
            read_clock: Its clock for reads.
        """
        working = Working(clock, read_clock)
        rows = self._rows
        with self._turn:
            if rows.items < before:
                with clock.waiting("blocked"):
                    self._turn.wait_for(lambda: self._stopped or rows.items >= before)
            if self._stopped:
                raise PipelineStopped
            found = None
            while rows.items <= item:
                found = self._items.next(working)
                rows.items += 1
            self._turn.notify_all()
            return found, LaneCursor(rows.items, self._items.cursor)

    def stop(self) -> None:
        """Wake all that wait for their turn."""
        self._stopped = True
        # Whoever has the turn may be in the user's function for long; it wakes the others when it is through.
        if self._turn.acquire(timeout=_STOP_SECONDS):
            self._turn.notify_all()
            self._turn.release()

    def prepare(self) -> None:
        """Start to bring the block of the next row, and the one after it if there is room."""
        with self._turn:
            self._rows.prepare()


def lane_place(number: int, rules: RowRules) -> LanePlace:
    """Which lane it is, for stages."""
    order = rules.stream.rules
    most = None if rules.exact else most_dropped(rules.stream.num_rows)
    return LanePlace(number, order.lanes, order.seed, order.source, most)


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
        count = self._rules.rows.stream.rules.lanes
        number, item = slot % count, slot // count
        with self._lock:
            lane = self._lanes.get(number)
            if lane is None:
                cursor = self._cursors.get(number) or LaneCursor(0, self._rules.deciding.start)
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
        count = self._rules.rows.stream.rules.lanes
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
