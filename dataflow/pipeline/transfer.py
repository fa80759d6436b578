"""Transfer: the next batch is copied to a device while the consumer works on the one before."""

from __future__ import annotations

import os
import threading
from time import perf_counter
from typing import Any, NamedTuple

from dataflow.errors import DataflowError
from dataflow.pipeline.deliver import Delivered, Pipeline
from dataflow.pipeline.device import Copied, DeviceCopier
from dataflow.pipeline.plan import Ticket

_CLOSE_SECONDS = 1.5


class _Staged(NamedTuple):
    ticket: Ticket
    copied: Copied


class Transfer:
    """The batches of a pipeline, on a device.

    There are two at a time: the consumer's, and the next one.

    Args:
        pipeline: What makes the batches; closed with the transfer.
        copier: What copies them.
        ahead: Whether a thread takes the next batch before it is asked for.
    """

    def __init__(self, pipeline: Pipeline, copier: DeviceCopier, *, ahead: bool) -> None:
        self.clocks = pipeline.clocks
        self.pipeline = pipeline
        self.copier = copier
        self._clock = pipeline.clocks.clock("transfer")
        self._pid = os.getpid()
        self._changed = threading.Condition()
        # The next batch; the error that came in its place; or None in a tuple, for the end.
        self._next: tuple[_Staged | BaseException | None] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="dataflow-transfer", daemon=True) if ahead else None
        if self._thread is not None:
            self._thread.start()

    def next(self, timeout: float | None = None) -> Delivered | None:
        """The next batch, for the current stream of this thread; None at the end. Raises what the pipeline raises."""
        if self._thread is None or self._closed or self._pid != os.getpid():
            return self._received(self._stage(self.pipeline.next(timeout)))
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._next is not None, timeout):
                raise DataflowError(f"no batch within {timeout} s: raise timeout=, or see loader.report()")
            if self._next is None:
                raise DataflowError("the iterator was closed: make a new one with iter(loader)")
            (staged,) = self._next
            self._next = None
            self._changed.notify_all()
        if isinstance(staged, BaseException):
            raise staged
        return self._received(staged)

    def place(self, batch: Any) -> Any:
        """A batch that was made elsewhere, on the device."""
        return self.copier.start(batch).receive()

    def close(self) -> None:
        """End the pipeline and the thread; may be called often, from any thread."""
        if self._pid == os.getpid():
            with self._changed:
                self._closed = True
                self._next = None
                self._changed.notify_all()
        self.pipeline.close()
        if self._thread is not None and self._pid == os.getpid() and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while self._take_next():
            pass

    def _take_next(self) -> bool:
        """Stage the next batch once there is room; whether there may be another. Keeps no reference to it."""
        with self._changed:
            if self._next is not None:
                with self._clock.waiting("blocked"):
                    self._changed.wait_for(lambda: self._closed or self._next is None)
            if self._closed:
                return False
        staged: _Staged | BaseException | None
        try:
            with self._clock.waiting("starved"):
                delivered = self.pipeline.next()
            staged = self._stage(delivered)
        except BaseException as error:  # it is raised again where the batch is asked for
            staged = error
        with self._changed:
            if self._closed:
                return False
            self._next = (staged,)
            self._changed.notify_all()
        return isinstance(staged, _Staged)

    def _stage(self, delivered: Delivered | None) -> _Staged | None:
        if delivered is None:
            return None
        self._clock.work = delivered.ticket.number
        with self._clock.waiting("busy"):
            copied = self.copier.start(delivered.batch)
        delivered.ticket.done["transfer"] = perf_counter()
        return _Staged(delivered.ticket, copied)

    def _received(self, staged: _Staged | None) -> Delivered | None:
        return None if staged is None else Delivered(staged.ticket, staged.copied.receive())
