"""Turns a source into a dataset, in as many processes as wanted, and goes on where a killed run has stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from dataflow.dataset import Manifest
from dataflow.dataset.target import shard_name
from dataflow.errors import OptionError
from dataflow.formats import Skipped
from dataflow.sharding.append import GrowingManifest, options_to_append
from dataflow.sharding.job import Shard, ShardJob, Work
from dataflow.sharding.open import open_source
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.plan import Plan
from dataflow.sharding.pool import run_jobs
from dataflow.sharding.source import Source
from dataflow.sharding.target import Target
from dataflow.sharding.unfinished import SOURCE_FOLDER, finish, load_skipped
from dataflow.storage import join_url, open_store

__all__ = ["Done", "shard"]

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


def shard(
    source: str,
    target: str,
    options: ShardOptions | None = None,
    *,
    workers: int | None = None,
    on_progress: Callable[[Done], None] | None = None,
    on_skip: Callable[[Skipped], None] | None = None,
) -> Manifest:
    """Makes a dataset at `target` of what is at `source`. The bytes written depend on the source and the options alone.

    The manifest is written last. What a run leaves that was killed is no dataset; the same call goes on from there,
    and keeps the shards that are finished. With other options, or when the source has changed, it begins anew.

    Args:
        source: Folder of images, folder of shards of any known format, or a dataset.
        target: Folder of the dataset: a new one, or with `append` one that is there.
        options: How it is made.
        workers: Number of processes; None takes one for each CPU, at most 16.
        on_progress: Is told of each shard that is finished, and before the first one that it begins.
        on_skip: Is told of everything that was left out, in an order that is always the same.

    Raises:
        OptionError: The target holds something else, or nothing to append to, or an option makes no sense.
        DatasetError: There is nothing at the source that can be sharded.
        CorruptDataError: Something in the source is damaged, and `on_error` is "raise".
        StorageError: A store could not be read or written.
    """
    options = options or ShardOptions()
    source_store = open_store(source)
    if f"{open_store(target).url}/".startswith(f"{source_store.url}/"):
        raise OptionError(
            f"{open_store(target).url} lies inside {source_store.url}: write the dataset beside its source"
        )
    goal = Target(target, options.append)  # checked before hours of reading
    if goal.base is not None:
        options = options_to_append(goal.base, options)
    try:
        found = open_source(source, options, join_url(goal.store.url, SOURCE_FOLDER))
        found.properties["shuffle_seed"] = options.seed
        plan = Plan.of(found, options, goal.base)
        if goal.written is not None and goal.unfinished is not None:
            if plan.identity == goal.unfinished.identity:
                return _tidied(goal, found, plan, on_skip)
            goal.forget()
            plan = Plan.of(found, options, goal.base)
        manifest = GrowingManifest(goal.base, plan.schema, found.properties)
        jobs = _jobs(plan, goal.first_shard, goal.begin(plan.identity))
        workers = min(workers or min(_MOST_WORKERS, len(os.sched_getaffinity(0))), plan.num_shards)
        work = Work(
            target=goal.store.url,
            reader=found.reader,
            steps=options.steps,
            schema=plan.schema,
            rows_per_block=plan.rows_per_block,
            most_block_bytes=2 * plan.block_bytes,
            seed=options.seed if (found.item_rows > 1).any() else None,
            keep_skipping=options.on_error == "skip",
            threads=max(2, source_store.concurrency // workers),
        )
        _tell(on_skip, found.skipped)
        with closing(run_jobs(work, jobs, workers)) as shards:
            for made in _in_order(_watched(shards, plan, found, on_progress), goal.first_shard):
                _tell(on_skip, made.skipped)
                manifest.add(shard_name(made.number), made.size, made.blocks)
        if not manifest.num_new_rows:
            raise OptionError(f"no row was written to {goal.store.url}: every one was left out")
        manifest.write(goal.store)
    except BaseException:
        goal.leave()
        raise
    finish(goal.store)
    return Manifest.open(goal.store.url)


def _tidied(goal: Target, source: Source, plan: Plan, on_skip: Callable[[Skipped], None] | None) -> Manifest:
    """What is left to do for a run that was killed after it had written its manifest."""
    _tell(on_skip, source.skipped)
    for number in range(goal.first_shard, goal.first_shard + plan.num_shards):
        _tell(on_skip, load_skipped(goal.store, number))
    finish(goal.store)
    return Manifest.open(goal.store.url)


def _jobs(plan: Plan, first: int, finished: set[str]) -> Iterator[ShardJob]:
    for shard in range(plan.num_shards):
        rows = int(plan.bounds[shard + 1] - plan.bounds[shard])
        yield ShardJob(first + shard, plan.part(shard), rows, shard_name(first + shard) in finished)


def _watched(
    shards: Iterator[Shard], plan: Plan, source: Source, on_progress: Callable[[Done], None] | None
) -> Iterator[Shard]:
    def tell(rows: int, num_bytes: int) -> None:
        if on_progress is not None:
            on_progress(Done(rows, num_bytes, plan.num_rows, source.unit))

    tell(0, 0)
    for made in shards:
        tell(made.rows, made.size)
        yield made


def _in_order(shards: Iterable[Shard], first: int) -> Iterator[Shard]:
    """Shards by number, from shards as they are finished."""
    waiting: dict[int, Shard] = {}
    for made in shards:
        waiting[made.number] = made
        while first in waiting:
            yield waiting.pop(first)
            first += 1


def _tell(on_skip: Callable[[Skipped], None] | None, skipped: Iterable[Skipped]) -> None:
    if on_skip is not None:
        for item in skipped:
            on_skip(item)
