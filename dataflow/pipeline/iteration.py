"""One iteration over a loader: batches handed over, the position moved, waits attributed, and the end agreed on."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from dataflow.errors import FilterError, OptionError
from dataflow.pipeline.deliver import Delivered, Pipeline
from dataflow.pipeline.position import Position


@dataclass(frozen=True, slots=True)
class ExactEnd:
    """How ranks find the common end of lanes that drop samples.

    Attributes:
        lanes: Lanes of the stream.
        agree: "This rank has more" to "any rank has more"; None for a single rank.
    """

    lanes: int
    agree: Callable[[bool], bool] | None


class Iteration:
    """Iterator over the batches of a pipeline. Closed at its end, by an error, and when nobody refers to it any more.

    Args:
        pipeline: What makes the batches; ended with the iteration.
        position: Moved by every batch that is handed over.
        timeout: Seconds to wait for a batch; None waits for ever.
        exact: Where lanes end with their epoch.
    """

    def __init__(
        self, pipeline: Pipeline, position: Position, *, timeout: float | None, exact: ExactEnd | None
    ) -> None:
        self._pipeline = pipeline
        self._position = position
        self._timeout = timeout
        self._exact = exact
        self._filling: dict[str, Any] | None = None
        self._finished = False
        self._returned = perf_counter()
        self.close = weakref.finalize(self, pipeline.close)

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
            self._position.end()
            self.close()
            raise StopIteration
        self._position.deliver(delivered.ticket.end, delivered.ticket.cursors)
        stop = perf_counter()
        self._pipeline.clocks.delivered(self._returned, start, stop, delivered.ticket.done)
        self._returned = stop
        return delivered.batch

    def _settle(self, delivered: Delivered, exact: ExactEnd) -> Delivered | None:
        """The batch to hand over, filled up if this rank has no row left; None if no rank has."""
        ticket, batch = delivered
        if batch is not None and not isinstance(batch, dict):
            raise OptionError(
                "end='exact' marks rows as valid, so that collate_fn has to return a dict, not " + type(batch).__name__
            )
        more = (
            batch is not None
            or ticket.end < exact.lanes
            or any(lane.ended_at is None or lane.ended_at >= ticket.end for lane in ticket.running)
        )
        if exact.agree is not None:
            more = bool(exact.agree(more))
        if not more:
            if self._filling is None:
                raise FilterError("the filter let no sample of the epoch through: check its condition")
            return None
        if batch is None:
            if self._filling is None:
                raise FilterError(
                    "this rank has no sample to fill its batches with: the filter let none of its first ones through; "
                    "use fewer ranks, or check the filter"
                )
            batch = {name: _copy(value) for name, value in self._filling.items()}
            batch["valid"] = torch.zeros_like(batch["valid"])
        self._filling = batch
        return Delivered(ticket, batch)


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
