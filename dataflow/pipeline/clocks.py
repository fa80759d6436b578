"""Stage clocks: where the threads of a pipeline spend their time, and which stage the consumer waited for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple, Protocol

STAGES = ("plan", "fetch", "read", "assemble")
DEVICE_STAGES = (*STAGES, "transfer")

_MOST_STEPS = 1024


class Step(NamedTuple):
    """One batch, as its consumer saw it.

    Attributes:
        step: Batches of the iteration before it.
        between: Seconds that the consumer took before it asked.
        waited: Seconds that it then waited.
        by_stage: These seconds, by the stage that the batch was still in.
    """

    step: int
    between: float
    waited: float
    by_stage: dict[str, float]


class Tracer(Protocol):
    """What is told of everything that clocks count, while it is wanted; called by many threads at once."""

    def thread(self, clock: StageClock, kind: str, start: float, stop: float) -> None:
        """A thread of a stage was "busy", "starved" or "blocked"; seconds of the performance counter."""

    def batch(self, number: int, done: dict[str, float], returned: float, asked: float, got: float) -> None:
        """A batch was delivered; as `Clocks.delivered` has it."""


@dataclass(slots=True)
class StageClock:
    """Seconds that one thread spent in a stage.

    Attributes:
        stage: The stage.
        number: Clocks of the stage that there were before.
        busy: Working.
        starved: Waiting for the stage before.
        blocked: Waiting for the stage after, or for memory.
        work: Number of the block or the batch that it works on.
        tracer: What is told of it, if anything.
    """

    stage: str = ""
    number: int = 0
    busy: float = 0.0
    starved: float = 0.0
    blocked: float = 0.0
    work: int = -1
    tracer: Tracer | None = None

    def count(self, kind: str, start: float, stop: float) -> None:
        """Count the time from `start` to `stop` as "busy", "starved" or "blocked"."""
        setattr(self, kind, getattr(self, kind) + stop - start)
        if self.tracer is not None:
            self.tracer.thread(self, kind, start, stop)

    @contextmanager
    def waiting(self, kind: str) -> Iterator[None]:
        """Count the time inside as "busy", "starved" or "blocked"."""
        start = perf_counter()
        try:
            yield
        finally:
            self.count(kind, start, perf_counter())


@dataclass(slots=True)
class Clocks:
    """The clocks of all threads of a pipeline. Each thread writes its own, so that counting takes no lock.

    Attributes:
        stages: The stages, in order.
        waited: Seconds that the consumer waited for batches.
        between: Seconds that it took between them.
        waited_for: Those that it waited, by the stage that the batch was still in.
        steps: Batches that it got.
        recent: The last of them.
    """

    stages: tuple[str, ...] = STAGES
    waited: float = 0.0
    between: float = 0.0
    waited_for: dict[str, float] = field(init=False)
    steps: int = 0
    recent: deque[Step] = field(default_factory=lambda: deque(maxlen=_MOST_STEPS))
    _clocks: dict[str, list[StageClock]] = field(init=False)
    _tracer: Tracer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._clocks = {stage: [] for stage in self.stages}
        self.waited_for = dict.fromkeys(self.stages, 0.0)

    def clock(self, stage: str) -> StageClock:
        """A new clock of a stage, for one thread."""
        with self._lock:
            clocks = self._clocks[stage]
            clock = StageClock(stage, len(clocks), tracer=self._tracer)
            clocks.append(clock)
        return clock

    def trace(self, tracer: Tracer | None) -> None:
        """Tell a tracer of everything from now on, or nobody."""
        with self._lock:
            self._tracer = tracer
            for clocks in self._clocks.values():
                for clock in clocks:
                    clock.tracer = tracer

    def total(self, stage: str) -> StageClock:
        """Seconds in a stage over all of its threads."""
        # Without the lock, which may be held for ever in a process that was forked.
        clocks = list(self._clocks[stage])
        busy, starved, blocked = (
            sum(getattr(clock, kind) for clock in clocks) for kind in ("busy", "starved", "blocked")
        )
        return StageClock(stage, len(clocks), busy, starved, blocked)

    def delivered(self, returned: float, asked: float, got: float, done: dict[str, float]) -> Step:
        """Count a batch, and attribute the consumer's wait for it to the stages that it was still in.

        Args:
            returned: When the consumer got the batch before.
            asked: When it asked for this one.
            got: When it got it.
            done: When each stage was done with the batch.
        """
        if self._tracer is not None:
            self._tracer.batch(self.steps, done, returned, asked, got)
        by_stage = {}
        since = asked
        for stage in self.stages:
            until = min(max(done.get(stage, got), since), got)
            by_stage[stage] = until - since
            self.waited_for[stage] += until - since
            since = until
        step = Step(self.steps, asked - returned, got - asked, by_stage)
        self.steps += 1
        self.between += step.between
        self.waited += step.waited
        self.recent.append(step)
        return step

    @property
    def wait_share(self) -> float:
        """Share of the time since the first request that the consumer waited, 0 to 1."""
        total = self.waited + self.between
        return self.waited / total if total else 0.0


def described(step: Step) -> dict[str, Any]:
    """A step as a JSON-able dict."""
    return step._asdict() | {"by_stage": dict(step.by_stage)}
