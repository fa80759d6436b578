"""Turns a source into a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dataflow.dataset import Manifest
from dataflow.formats import Skipped
from dataflow.sharding.append import options_to_append
from dataflow.sharding.making import Done, make_plan, opened_source, tell, write_dataset
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.target import Target
from dataflow.sharding.unfinished import finish

__all__ = ["shard"]


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
        with opened_source(source, options, goal.store.url) as found:
            plan = make_plan(goal, found, options)
            tell(on_skip, found.skipped)
            write_dataset(goal, found, plan, options, workers, on_progress, on_skip)
    except BaseException:
        goal.leave()
        raise
    finish(goal.store)
    return Manifest.open(goal.store.url)
