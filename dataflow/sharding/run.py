"""Turns a source into a dataset, in as many processes as wanted, and goes on where a killed run has stopped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from dataflow.dataset import Manifest
from dataflow.dataset.target import shard_name
from dataflow.errors import OptionError
from dataflow.formats import Skipped
from dataflow.sharding.append import GrowingManifest, options_to_append
from dataflow.sharding.job import Shard, ShardJob, Work
from dataflow.sharding.open import open_sources
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.plan import Plan
from dataflow.sharding.pool import run_jobs
from dataflow.sharding.scratch import scratch_folder
from dataflow.sharding.source import Source
from dataflow.sharding.split import split_parts
from dataflow.sharding.split_folders import find_split_folders
from dataflow.sharding.target import Target
from dataflow.sharding.unfinished import finish, load_skipped
from dataflow.storage import join_url, open_store

__all__ = ["Done", "shard", "shard_folders", "shard_splits"]

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
    source: str | Sequence[str],
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
        source: Folders of images or of shards of any known format, files, patterns such as `data/**/*.jsonl.zst`, and
            datasets: one of them, or several whose rows have the same columns.
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
    goal = Target(target, options.append)  # checked before hours of reading
    if goal.base is not None:
        options = options_to_append(goal.base, options)
    try:
        with _opened(source, options, goal.store.url) as found:
            plan = _plan(goal, found, options)
            _tell(on_skip, found.skipped)
            _make(goal, found, plan, options, workers, on_progress, on_skip)
    except BaseException:
        goal.leave()
        raise
    finish(goal.store)
    return Manifest.open(goal.store.url)


def shard_splits(
    source: str | Sequence[str],
    target: str,
    shares: Mapping[str, float | str] | Sequence[float | str],
    options: ShardOptions | None = None,
    *,
    by: str = "key",
    workers: int | None = None,
    on_progress: Callable[[Done], None] | None = None,
    on_skip: Callable[[Skipped], None] | None = None,
) -> dict[str, Manifest]:
    """Makes several datasets of a source, each in a folder of its own below `target`, and no row in two of them.

    A hash of the row's key says in which split it is, whatever else there is, so that it stays there when rows are
    added. What the keys of a folder of images say is known before any image is read; other rows are read once for each
    split.

    Args:
        source: See `shard`.
        target: Folder of these folders.
        shares: The share of each split by its name, such as `{"train": 0.9, "val": 0.1}`; or shares alone, of train,
            val, test. Where they are less than 1 together, the other rows are in none.
        options: How the datasets are made.
        by: Column of the key, as it is called in the source: text, bytes or whole numbers. Rows with equal keys are in
            the same split.
        workers: See `shard`.
        on_progress: See `shard`; is told anew for each split.
        on_skip: See `shard`.

    Returns:
        The datasets by name.

    Raises:
        OptionError: As for `shard`; or shares that make no sense, or a split that would be empty.
        DatasetError: As for `shard`.
        CorruptDataError: As for `shard`; or the key of a row is null.
        StorageError: As for `shard`.
    """
    options = options or ShardOptions()
    parts = split_parts(shares, by)
    with _goals(target, parts, options) as goals:
        first = next(iter(goals.values()))
        if first.base is not None:
            options = options_to_append(first.base, options)
        with _opened(source, options, open_store(target).url) as found:
            plans: dict[str, Plan] = {}
            for name, part in parts.items():
                with _naming(f"split {name!r} ({shares})"):
                    plans[name] = _plan(goals[name], found, replace(options, part=part))
            _tell(on_skip, found.skipped)
            for name, plan in plans.items():
                with _naming(f"split {name!r} ({shares})"):
                    _make(goals[name], found, plan, options, workers, on_progress, on_skip)
    return {name: Manifest.open(goal.store.url) for name, goal in goals.items()}


def shard_folders(
    source: str,
    target: str,
    options: ShardOptions | None = None,
    *,
    workers: int | None = None,
    on_progress: Callable[[Done], None] | None = None,
    on_skip: Callable[[Skipped], None] | None = None,
) -> dict[str, Manifest]:
    """Makes a dataset of each folder in a source, such as train and val, in folders of the same names below `target`.

    Folders of classes in them have the same numbers in all: those of the sorted names of all.

    Args:
        source: The folder of these folders.
        target: See `shard_splits`.
        options: How the datasets are made.
        workers: See `shard`.
        on_progress: See `shard`; is told anew for each dataset.
        on_skip: See `shard`; names begin with the folder's.

    Returns:
        The datasets by name.

    Raises:
        OptionError: As for `shard`.
        DatasetError: As for `shard`; or there are no folders.
        CorruptDataError: As for `shard`.
        StorageError: As for `shard`.
    """
    options = options or ShardOptions()
    splits = find_split_folders(source)
    with _goals(target, splits.names, options) as goals, ExitStack() as stack:
        first = next(iter(goals.values()))
        if first.base is not None:
            options = options_to_append(first.base, options)
        elif options.classes is None and splits.classes:
            options = replace(options, classes=tuple(splits.classes))
        _tell(on_skip, splits.skipped)
        found: dict[str, tuple[Source, Plan]] = {}
        for name, goal in goals.items():
            with _naming(f"folder {name!r}"):
                opened = stack.enter_context(_opened(join_url(splits.url, name), options, open_store(target).url))
                found[name] = opened, _plan(goal, opened, options)
        for name, (opened, plan) in found.items():
            tell = None if on_skip is None else partial(_tell_below, on_skip, name)
            _tell(tell, opened.skipped)
            with _naming(f"folder {name!r}"):
                _make(goals[name], opened, plan, options, workers, on_progress, tell)
    return {name: Manifest.open(goal.store.url) for name, goal in goals.items()}


@contextmanager
def _opened(source: str | Sequence[str], options: ShardOptions, target: str) -> Iterator[Source]:
    with scratch_folder() as folder:
        yield open_sources([source] if isinstance(source, str) else source, options, folder, target)


@contextmanager
def _goals(target: str, names: Iterable[str], options: ShardOptions) -> Iterator[dict[str, Target]]:
    """Folders for several datasets. As long as one is missing all keep notes, so that the next run keeps the others."""
    goals = {name: Target(join_url(open_store(target).url, name), options.append) for name in names}
    try:
        yield goals
    except BaseException:
        for goal in goals.values():
            goal.leave()
        raise
    for goal in goals.values():
        finish(goal.store)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except OptionError as error:
        raise OptionError(f"{what}: {error}") from error


def _tell_below(on_skip: Callable[[Skipped], None], folder: str, item: Skipped) -> None:
    on_skip(replace(item, name=f"{folder}: {item.name}"))


def _plan(goal: Target, source: Source, options: ShardOptions) -> Plan:
    source.properties["shuffle_seed"] = options.seed
    for step in options.steps:
        source.properties |= step.properties
    plan = Plan.of(source, options, goal.base)
    if goal.written is not None and goal.unfinished is not None and plan.identity != goal.unfinished.identity:
        goal.forget()
        plan = Plan.of(source, options, goal.base)
    return plan


def _make(
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
            _tell(on_skip, load_skipped(goal.store, number))
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
        keep_skipping=options.on_error == "skip",
        threads=max(2, source.concurrency // workers),
    )
    with closing(run_jobs(work, jobs, workers)) as shards:
        for made in _in_order(_watched(shards, plan, source, on_progress), goal.first_shard):
            _tell(on_skip, made.skipped)
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
