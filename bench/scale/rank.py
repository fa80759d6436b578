"""One rank: the threads of a loader, as events. What they decide is decided by the classes that the loader uses."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from bench.scale.costs import Costs
from bench.scale.events import Events
from bench.scale.fair_share import FairShare
from bench.scale.planned import Action, PlannedRank, PlannedTicket
from bench.scale.store import SimulatedStore
from dataflow.pipeline.blocks import BlockTable, BlockUse, HeldBlock
from dataflow.pipeline.clocks import Clocks
from dataflow.pipeline.fetch import Fetcher
from dataflow.pipeline.working_set import WorkingSet

_NO_ORDER = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class RankRules:
    """What a loader was told.

    Attributes:
        workers: Threads that assemble.
        window: Most batches that wait.
        concurrency: Most reads in flight.
        memory: Bounds on blocks in memory.
        usual_bytes: Mean bytes of a block.
        block_bytes: Bytes of a block, by number.
    """

    workers: int
    window: int
    concurrency: int
    memory: WorkingSet
    usual_bytes: int
    block_bytes: Callable[[int], int]


class SimulatedRank:
    """A loader that delivers batches as they are asked for.

    Attributes:
        table: The blocks that it holds; the loader's own table.
        fetched_bytes: Bytes of the blocks that arrived.

    Args:
        events: The clock.
        store: Where blocks come from.
        processors: Those of its host.
        planned: Its tickets.
        rules: What it was told.
        costs: What its work takes.
        slowest: Seconds to the first byte of a block on the slowest of those ranks that this one stands for.
        got: Called when a batch that was asked for is there: since when, and since when on the latest of those ranks.
    """

    def __init__(
        self,
        events: Events,
        store: SimulatedStore,
        processors: FairShare,
        planned: PlannedRank,
        rules: RankRules,
        costs: Costs,
        slowest: Callable[[], float],
        got: Callable[[float, float], None],
    ) -> None:
        self._events = events
        self._store = store
        self._processors = processors
        self._planned = planned
        self._rules = rules
        self._costs = costs
        self._got = got
        self._slowest = slowest
        self._latest: dict[HeldBlock, float] = {}
        self._fetcher = _FetchOrder(rules.concurrency)
        memory = rules.memory
        self.table = _Table(
            rules.block_bytes,
            self._request,
            _no_columns,
            lambda: memory.blocks - memory.ahead + min(memory.ahead, self._fetcher.blocks_ahead * rules.usual_bytes),
            memory.ahead,
        )
        self.fetched_bytes = 0
        self._uses: dict[int, BlockUse] = {}
        self._arrived: dict[HeldBlock, list[Callable[[], None]]] = {}
        self._ticket: PlannedTicket | None = None
        self._step = 0
        self._next_ticket = 0
        self._ready_to_take: deque[PlannedTicket] = deque()
        self._idle_workers = rules.workers
        self._made: dict[int, tuple[float, float]] = {}
        self._wanted = 0
        self._asking = False
        self._planning = False

    def start(self) -> None:
        """Begin to plan, as `iter(loader)` does."""
        self._plan()

    def ask(self) -> None:
        """Ask for the next batch, as `next(iterator)` does."""
        self._asking = True
        self._deliver()

    # The planner: it goes on until a block has no room, and looks again when a batch gives blocks back.

    def _plan(self) -> None:
        if self._planning:
            return  # what it does below may end in here again
        self._planning = True
        while self._play_ticket():
            pass
        self._planning = False
        self._take()

    def _play_ticket(self) -> bool:
        """Play the steps of a ticket; False where the planner has to wait, or has no more."""
        if self._ticket is None:
            self._ticket = self._planned.ticket(self._next_ticket)
            if self._ticket is None:
                return False
            self._next_ticket += 1
            self._step = 0
        ticket, table, uses = self._ticket, self.table, self._uses
        while self._step < len(ticket.steps):
            action, numbers, block, slot = ticket.steps[self._step]
            if action is Action.HOLD:
                if not table.may_hold_ahead(block):
                    return False
                uses[numbers[0]] = table.hold(block, slot, _NO_ORDER)
            elif action is Action.LEND:
                table.lend([uses[number] for number in numbers])
            else:
                table.release([uses[number] for number in numbers])
                self._forget(numbers)
            self._step += 1
        self._ready_to_take.append(ticket)
        self._ticket = None
        return True

    # Reads: in the order of the slots that need them, as many at once as the probe allows.

    def _request(self, block: HeldBlock) -> None:
        self._arrived[block] = []
        self._fetcher.push(block)
        self._fetch()

    def _fetch(self) -> None:
        while (block := self._fetcher.pop()) is not None:
            _Arrival(self, block)

    def _arrive(self, block: HeldBlock, seconds: float) -> None:
        self._latest[block] = self._events.now + max(0.0, self._slowest() - seconds)
        block.arrive(None)
        self.fetched_bytes += block.nbytes
        self._fetcher.ended(block.nbytes, self._events.now)
        self._fetch()
        for call in self._arrived.pop(block):
            call()

    # Workers: each takes a ticket, waits for its blocks, and makes its batch.

    def _take(self) -> None:
        tickets = self._ready_to_take
        while self._idle_workers and tickets and tickets[0].number < self._wanted + self._rules.window:
            self._idle_workers -= 1
            _Assembly(self, tickets.popleft())

    def _finish(self, ticket: PlannedTicket) -> None:
        now = self._events.now
        arrived = max(self._latest[self._uses[use].block] for use in ticket.uses)
        self._made[ticket.number] = now, max(now, arrived + self._costs.batch_seconds(ticket.rows))
        self.table.give_back([self._uses[use] for use in ticket.uses])
        self._forget(ticket.uses)
        self._idle_workers += 1
        self._deliver()
        self._plan()

    def _forget(self, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            use = self._uses[number]
            if use.references == 0:
                del self._uses[number]
                if use.block.uses == 0:
                    del self._latest[use.block]

    def _deliver(self) -> None:
        if self._asking and self._wanted in self._made:
            made = self._made.pop(self._wanted)
            self._wanted += 1
            self._asking = False
            self._take()
            self._got(*made)


class _Table(BlockTable):
    """The loader's table, asked by one thread: where the planner would wait, it is told so."""

    def may_hold_ahead(self, number: int) -> bool:
        """Whether `hold_ahead` would not wait."""
        return self._fits(number) or not self._lent


