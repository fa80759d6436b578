"""Stage clocks: where the threads of a pipeline spend their time, and which stage the consumer waited for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

STAGES = ("plan", "fetch", "read", "assemble")
DEVICE_STAGES = (*STAGES, "transfer")


@dataclass(slots=True)
class StageClock:
    """Seconds that one thread spent in a stage.

    Attributes:
        busy: Working.
        starved: Waiting for the stage before.
        blocked: Waiting for the stage after, or for memory.
    """

    busy: float = 0.0
    starved: float = 0.0
    blocked: float = 0.0

    @contextmanager
    def waiting(self, kind: str) -> Iterator[None]:
        """Count the time inside as "starved" or "blocked"."""
        start = perf_counter()
        try:
            yield
        finally:
            setattr(self, kind, getattr(self, kind) + perf_counter() - start)


@dataclass(slots=True)
class Clocks:
    """The clocks of all threads of a pipeline. Each thread writes its own, so that counting takes no lock."""

    stages: tuple[str, ...] = STAGES
    _clocks: dict[str, list[StageClock]] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    waited: float = 0.0
    between: float = 0.0
    waited_for: dict[str, float] = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self._clocks = {stage: [] for stage in self.stages}
        self.waited_for = dict.fromkeys(self.stages, 0.0)

    def clock(self, stage: str) -> StageClock:
        """A new clock of a stage, for one thread."""
        clock = StageClock()
        with self._lock:
            self._clocks[stage].append(clock)
        return clock

    def total(self, stage: str) -> StageClock:
        """Seconds in a stage over all of its threads."""
        with self._lock:
            clocks = list(self._clocks[stage])
        return StageClock(*(sum(getattr(clock, kind) for clock in clocks) for kind in ("busy", "starved", "blocked")))

    def delivered(self, returned: float, asked: float, got: float, done: dict[str, float]) -> None:
        """Count a batch, and attribute the consumer's wait for it to the stages that it was still in.

        Args:
            returned: When the consumer got the batch before.
            asked: When it asked for this one.
            got: When it got it.
            done: When each stage was done with the batch.
        """
        self.steps += 1
        self.between += asked - returned
        self.waited += got - asked
        for stage in self.stages:
            until = min(max(done.get(stage, got), asked), got)
            self.waited_for[stage] += until - asked
            asked = until

    @property
    def wait_share(self) -> float:
        """Share of the time since the first request that the consumer waited, 0 to 1."""
        total = self.waited + self.between
        return self.waited / total if total else 0.0
