"""From what a simulation is told to a job of some number of GPUs, and to the figures of its table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from bench.scale.costs import Costs
from bench.scale.dataset import SimulatedDataset
from bench.scale.inputs import Assumed, Workload
from bench.scale.job import Job, Plans, simulate
from dataflow.sampling.lanes import default_lanes

_LANES_PER_RANK = 4  # fewer are warned about
_MEMORY_SHARE = 0.5  # of a host, as the loader's default


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is simulated.

    Attributes:
        warm_up: Steps before those that count.
        steps: Steps that count.
        sampled: Most ranks that are simulated one by one.
        seed: Of all that is drawn, and of the order.
    """

    warm_up: int = 100
    steps: int = 100
    sampled: int = 32
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a job of some GPUs comes to.

    Attributes:
        gpus: Ranks.
        hedged: Whether slow requests are made twice.
        lanes: Of the stream.
        utilisation: Share of the time that GPUs compute (AU).
        own_share: Share of the time that a rank waits for its own loader, the mean over ranks.
        reads_per_byte: Bytes read in an epoch over bytes of the dataset.
        requests_per_second: Of the whole job.
        gb_per_second: Read by the whole job.
        samples_per_second: Of the whole job.
        host_gib: Memory of a host: processes, blocks at their peak, and batches that wait.
        first_batch: Seconds from the start to the first step.
    """

    gpus: int
    hedged: bool
    lanes: int
    utilisation: float
    own_share: float
    reads_per_byte: float
    requests_per_second: float
    gb_per_second: float
    samples_per_second: float
    host_gib: float
    first_batch: float


class Scenario:
    """A workload, simulated for any number of GPUs and any assumptions; plans are kept from one to the next."""

    def __init__(self, workload: Workload, costs: Costs, effort: Effort) -> None:
        self.workload = workload
        self.costs = costs
        self.effort = effort
        sample = workload.sample_kb * 1e3
        self.dataset = SimulatedDataset.uniform(workload.dataset_tb * 1e12, sample, workload.block_mib * (1 << 20))
        self._plans = lru_cache(maxsize=2)(self._new_plans)

    def lanes(self, gpus: int) -> int:
        """A multiple of the ranks, as is advised for large jobs."""
        usual = default_lanes(self.dataset.num_blocks, int(self.dataset.lengths[0]))
        return gpus * max(_LANES_PER_RANK, -(-usual // gpus))

    def figures(
        self,
        gpus: int,
        assumed: Assumed,
        hedge_percentile: float | None,
        sampled: int | None = None,
        seed: int | None = None,
    ) -> Figures:
        """Simulate one job.

        Args:
            gpus: Ranks.
            assumed: Of the store and of hosts.
            hedge_percentile: After which requests are made again; None for never.
            sampled: Most ranks that are simulated, in place of the usual effort.
            seed: Of what is drawn, likewise; the order stays.

        Raises:
            JobFailedError: A read failed for good.
            OptionError: A host has too little memory.
        """
        workload, effort, lanes = self.workload, self.effort, self.lanes(gpus)
        per_host = min(gpus, workload.gpus_per_host)
        workers = max(1, int(assumed.cores_per_gpu))
        window = workers * workload.prefetch_factor
        memory = self.dataset.memory(
            lanes=lanes,
            ranks=gpus,
            batch_size=workload.batch_size,
            window=window,
            concurrency=workload.concurrency,
            limit=int(assumed.host_memory_gib * (1 << 30) * _MEMORY_SHARE / workload.gpus_per_host),
            decoded=int(workload.decoded_kb * 1e3),
        )
        plans = self._plans(gpus)
        job = Job(
            ranks=gpus,
            ranks_per_host=per_host,
            batch_size=workload.batch_size,
            step_seconds=assumed.step_ms / 1e3,
            processors=assumed.cores_per_gpu * per_host,
            workers=workers,
            window=window,
            concurrency=workload.concurrency,
            memory=memory,
            store=assumed.store(-(-gpus // per_host), hedge_percentile),
            costs=self.costs,
            warm_up=effort.warm_up,
            steps=effort.steps,
            sampled=sampled or effort.sampled,
            seed=effort.seed if seed is None else seed,
        )
        outcome = simulate(job, plans)
        rank_bytes = self.costs.process_mb * 1e6 + outcome.peak_block_bytes + memory.batches
        return Figures(
            gpus=gpus,
            hedged=hedge_percentile is not None,
            lanes=lanes,
            utilisation=outcome.utilisation,
            own_share=outcome.own_share,
            reads_per_byte=self.dataset.reads_per_byte(plans.stream),
            requests_per_second=outcome.requests_per_second,
            gb_per_second=outcome.bytes_per_second / 1e9,
            samples_per_second=outcome.samples_per_second,
            host_gib=rank_bytes * per_host / (1 << 30),
            first_batch=outcome.first_batch,
        )

    def _new_plans(self, gpus: int) -> Plans:
        stream = self.dataset.stream(self.lanes(gpus), self.effort.seed)
        return Plans(self.dataset, stream, self.workload.batch_size, gpus)
