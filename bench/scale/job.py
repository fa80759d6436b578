"""A job: ranks that step together, over one store."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

import numpy as np

from bench.scale.costs import Costs
from bench.scale.dataset import SimulatedDataset
from bench.scale.events import Events
from bench.scale.fair_share import FairShare
from bench.scale.planned import PlannedRank
from bench.scale.rank import RankRules, SimulatedRank
from bench.scale.slowest import slowest_of
from bench.scale.store import SimulatedStore, StoreRules
from dataflow.pipeline.plan import BatchRules
from dataflow.pipeline.working_set import WorkingSet
from dataflow.sampling.stream import Stream


class JobFailedError(Exception):
    """A read failed for good: the real job would end with a `StorageError`."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is simulated.

    Attributes:
        ranks: Ranks of the job, one for each GPU.
        ranks_per_host: Ranks that share the processors of a host.
        batch_size: Rows of a rank's batch.
        step_seconds: What the accelerators compute for with each batch, all-reduce included.
        processors: Of a host, for loading.
        workers: Threads of a rank that assemble.
        window: Most batches of a rank that wait.
        concurrency: Most reads of a rank in flight.
        memory: Bounds on a rank's blocks.
        store: What the store gives to the whole job.
        costs: What the work takes.
        warm_up: Steps before those that count.
        steps: Steps that count.
        sampled: Most ranks that are simulated. The store gives them their part; each stands for
            as many others, whose slowest answers the barrier waits for as well: see `slowest_of`.
        seed: Of everything that is drawn.
    """

    ranks: int
    ranks_per_host: int
    batch_size: int
    step_seconds: float
    processors: float
    workers: int
    window: int
    concurrency: int
    memory: WorkingSet
    store: StoreRules
    costs: Costs
    warm_up: int
    steps: int
    sampled: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it, over the steps that count.

    Attributes:
        seconds: Of all of them.
        samples_per_second: Of the whole job.
        utilisation: Share of the time that accelerators compute (AU).
        own_share: Share of the time that a rank waits for its own loader, the mean over ranks: what its report says.
            The rest of the stall is the wait for the slowest.
        bytes_per_second: Read by the whole job.
        requests_per_second: Made by the whole job.
        peak_block_bytes: Most bytes of blocks that a rank held.
        first_batch: Seconds until all ranks had their first batch.
        lateness: Seconds that ranks waited for each batch, [steps][ranks simulated].
    """

    seconds: float
    samples_per_second: float
    utilisation: float
    own_share: float
    bytes_per_second: float
    requests_per_second: float
    peak_block_bytes: int
    first_batch: float
    lateness: list[list[float]]


class Plans:
    """The tickets of ranks, kept for other jobs over the same stream."""

    def __init__(self, dataset: SimulatedDataset, stream: Stream, batch_size: int, ranks: int) -> None:
        self.dataset = dataset
        self.stream = stream
        self._batch_size = batch_size
        self._ranks = ranks
        self._planned: dict[int, PlannedRank] = {}

    def of(self, rank: int) -> PlannedRank:
        if rank not in self._planned:
            rules = BatchRules(self._batch_size, rank, self._ranks, drop_last=True)
            self._planned[rank] = PlannedRank(self.stream, rules)
        return self._planned[rank]


def simulate(job: Job, plans: Plans) -> Outcome:
    """Run a job.

    Raises:
        JobFailedError: A read failed for good.
    """
    return _Simulation(job, plans).run()


def sampled_ranks(ranks: int, ranks_per_host: int, most: int) -> list[int]:
    """Ranks of whole hosts that are spread over the job evenly, all if there are no more than `most`."""
    hosts = -(-ranks // ranks_per_host)
    taken = hosts if ranks <= most else max(1, most // ranks_per_host)
    chosen = [number * hosts // taken for number in range(taken)]
    return [rank for host in chosen for rank in range(ranks)[host * ranks_per_host : (host + 1) * ranks_per_host]]


class _Simulation:
    def __init__(self, job: Job, plans: Plans) -> None:
        self._job = job
        self._events = Events()
        generator = np.random.default_rng([job.seed, job.ranks])
        numbers = sampled_ranks(job.ranks, job.ranks_per_host, job.sampled)
        self._scale = job.ranks / len(numbers)
        self._store = SimulatedStore(self._events, _part(job.store, 1 / self._scale), generator)
        slowest = slowest_of(job.store, self._scale, generator)
        dataset = plans.dataset
        rules = RankRules(
            job.workers,
            job.window,
            job.concurrency,
            job.memory,
            dataset.num_bytes // dataset.num_blocks,
            dataset.lengths.item,
        )
        self._ranks: list[SimulatedRank] = []
        processors: dict[int, FairShare] = {}
        for number in numbers:
            host = number // job.ranks_per_host
            if host not in processors:
                processors[host] = FairShare(self._events, job.processors, 1.0)
            self._ranks.append(
                SimulatedRank(
                    self._events, self._store, processors[host], plans.of(number), rules, job.costs, slowest, self._got
                )
            )
        self._step = 0
        self._asked_at = 0.0
        self._made_at: list[float] = []
        self._latest_at = 0.0
        self._lateness: list[list[float]] = []
        self._first_batch = 0.0
        self._counted_from = (0.0, 0, 0)

    def run(self) -> Outcome:
        job = self._job
        for rank in self._ranks:
            rank.start()
        self._ask()
        self._events.run()
        if self._store.given_up:
            raise JobFailedError(f"a read failed for good after {self._events.now:.0f} s, in step {self._step}")
        started, nbytes, requests = self._counted_from
        seconds = self._events.now - started
        counted = self._lateness[job.warm_up :]
        return Outcome(
            seconds=seconds,
            samples_per_second=job.ranks * job.batch_size * job.steps / seconds,
            utilisation=job.step_seconds * job.steps / seconds,
            own_share=sum(map(statistics.fmean, counted)) / seconds,
            bytes_per_second=(self._store.nbytes - nbytes) * self._scale / seconds,
            requests_per_second=(self._store.requests - requests) * self._scale / seconds,
            peak_block_bytes=max(rank.table.peak_bytes for rank in self._ranks),
            first_batch=self._first_batch,
            lateness=counted,
        )

    def _ask(self) -> None:
        if self._step == self._job.warm_up:
            self._counted_from = (self._events.now, self._store.nbytes, self._store.requests)
        self._asked_at = self._events.now
        self._made_at, self._latest_at = [], 0.0
        for rank in self._ranks:
            rank.ask()

    def _got(self, made_at: float, latest_at: float) -> None:
        """A rank has its batch; the step begins when all have."""
        self._made_at.append(made_at)
        self._latest_at = max(self._latest_at, latest_at)
        if len(self._made_at) < len(self._ranks):
            return
        self._lateness.append([max(0.0, made_at - self._asked_at) for made_at in self._made_at])
        if self._step == 0:
            self._first_batch = self._latest_at
        # Later than now, where a rank that is not simulated is the last one.
        self._events.at(max(self._events.now, self._latest_at) + self._job.step_seconds, self._end_step)

    def _end_step(self) -> None:
        self._step += 1
        if self._step < self._job.warm_up + self._job.steps:
            self._ask()
        else:
            self._events.stop()


def _part(store: StoreRules, share: float) -> StoreRules:
    """What a store gives to a share of the ranks."""
    return replace(store, bandwidth=store.bandwidth * share, request_rate=store.request_rate * share)
