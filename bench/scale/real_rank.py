"""A rank of a real job: a process with a loader, a barrier before each step, and sleep in place of computing."""

from __future__ import annotations

import os
from time import perf_counter, sleep
from typing import Any, NamedTuple

import dataflow


class RealJob(NamedTuple):
    """What all ranks are told.

    Attributes:
        url: The dataset.
        environment: Variables that lead to its store.
        ranks: Number of ranks.
        batch_size: Rows of a rank's batch.
        step_seconds: How long a step takes.
        concurrency: Most reads of a rank in flight.
        memory_limit: Bytes of a rank.
        warm_up: Steps before those that count.
        steps: Steps that count.
        seed: Of the order.
    """

    url: str
    environment: dict[str, str]
    ranks: int
    batch_size: int
    step_seconds: float
    concurrency: int
    memory_limit: int
    warm_up: int
    steps: int
    seed: int


class Measured(NamedTuple):
    """What a rank saw in the steps that count.

    Attributes:
        seconds: Of all of them.
        waited: Seconds that it waited for its own loader.
        computed: Seconds that its steps took: more than they should where the machine is busy.
    """

    seconds: float
    waited: float
    computed: float


def run_rank(job: RealJob, rank: int, barrier: Any, answers: Any) -> None:
    """Be a rank, and put what it measured among the answers; its error, where there is one."""
    try:
        answers.put(_measure(job, rank, barrier))
    except BaseException as error:
        barrier.abort()
        answers.put(f"rank {rank}: {error!r}")


def _measure(job: RealJob, rank: int, barrier: Any) -> Measured:
    os.environ.update(job.environment)
    dataset = dataflow.open(job.url)
    dataset.store.concurrency = job.concurrency  # type: ignore[misc]
    loader = dataflow.DataLoader(
        dataset,
        job.batch_size,
        shuffle=True,
        num_workers=1,
        drop_last=True,
        seed=job.seed,
        rank=rank,
        world_size=job.ranks,
        memory_limit=job.memory_limit,
    )
    barrier.wait()
    batches = iter(loader)
    waited = computed = started = 0.0
    for step in range(job.warm_up + job.steps):
        asked = perf_counter()
        if step == job.warm_up:
            started, waited, computed = asked, 0.0, 0.0
        next(batches)
        waited += perf_counter() - asked
        barrier.wait()
        began = perf_counter()
        sleep(job.step_seconds)
        computed += perf_counter() - began
    seconds = perf_counter() - started
    batches.close()
    return Measured(seconds, waited, computed)
