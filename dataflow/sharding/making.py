"""Makes one dataset by its plan, in as many processes as wanted, and goes on where a killed run has stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from dataflow.dataset.target import shard_name
from dataflow.errors import OptionError
from dataflow.formats import Skipped
from dataflow.sharding.append import GrowingManifest
from dataflow.sharding.job import Shard, ShardJob, Work
from dataflow.sharding.open import open_sources
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.plan import Plan
from dataflow.sharding.pool import run_jobs
from dataflow.sharding.scratch import scratch_folder
from dataflow.sharding.source import Source
from dataflow.sharding.target import Target
from dataflow.sharding.unfinished import load_skipped

__all__ = ["Done", "make_plan", "opened_source", "tell", "write_dataset"]

_MOST_WORKERS = 16


@dataclass(frozen=True, slots=True)
class Done:
    """What was done since the last time.

    Attributes:
        rows: Rows that are in finished shards now, or were left out.
        num_bytes: Bytes of these shards.
        all_rows: Rows in all.
        unit: What rows are called, in the plural.
    """

    rows: int
    num_bytes: int
    all_rows: int
    unit: str


@contextmanager
def opened_source(source: str | Sequence[str], options: ShardOptions, target: str) -> Iterator[Source]:
    """Opens what is to be made into a dataset; copies that this takes are removed at the end."""
    with scratch_folder() as folder:
        opened = open_sources([source] if isinstance(source, str) else source, options, folder, target)
        opened.properties["shuffle_seed"] = options.seed
        schema = opened.schema
        for step in options.steps:
            opened.properties |= step.properties(schema, opened.properties)
            schema = step.schema(schema)
        yield opened


def make_plan(goal: Target, source: Source, options: ShardOptions) -> Plan:
    """The plan of what is made at a target. A dataset that another plan has made there is left alone."""
    plan = Plan.of(source, options, goal.base)
    if goal.written is not None and goal.unfinished is not None and plan.identity != goal.unfinished.identity:
        goal.forget()
        plan = Plan.of(source, options, goal.base)
    return plan


def write_dataset(
    goal: Target,
    source: Source,
    plan: Plan,
    options: ShardOptions,
    workers: int | None,
    on_progress: Callable[[Done], None] | None,
    on_skip: Callable[[Skipped], None] | None,
) -> None:
    """Makes a dataset, but for taking away the notes of what was to be made."""
    if goal.written is not None:  # by a run that was killed after that
        for number in range(goal.first_shard, goal.first_shard + plan.num_shards):
            tell(on_skip, load_skipped(goal.store, number))
        return
    manifest = GrowingManifest(goal.base, plan.schema, source.properties)
    jobs = _jobs(plan, goal.first_shard, goal.begin(plan.identity))
    workers = min(workers or min(_MOST_WORKERS, len(os.sched_getaffinity(0))), plan.num_shards)
    work = Work(
        target=goal.store.url,
        reader=source.reader,
        steps=plan.steps,
        schema=plan.schema,
        rows_per_block=plan.rows_per_block,
        most_block_bytes=2 * plan.block_bytes,
        compression=plan.compression,
        seed=options.seed if (source.item_rows > 1).any() else None,
        skip=options.on_error == "skip",
        threads=max(2, source.concurrency // workers),
    )
    with closing(run_jobs(work, jobs, workers)) as shards:
        for made in _in_order(_watched(shards, plan, source, on_progress), goal.first_shard):
            tell(on_skip, made.skipped)
            manifest.add(shard_name(made.number), made.size, made.blocks)
    if not manifest.num_new_rows:
        raise OptionError(f"no row was written to {goal.store.url}: every one was left out")
    manifest.write(goal.store)


def _jobs(plan: Plan, first: int, finished: set[str]) -> Iterator[ShardJob]:
    for shard in range(plan.num_shards):
        rows = int(plan.bounds[shard + 1] - plan.bounds[shard])
        yield ShardJob(first + shard, plan.part(shard), rows, shard_name(first + shard) in finished)


def _watched(
    shards: Iterator[Shard], plan: Plan, source: Source, on_progress: Callable[[Done], None] | None
) -> Iterator[Shard]:
    def report(rows: int, num_bytes: int) -> None:
        if on_progress is not None:
            on_progress(Done(rows, num_bytes, plan.num_rows, source.unit))

    report(0, 0)
    for made in shards:
        report(made.rows, made.size)
        yield made


def _in_order(shards: Iterable[Shard], first: int) -> Iterator[Shard]:
    """Shards by number, from shards as they are finished."""
    waiting: dict[int, Shard] = {}
    for made in shards:
        waiting[made.number] = made
        while first in waiting:
            yield waiting.pop(first)
            first += 1


def tell(on_skip: Callable[[Skipped], None] | None, skipped: Iterable[Skipped]) -> None:
    """Hands on what was left out."""
    if on_skip is not None:
        for item in skipped:
            on_skip(item)
