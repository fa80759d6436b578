"""One iteration over a loader: batches handed over, the position moved, waits attributed, and the end agreed on."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from dataflow.errors import FilterError, OptionError
from dataflow.pipeline.clocks import described
from dataflow.pipeline.deliver import Delivered, Pipeline
from dataflow.pipeline.plan import Ticket
from dataflow.pipeline.position import Mark, Position
from dataflow.pipeline.transfer import Transfer
from dataflow.sampling.cursor import Cursor, rows_before
from dataflow.sampling.cursor_table import LaneCursor
from dataflow.sampling.lanes import span_length


@dataclass(frozen=True, slots=True)
class ExactEnd:
    """How ranks find the common end of lanes of which only reading tells how many samples they have.

    Attributes:
        lanes: Lanes of the stream.
        num_rows: Rows of the epoch, over all lanes.
        deciding: The stages that decide which samples there are, for messages.
        start: The cursor of a lane that has given nothing.
        agree: "This rank has more" to "any rank has more"; None for a single rank.
        fill: Makes the batch of a ticket whose lanes have nothing left while others have.
    """

    lanes: int
    num_rows: int
    deciding: str
    start: Cursor
    agree: Callable[[bool], bool] | None
    fill: Callable[[Ticket], Any]


class Iteration:
    """Iterator over the batches of a pipeline. Closed at its end, by an error, and when nobody refers to it any more.

    Args:
        pipeline: What makes the batches; ended with the iteration.
        position: Moved by every batch that is handed over.
        start: Where the iteration starts.
        number: What the position knows it by.
        timeout: Seconds to wait for a batch; None waits for ever.
        exact: Where lanes end with their epoch.
        on_step: Told of each batch.
        closed: Called once it is closed.
    """

    def __init__(
        self,
        pipeline: Pipeline | Transfer,
        position: Position,
        start: Mark,
        number: int,
        *,
        timeout: float | None,
        exact: ExactEnd | None,
        on_step: Callable[[dict[str, Any]], None] | None = None,
        closed: Callable[[], None] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._position = position
        self._mark = start
        self._number = number
        self._timeout = timeout
        self._exact = exact
        self._on_step = on_step
        self._started_at = start.slots
        self._asked_all_at = 0 if exact is None else self._find_asked_all_at(exact)
        self._finished = False
        self._returned = perf_counter()
        self.close = weakref.finalize(self, _close, pipeline, closed)

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        if self._finished:
            raise StopIteration
        start = perf_counter()
        try:
            delivered = self._pipeline.next(self._timeout)
            if delivered is not None and self._exact is not None:
                delivered = self._settle(delivered, self._exact)
        except BaseException:
            self.close()
            raise
        if delivered is None:
            self._finished = True
            self._position.end(self._number)
            self.close()
            raise StopIteration
        self._mark.cursors.update(delivered.ticket.cursors)
        self._mark = self._mark._replace(slots=delivered.ticket.end)
        self._position.deliver(self._number, self._mark)
        stop = perf_counter()
        step = self._pipeline.clocks.delivered(self._returned, start, stop, delivered.ticket.done)
        if self._on_step is not None:
            self._on_step(described(step))
        self._returned = perf_counter()
        return delivered.batch

    def _settle(self, delivered: Delivered, exact: ExactEnd) -> Delivered | None:
        """The batch to hand over, filled up if this rank has no row left; None if no rank has."""
        ticket, batch = delivered
        if batch is not None and not isinstance(batch, dict):
            raise OptionError(
                f"end='exact' marks rows as valid: let collate_fn return a dict, not {type(batch).__name__}"
            )
        more = (
            batch is not None
            or ticket.end < self._asked_all_at
            or any(self._has_more(lane, ticket.cursors.get(lane), exact) for lane in ticket.running)
        )
        if exact.agree is not None:
            more = bool(exact.agree(more))
        if not more:
            if self._started_at == 0 and ticket.number == 0 and exact.num_rows:
                raise FilterError(f"{exact.deciding} let no sample of the epoch through: check its condition")
            return None
        return delivered if batch is not None else Delivered(ticket, exact.fill(ticket))

    def _has_more(self, lane: int, cursor: LaneCursor | None, exact: ExactEnd) -> bool:
        cursor = cursor or self._mark.cursors.get(lane) or LaneCursor(0, exact.start)
        return rows_before(cursor.upstream) < span_length(exact.num_rows, exact.lanes, lane)

    def _find_asked_all_at(self, exact: ExactEnd) -> int:
        """The slot by which every lane that has something left has been asked once, by whichever rank."""
        window = range(self._started_at, self._started_at + exact.lanes)
        return max((slot + 1 for slot in window if self._has_more(slot % exact.lanes, None, exact)), default=0)


def _close(pipeline: Pipeline | Transfer, closed: Callable[[], None] | None) -> None:
    pipeline.close()
    if closed is not None:
        closed()
