"""The verdict: which one thing holds a pipeline, and what would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dataflow.measure.accelerator import Accelerator
from dataflow.measure.level import Level
from dataflow.storage.sizes import bytes_text

__all__ = ["Cause", "Evidence", "MemoryTrial", "Verdict", "decide", "whole_pipeline"]

# What is at most so much faster is hardly faster.
_NEAR = 1.25
_MOSTLY = 0.6
_BUSY = 0.6
# A thread that computes all the time, and waits for the lock now and then.
_ONE = 0.7
_KEEPS_UP = 1.05


class Cause(StrEnum):
    """What holds a pipeline."""

    BANDWIDTH = "storage bandwidth"
    LATENCY = "storage latency"
    MEMORY = "memory limit"
    PROCESSOR = "processor"
    LOCK = "interpreter lock"
    WAITING = "waiting functions"
    DEVICE = "copies to the device"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What holds a pipeline.

    Attributes:
        cause: What it is.
        stage: The level that it shows in.
        sentence: That, with the figures.
        remedy: What would help.
    """

    cause: Cause
    stage: str
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class MemoryTrial:
    """Fetching once more, with all the memory that it can use.

    Attributes:
        limit: Bytes that blocks may take.
        enough: Bytes that they took in the trial.
        nbytes: Bytes a second that it gave.
    """

    limit: int
    enough: int
    nbytes: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured.

    Attributes:
        levels: In the order of the pipeline, from "storage" on; "accelerator" last, if at all.
        connections: Bytes a second that the bare client got with a number of connections.
        concurrency: Reads that the loader may have in flight.
        workers: Threads that assemble.
        cpus: Processors that this process may use.
        demand: Stored rows a second that the accelerator takes at best; None without one.
        accelerator: The emulated one.
        trial: Fetching with more memory, where the limit may be what holds.
    """

    levels: Sequence[Level]
    connections: Mapping[int, float]
    concurrency: int
    workers: int
    cpus: int
    demand: float | None
    accelerator: Accelerator | None
    trial: MemoryTrial | None

    def level(self, name: str) -> Level | None:
        """The level of that name."""
        return next((level for level in self.levels if level.name == name), None)


def whole_pipeline(levels: Sequence[Level]) -> Level:
    """The last level before an accelerator: all of the pipeline, with nobody to wait for."""
    return [level for level in levels if level.name != "accelerator"][-1]


def _holding_level(levels: Sequence[Level]) -> Level:
    """The level that holds the whole pipeline.

    Reads go on beside the rest: they hold it if they are hardly faster than all of it, or if it waits for them. The
    stages after them share the processors, so that it is the one that takes most of the time of a row.
    """
    whole = whole_pipeline(levels)
    storage, fetch, *others = [level for level in levels if level.name != "accelerator"]
    waits_for_reads = whole.waited_for["fetch"] > _MOSTLY * sum(whole.waited_for.values())
    if storage.nbytes <= _NEAR * whole.nbytes or (waits_for_reads and storage.nbytes <= _NEAR * fetch.nbytes):
        return storage
    if fetch.nbytes <= _NEAR * whole.nbytes or waits_for_reads:
        return fetch
    # Other programs make a level slower than the next, but hardly change the processor time of a row.
    computes = whole.usage.computes(_ONE)
    cost = {level.name: (level.usage.cores if computes else 1.0) / level.nbytes for level in (fetch, *others)}
    before = dict(zip((level.name for level in others), cost.values(), strict=False))
    return max(others, key=lambda level: cost[level.name] - before[level.name])


def decide(evidence: Evidence) -> Verdict:
    """What holds the pipeline, or that the consumer does."""
    whole, storage = whole_pipeline(evidence.levels), evidence.levels[0]
    consumer = evidence.level("accelerator")
    if consumer is not None and evidence.demand is not None and whole.rows >= _KEEPS_UP * evidence.demand:
        return _consumer(evidence, consumer, whole)
    holding = _holding_level(evidence.levels)
    cause, reason, remedy = _cause(evidence, holding)
    used = (
        f"storage gives {bytes_text(storage.nbytes)}/s ({_count(_enough(evidence), 'connection')}); "
        f"you use {bytes_text(whole.nbytes)}/s ({whole.nbytes / storage.nbytes:.0%}); "
    )
    starving = ""
    if consumer is not None and consumer.utilisation is not None:
        starving = f"; the accelerator computes {consumer.utilisation:.0%} of the time"
    return Verdict(cause, holding.name, used + reason + starving, remedy)


def _consumer(evidence: Evidence, consumer: Level, whole: Level) -> Verdict:
    assert evidence.accelerator is not None
    storage = evidence.levels[0]
    return Verdict(
        Cause.CONSUMER,
        "accelerator",
        f"storage gives {bytes_text(storage.nbytes)}/s; the loader gives {bytes_text(whole.nbytes)}/s, "
        f"{whole.nbytes / consumer.nbytes:.1f} times what {evidence.accelerator.name} takes "
        f"({bytes_text(consumer.nbytes)}/s); the consumer holds you, and computes "
        f"{consumer.utilisation or 0:.0%} of the time",
        "nothing in the input pipeline: the training step is what is left to make faster",
    )


def _cause(evidence: Evidence, holding: Level) -> tuple[Cause, str, str]:
    if holding.name == "storage":
        return _storage(evidence, holding)
    if holding.name == "fetch":
        return _fetch(evidence, holding)
    if holding.name == "transfer":
        return (
            Cause.DEVICE,
            "copies to the device hold you",
            "fewer and smaller tensors: uint8 in place of floats, converted on the device",
        )
    return _computing(evidence, holding)


def _storage(evidence: Evidence, holding: Level) -> tuple[Cause, str, str]:
    most = max(evidence.connections)
    before = [rate for connections, rate in evidence.connections.items() if connections <= most // 2]
    if before and evidence.connections[most] > _NEAR * max(before):
        return (
            Cause.LATENCY,
            f"storage latency holds you: even {most} connections are not enough to fill it",
            "larger blocks (`dataflow shard --block-mib 8`), or storage that is nearer",
        )
    if holding.usage.computes(_BUSY * evidence.cpus):
        return Cause.PROCESSOR, f"reading alone holds you: {_cores(evidence, holding)}", "more processors"
    return _BANDWIDTH


def _fetch(evidence: Evidence, holding: Level) -> tuple[Cause, str, str]:
    storage = evidence.levels[0]
    # Where more than the most that were tried are allowed, the last ones brought nothing.
    allowed = evidence.connections.get(evidence.concurrency, storage.nbytes)
    if allowed <= _NEAR * holding.nbytes and storage.nbytes > _NEAR * allowed:
        enough = _enough(evidence)
        return (
            Cause.LATENCY,
            f"storage latency holds you: {_count(evidence.concurrency, 'connection')} cannot fill it, {enough} would",
            f"raise `dataset.store.concurrency` to {enough}, or larger blocks (`dataflow shard --block-mib 8`)",
        )
    trial = evidence.trial
    if trial is not None and trial.nbytes > _NEAR * holding.nbytes:
        return (
            Cause.MEMORY,
            f"the memory limit holds you: with {bytes_text(trial.enough)} for blocks in place of "
            f"{bytes_text(trial.limit)}, fetching gives {bytes_text(trial.nbytes)}/s",
            "raise `memory_limit`, lower `batch_size` or `prefetch_factor`, or shard with smaller blocks",
        )
    cause, reason, remedy = _computing(evidence, holding)
    if cause is not Cause.WAITING:
        return cause, reason, remedy
    if holding.in_flight >= _enough(evidence):
        return _BANDWIDTH
    return (
        Cause.LATENCY,
        f"storage latency holds you: {holding.in_flight:.0f} reads were in flight on average",
        "larger blocks (`dataflow shard --block-mib 8`), or larger batches, so that more reads are known beforehand",
    )


def _computing(evidence: Evidence, holding: Level) -> tuple[Cause, str, str]:
    usage, cores = holding.usage, _cores(evidence, holding)
    if usage.lock_held and usage.computes(_ONE) and evidence.cpus > 1:
        return (
            Cause.LOCK,
            f"{holding.name} holds you: Python's interpreter lock, {cores}",
            "`map(fn, processes=N)`, or functions that release the lock, such as NumPy's and `decode()`",
        )
    if usage.computes(_BUSY * max(1, min(evidence.workers, evidence.cpus))):
        few = evidence.workers < evidence.cpus
        return (
            Cause.PROCESSOR,
            f"{holding.name} holds you: {cores}" + (f", {_count(evidence.workers, 'worker')}" if few else ""),
            "more `num_workers`" if few else _LIGHTER[holding.name],
        )
    return (
        Cause.WAITING,
        f"{holding.name} holds you: it waits, and does not compute, with {_count(evidence.workers, 'worker')}: {cores}",
        "more `num_workers`: your functions wait for something else, such as the network",
    )


_BANDWIDTH = (
    Cause.BANDWIDTH,
    "storage bandwidth holds you: more connections bring no more",
    "faster storage, a cache on a local disk (`cache=`), or smaller data (`dataflow shard --transcode`)",
)
_LIGHTER = {
    "fetch": "checksums and copies take the time: more processors, or `dataflow.open(verify=0.1)`",
    "read": "shards without compression, or more processors",
    "decode": "smaller images (`dataflow shard --transcode`), lighter functions, or more processors",
    "batch": "fewer columns (`select`), or more processors",
}


def _enough(evidence: Evidence) -> int:
    """The fewest connections that get nearly all that the storage gives."""
    most = max(evidence.connections.values())
    return min(number for number, rate in evidence.connections.items() if rate >= 0.9 * most)


def _cores(evidence: Evidence, holding: Level) -> str:
    usage = holding.usage
    text = f"{usage.cores:.1f} of {evidence.cpus} cores busy"
    # Also where other programs leave it less than it wants.
    if min(usage.wanted, evidence.cpus) > usage.cores + 0.5:
        text += " (other programs take the rest)"
    return text


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
