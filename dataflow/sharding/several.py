"""Turns a source into several datasets: splits by the keys of its rows, or one of each of its folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from dataflow.dataset import Manifest
from dataflow.errors import OptionError
from dataflow.formats import Skipped
from dataflow.sharding.append import options_to_append
from dataflow.sharding.making import Done, make_plan, opened_source, tell, write_dataset
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.plan import Plan
from dataflow.sharding.source import Source
from dataflow.sharding.split import split_parts
from dataflow.sharding.split_folders import find_split_folders
from dataflow.sharding.target import Target
from dataflow.sharding.unfinished import finish
from dataflow.storage import join_url, open_store

__all__ = ["shard_folders", "shard_splits"]


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
        with opened_source(source, options, open_store(target).url) as found:
            plans: dict[str, Plan] = {}
            for name, part in parts.items():
                with _naming(f"split {name!r} ({shares})"):
                    plans[name] = make_plan(goals[name], found, replace(options, part=part))
            tell(on_skip, found.skipped)
            for name, plan in plans.items():
                with _naming(f"split {name!r} ({shares})"):
                    write_dataset(goals[name], found, plan, options, workers, on_progress, on_skip)
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
        tell(on_skip, splits.skipped)
        found: dict[str, tuple[Source, Plan]] = {}
        for name, goal in goals.items():
            with _naming(f"folder {name!r}"):
                opened = stack.enter_context(opened_source(join_url(splits.url, name), options, open_store(target).url))
                found[name] = opened, make_plan(goal, opened, options)
        for name, (opened, plan) in found.items():
            below = None if on_skip is None else partial(_tell_below, on_skip, name)
            tell(below, opened.skipped)
            with _naming(f"folder {name!r}"):
                write_dataset(goals[name], opened, plan, options, workers, on_progress, below)
    return {name: Manifest.open(goal.store.url) for name, goal in goals.items()}


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
