"""Deliver: the threads of a pipeline, and batches handed over in the order of their tickets."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from dataflow.errors import DataflowError
from dataflow.pipeline.blocks import BlockTable, PipelineStopped
from dataflow.pipeline.clocks import Clocks, StageClock
from dataflow.pipeline.fetch import Fetcher
from dataflow.pipeline.lanes import Lanes
from dataflow.pipeline.plan import Ticket

if TYPE_CHECKING:
    from dataflow.pipeline.processes import Processes

# Tickets are small, but each costs some microseconds: a plan that ran ahead without bound would delay the first batch.
_MOST_PLANNED = 2048
_CLOSE_SECONDS = 1.5


class Delivered(NamedTuple):
    """A ticket and its batch."""

    ticket: Ticket
    batch: Any


class _Failure(NamedTuple):
    error: BaseException


class Pipeline:
    """Runs tickets through the stages.

    Args:
        tickets: The plan, in stream order.
        assemble: A ticket to a batch, on a worker's clock and the clock of its reads.
        workers: Threads that assemble; 0 assembles in the thread that asks.
        window: Most batches that wait for the consumer.
        clocks: Where all threads count their time.
        fetcher: Brings blocks.
        table: Holds blocks.
        lanes: Lanes that run, where the pipeline drops samples.
        processes: What runs functions of the user elsewhere.
    """

    def __init__(
        self,
        tickets: Callable[[StageClock], Iterator[Ticket]],
        assemble: Callable[[Ticket, StageClock, StageClock], Any],
        *,
        workers: int,
        window: int,
        clocks: Clocks,
        fetcher: Fetcher,
        table: BlockTable,
        lanes: Lanes | None,
        processes: Sequence[Processes] = (),
    ) -> None:
        self.clocks = clocks
        self.fetcher = fetcher
        self.table = table
        self.lanes = lanes
        self._processes = processes
        self._tickets = tickets
        self._assemble = assemble
        self._window = window
        self._planned: deque[Ticket] = deque()
        self._results: dict[int, Delivered | _Failure] = {}
        self._wanted = 0
        self._total: int | None = None
        self._stopped = False
        self._pid = os.getpid()
        lock = threading.Lock()
        # One lock, and a condition for each that waits: the planner for room, workers for tickets, the consumer.
        self._room = threading.Condition(lock)
        self._work_changed = threading.Condition(lock)
        self._result_changed = threading.Condition(lock)
        self._inline = (clocks.clock("assemble"), clocks.clock("read")) if workers == 0 else None
        self._threads = [threading.Thread(target=self._plan, name="dataflow-plan", daemon=True)]
        for number in range(workers):
            self._threads.append(threading.Thread(target=self._work, name=f"dataflow-worker-{number}", daemon=True))
        for thread in self._threads:
            thread.start()

    def next(self, timeout: float | None = None) -> Delivered | None:
        """The next batch; None at the end.

        Raises:
            DataflowError: nothing came within `timeout` seconds, or the pipeline was closed.
        """
        if self._pid != os.getpid():
            raise DataflowError("this iterator belongs to the process that forked: make a new one with iter(loader)")
        if self._inline is not None:
            self._assemble_inline()
        number = self._wanted
        with self._result_changed:
            ready = self._result_changed.wait_for(
                lambda: self._stopped or number in self._results or number == self._total, timeout
            )
            if not ready:
                raise DataflowError(
                    f"no batch within {timeout} s ({self._state()}): raise timeout=, or see loader.report()"
                )
            result = self._results.pop(number, None)
            if result is None:
                if self._stopped:
                    raise DataflowError("the iterator was closed: make a new one with iter(loader)")
                return None
            self._wanted += 1
            self._work_changed.notify()
        if isinstance(result, _Failure):
            raise result.error
        return result

    def close(self) -> None:
        """End all threads; may be called often, from any thread."""
        if self._pid != os.getpid():
            return  # a fork brought no threads along, but maybe locks that one of them held
        with self._room:
            self._stopped = True
            self._planned.clear()
            self._results.clear()
            self._wake_all()
        for processes in self._processes:
            processes.stop()
        self.table.stop()
        self.fetcher.stop()
        if self.lanes is not None:
            self.lanes.stop()
        # A read that hangs ends by its own timeout; it is not worth the user's time to wait for it.
        deadline = perf_counter() + _CLOSE_SECONDS
        speaking = [thread for processes in self._processes for thread in processes.threads]
        for thread in (*self._threads, *self.fetcher.threads, *speaking):
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - perf_counter()))

    def _state(self) -> str:
        with_tickets = f"{len(self._planned)} tickets planned" if self._planned else "no ticket planned"
        return f"batch {self._wanted}, {with_tickets}"

    def _plan(self) -> None:
        clock = self.clocks.clock("plan")
        number = 0
        try:
            start, waited = perf_counter(), 0.0
            for ticket in self._tickets(clock):
                now = perf_counter()
                clock.busy += now - start - (clock.blocked - waited)
                ticket.done["plan"] = now
                number = ticket.number + 1
                with self._room:
                    self._planned.append(ticket)
                    self._work_changed.notify()
                    if len(self._planned) >= _MOST_PLANNED:
                        with clock.waiting("blocked"):
                            self._room.wait_for(lambda: self._stopped or len(self._planned) < _MOST_PLANNED)
                    if self._stopped:
                        return
                start, waited = perf_counter(), clock.blocked
        except PipelineStopped:
            return
        except BaseException as error:  # it is raised again where the batch is asked for
            with self._result_changed:
                self._results[number] = _Failure(error)
                self._result_changed.notify_all()
                return
        with self._room:
            self._total = number
            self._wake_all()

    def _wake_all(self) -> None:
        for condition in (self._room, self._work_changed, self._result_changed):
            condition.notify_all()

    def _may_take(self) -> bool:
        if self._stopped or (self._total is not None and not self._planned):
            return True
        return bool(self._planned) and self._planned[0].number < self._wanted + self._window

    def _take(self, clock: StageClock) -> Ticket | None:
        with self._work_changed:
            if not self._may_take():
                with clock.waiting("blocked" if self._planned else "starved"):
                    self._work_changed.wait_for(self._may_take)
            if self._stopped or not self._planned:
                return None
            self._room.notify()
            return self._planned.popleft()

    def _work(self) -> None:
        clock, read_clock = self.clocks.clock("assemble"), self.clocks.clock("read")
        with suppress(PipelineStopped):
            while (ticket := self._take(clock)) is not None:
                self._run(ticket, clock, read_clock)

    def _run(self, ticket: Ticket, clock: StageClock, read_clock: StageClock) -> None:
        result: Delivered | _Failure
        clock.work = ticket.number
        try:
            result = Delivered(ticket, self._assemble(ticket, clock, read_clock))
        except PipelineStopped:
            raise
        except BaseException as error:  # it is raised again where the batch is asked for
            result = _Failure(error)
        ticket.done["assemble"] = perf_counter()
        with self._result_changed:
            if not self._stopped:
                self._results[ticket.number] = result
                self._result_changed.notify_all()

    def _assemble_inline(self) -> None:
        assert self._inline is not None
        ticket = self._take(self._inline[0])
        if ticket is not None:
            self._run(ticket, *self._inline)
