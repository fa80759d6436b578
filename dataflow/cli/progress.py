"""How far a long command is: a bar on a terminal, else a plain line now and then."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

import rich.progress
from rich.console import Console

from dataflow.cli.text import bytes_text

__all__ = ["Progress"]

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Written to standard error, so that what a command prints can be piped on.

    Args:
        what: What is done, e.g. "sharding".
        total: How many items there are.
        unit: What they are called, e.g. "images".
    """

    def __init__(self, what: str, total: int, unit: str) -> None:
        self._what, self._total, self._unit = what, total, unit
        self._items = self._nbytes = 0
        self._start = self._last_line = time.monotonic()
        console = Console(stderr=True)
        self._bar: rich.progress.Progress | None = None
        if console.is_terminal:
            self._bar = rich.progress.Progress(
                rich.progress.TextColumn("{task.description}"),
                rich.progress.BarColumn(),
                rich.progress.TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit),
                rich.progress.TextColumn("{task.fields[speed]}"),
                rich.progress.TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task(what, total=total, speed="")
        self._console = console

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif error is None:
            self._line()

    def advance(self, items: int, nbytes: int) -> None:
        """Notes that some more items are done, and how many bytes they have."""
        self._items += items
        self._nbytes += nbytes
        if self._bar is not None:
            self._bar.update(self._task, advance=items, speed=self._speed())
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._line()

    def _speed(self) -> str:
        return f"{bytes_text(self._nbytes / max(1e-9, time.monotonic() - self._start))}/s"

    def _line(self) -> None:
        self._last_line = time.monotonic()
        self._console.print(
            f"{self._what}: {self._items:,} of {self._total:,} {self._unit}, {bytes_text(self._nbytes)}, "
            f"{self._speed()}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