class _FetchOrder:
    """The order of reads, and how many are in flight, as `Fetcher` has them without its threads."""

    def __init__(self, concurrency: int) -> None:
        self._fetcher = Fetcher(_no_columns, concurrency, Clocks())
        self._probe = self._fetcher._probe
        self._waiting: list[tuple[int, int, HeldBlock]] = []
        self._order = count()
        self._active = 0

    @property
    def blocks_ahead(self) -> int:
        return self._fetcher.blocks_ahead

    def push(self, block: HeldBlock) -> None:
        heapq.heappush(self._waiting, (block.slot, next(self._order), block))

    def pop(self) -> HeldBlock | None:
        if not self._waiting or self._active >= self._probe.limit:
            return None
        self._active += 1
        return heapq.heappop(self._waiting)[2]

    def ended(self, nbytes: int, now: float) -> None:
        self._active -= 1
        self._probe.read(nbytes, now, bool(self._waiting))


class _Arrival:
    """A block on its way: there when its last byte is, and when the work that receiving it takes is done."""

    __slots__ = ("_block", "_left", "_rank", "_seconds")

    def __init__(self, rank: SimulatedRank, block: HeldBlock) -> None:
        self._rank = rank
        self._block = block
        self._left = 2
        self._seconds = 0.0
        rank._store.read(block.nbytes, self._receive, self._part_done)

    def _receive(self, seconds: float) -> None:
        rank = self._rank
        self._seconds = seconds
        rank._processors.add(rank._costs.fetch_seconds(self._block.nbytes), self._part_done)

    def _part_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._rank._arrive(self._block, self._seconds)


class _Assembly:
    """A batch that a worker makes, once its blocks are there."""

    __slots__ = ("_missing", "_rank", "_ticket")

    def __init__(self, rank: SimulatedRank, ticket: PlannedTicket) -> None:
        self._rank = rank
        self._ticket = ticket
        blocks = dict.fromkeys(rank._uses[use].block for use in ticket.uses)
        missing = [block for block in blocks if not block.arrived]
        self._missing = len(missing)
        for block in missing:
            rank._arrived[block].append(self._one_came)
        if not missing:
            self._work()

    def _one_came(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._work()

    def _work(self) -> None:
        rank = self._rank
        rank._processors.add(rank._costs.batch_seconds(self._ticket.rows), self._done)

    def _done(self) -> None:
        self._rank._finish(self._ticket)


def _no_columns(*_: Any) -> Any:
    raise AssertionError("a simulation has no bytes")
