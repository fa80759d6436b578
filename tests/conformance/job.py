"""A job: all ranks of a run in one process, in step, and a record of what they delivered."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from tests.conformance.adapter import Adapter, Loader
from tests.conformance.pipelines import PIPELINES, numbers

PATIENCE = 60.0


@dataclass(frozen=True)
class Way:
    """How a stream is consumed: nothing of it may show in the stream."""

    ranks: int = 1
    batch: int = 24
    workers: int = 0
    prefetch: int = 1

    @property
    def step(self) -> int:
        """Slots of a step over all ranks."""
        return self.ranks * self.batch

    def __str__(self) -> str:
        return f"{self.ranks}x{self.batch} workers={self.workers} prefetch={self.prefetch}"


@dataclass(frozen=True)
class Mode:
    """Which stream is asked for, and how its epochs end.

    Attributes:
        name: For test ids.
        drops: One row in so many is dropped, and runs of rows; 0 keeps all.
        options: Of the loader.
        stages: What is put upon the dataset, by name of a pipeline in `pipelines`; "" for nothing.
    """

    name: str
    drops: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    stages: str = ""

    @property
    def exact(self) -> bool:
        return bool(self.drops or self.stages) and self.options.get("end") == "exact"

    def kept(self, number: int) -> bool:
        """Whether a row is in the stream. Whole runs are dropped too, so that lanes end at different times."""
        return not self.drops or (number % self.drops != 1 and number // 50 % 4 != 1)

    def __str__(self) -> str:
        return self.name


EPOCHS = Mode("epochs")
DROP_LAST = Mode("drop_last", options={"drop_last": True})
ENDLESS = Mode("endless", options={"steps_per_epoch": 40})
FILTER = Mode("filter", drops=3, options={"steps_per_epoch": 40})
FILTER_EXACT = Mode("filter_exact", drops=3, options={"end": "exact"})
THREE_EPOCHS = Mode("three_epochs", options={"epochs": 3})
MODES = [EPOCHS, ENDLESS, FILTER, FILTER_EXACT]


class Batch(NamedTuple):
    """What one rank got in one step."""

    slots: list[int]
    samples: list[Any]
    valid: list[bool]


Step = list[Batch]


class Agreement:
    """ORs "I have more" over ranks that are threads."""

    def __init__(self, ranks: int) -> None:
        self._votes: list[bool] = []
        self._any = False
        self._barrier = threading.Barrier(ranks, action=self._decide, timeout=PATIENCE)

    def __call__(self, more: bool) -> bool:
        self._votes.append(more)
        self._barrier.wait()
        return self._any

    def abort(self) -> None:
        """Free the ranks that wait for one that failed."""
        self._barrier.abort()

    def _decide(self) -> None:
        self._any = any(self._votes)
        self._votes.clear()


class Job:
    """The ranks of one run.

    Args:
        adapter: Makes the loaders.
        dataset: What to read.
        mode: Which stream.
        way: How it is consumed.
        state: Where to begin.
        options: More options of the loaders.
    """

    def __init__(
        self,
        adapter: Adapter,
        dataset: Any,
        mode: Mode,
        way: Way,
        state: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.way = way
        self.mode = mode
        self._adapter = adapter
        self._agreement = Agreement(way.ranks) if mode.exact and way.ranks > 1 else None
        self._iterators: list[Iterator[Mapping[str, Any]]] | None = None
        self._pool = ThreadPoolExecutor(way.ranks, "rank") if self._agreement else None
        if mode.drops:
            dataset = dataset.filter(lambda sample: mode.kept(int(sample["number"])), name="kept")
        pipeline = PIPELINES.get(mode.stages)
        if pipeline is not None:
            dataset = pipeline.build(dataset)
        self._identify = numbers if pipeline is None else pipeline.identify
        if self._agreement:
            options["agree"] = self._agreement
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # narrow lanes are what is tested here
            self.loaders: list[Loader] = [
                adapter.make_loader(
                    dataset,
                    **{
                        "batch_size": way.batch,
                        "shuffle": True,
                        "num_workers": way.workers,
                        "prefetch_factor": way.prefetch,
                        "rank": rank,
                        "world_size": way.ranks,
                        **mode.options,
                        **options,
                    },
                )
                for rank in range(way.ranks)
            ]
        if state is not None:
            for loader in self.loaders:
                loader.load_state_dict(state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._agreement:
            self._agreement.abort()
        for iterator in self._iterators or ():
            getattr(iterator, "close", lambda: None)()  # frees a rank that hangs in it
        self._iterators = None
        if self._pool:
            self._pool.shutdown()

    def states(self) -> list[dict[str, Any]]:
        """The state of every rank."""
        return [loader.state_dict() for loader in self.loaders]

    def merged(self) -> dict[str, Any]:
        """The state of the job. All ranks took it after the same step, so that nothing may be missing."""
        states = self.states()
        try:
            return self._adapter.merge_states(states)
        except Exception as error:
            raise AssertionError(f"the states of all {self.way.ranks} ranks do not merge: {error}") from error

    def step(self) -> Step | None:
        """One batch on every rank; None at the end of the iteration. No rank may end before another."""
        if self._iterators is None:
            self._iterators = [iter(loader) for loader in self.loaders]
        taken = self._take(self._iterators)
        ended = [batch is None for batch in taken]
        assert len(set(ended)) == 1, f"ranks ended at different steps: {ended}"
        if ended[0]:
            self._iterators = None
            return None
        step = [read_batch(batch, self._identify) for batch in taken if batch is not None]
        assert len({len(batch.slots) for batch in step}) == 1, f"ranks got different numbers of rows: {step}"
        return step

    def epoch(self) -> list[Step]:
        """All steps up to the end of the iteration."""
        steps = []
        while (step := self.step()) is not None:
            steps.append(step)
        return steps

    def run(self, steps: int) -> list[Step]:
        """So many steps, over the ends of epochs."""
        taken: list[Step] = []
        empty = 0
        while len(taken) < steps:
            step = self.step()
            if step is None:
                empty += 1
                assert empty < 3, "epoch after epoch has no batch"
            else:
                empty = 0
                taken.append(step)
        return taken

    def _take(self, iterators: list[Iterator[Mapping[str, Any]]]) -> list[Mapping[str, Any] | None]:
        if self._pool is None or self._agreement is None:
            return [next(iterator, None) for iterator in iterators]
        futures = [self._pool.submit(next, iterator, None) for iterator in iterators]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        if any(future.exception() for future in done):
            self._agreement.abort()
            raise next(error for future in done if (error := future.exception()))
        return [future.result() for future in futures]


def read_batch(batch: Mapping[str, Any], identify: Callable[[Mapping[str, Any]], list[Any]]) -> Batch:
    """The ids of a batch; its data have to be those of its ids."""
    samples, slots = identify(batch), batch["slot"].tolist()
    assert len(samples) > 0, "a batch without rows"
    valid = batch["valid"].tolist() if "valid" in batch else [True] * len(samples)
    return Batch(slots, samples, valid)


def delivered(steps: list[Step]) -> list[tuple[int, Any]]:
    """(slot, sample) of all steps in order, over all ranks; rows that are marked as padding left out.

    A step has to hold slots of its own, each once, and its padding only what is there anyway.
    """
    out: list[tuple[int, Any]] = []
    for step in steps:
        rows = [row for batch in step for row in zip(*batch, strict=True)]
        own = sorted((slot, sample) for slot, sample, valid in rows if valid)
        slots = [slot for slot, _ in own]
        assert len(set(slots)) == len(slots), f"two ranks delivered one slot: {slots}"
        out += own
    return out
