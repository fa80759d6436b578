"""Makes shards: each is a function of its job and of what all jobs share, whatever process makes it and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dataflow.dataset.shard_file import ShardFile
from dataflow.dataset.target import shard_name
from dataflow.errors import CorruptDataError, StorageNotFoundError
from dataflow.formats import Block, Skipped, format_named
from dataflow.sharding.compression import Compression
from dataflow.sharding.cut import cut_blocks
from dataflow.sharding.order import shuffle_rows
from dataflow.sharding.read_ahead import read_ahead
from dataflow.sharding.source import Reader
from dataflow.sharding.steps import Step, read_rows
from dataflow.sharding.unfinished import load_skipped, save_skipped
from dataflow.storage import Store, open_store

__all__ = ["Shard", "ShardJob", "Work", "make_shards"]


@dataclass(frozen=True, slots=True)
class Work:
    """What all jobs share; sent to each process once.

    Attributes:
        target: URL of the new dataset.
        reader: Reads the source.
        steps: Change rows.
        schema: Columns after the steps.
        rows_per_block: Rows of a block.
        most_block_bytes: A block is smaller, unless one row is not.
        compression: What blocks are compressed with.
        seed: Names the order of rows whose items have many; None keeps theirs.
        skip: Whether bad rows are left out; finished shards that lack some are good then.
        threads: Threads that read.
    """

    target: str
    reader: Reader
    steps: tuple[Step, ...]
    schema: pa.Schema
    rows_per_block: int
    most_block_bytes: int
    compression: Compression | None
    seed: int | None
    skip: bool
    threads: int


@dataclass(frozen=True, slots=True)
class ShardJob:
    """One shard to make.

    Attributes:
        number: Its number in the dataset.
        part: The items that it is made of, as the reader takes them.
        rows: Number of rows in them.
        finished: Whether an earlier run has made it.
    """

    number: int
    part: Any
    rows: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard that was made.

    Attributes:
        number: Its number in the dataset.
        size: Its bytes.
        blocks: Its blocks.
        rows: Number of rows that the job had, with those that were left out.
        skipped: What was left out.
    """

    number: int
    size: int
    blocks: list[Block]
    rows: int
    skipped: list[Skipped]


def make_shards(work: Work, jobs: Iterable[ShardJob]) -> Iterator[Shard]:
    """Makes shards, in order. Each is brought to its place while the next one is made, so it is yielded after that.

    Raises:
        CorruptDataError: There is something bad, and bad things are not to be left out.
        StorageError: A store could not be read or written.
    """
    store = open_store(work.target)
    publishing: Future[Shard] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="dataflow-publish") as publisher:
        for job in jobs:
            made: Future[Shard] | None = None
            failure: Exception | None = None
            try:
                shard = _finished(work, store, job) if job.finished else None
                if shard is None:
                    made = publisher.submit(_publish, store, job, *_write(work, store, job))
            except Exception as error:
                failure = error
            if publishing is not None:
                yield publishing.result()
            if failure is not None:
                raise failure
            if shard is not None:
                yield shard
            publishing = made
        if publishing is not None:
            yield publishing.result()


def _finished(work: Work, store: Store, job: ShardJob) -> Shard | None:
    """A shard that an earlier run has made, None if it is not good."""
    skipped = load_skipped(store, job.number)
    if skipped and not work.skip:
        return None
    name = shard_name(job.number)
    try:
        index = format_named("arrow").index(store, name, 0)
    except (CorruptDataError, StorageNotFoundError):
        return None
    if not index.schema.equals(work.schema, check_metadata=True):
        return None
    return Shard(job.number, store.size(name), index.blocks, job.rows, skipped)


def _write(work: Work, store: Store, job: ShardJob) -> tuple[ShardFile, list[Skipped]]:
    skipped: list[Skipped] = []
    file = ShardFile(store, shard_name(job.number), work.schema, work.compression)
    try:
        batches = _batches(work, job, skipped)
        if work.seed is not None:
            batches = shuffle_rows(batches, work.seed, job.number)
        for block in cut_blocks(batches, work.rows_per_block, work.most_block_bytes):
            file.write(block)
    except BaseException:
        file.discard()
        raise
    return file, skipped


def _batches(work: Work, job: ShardJob, skipped: list[Skipped]) -> Iterator[pa.RecordBatch]:
    def read(place: Any) -> tuple[pa.RecordBatch, list[Skipped]]:
        return read_rows(work.reader, place, work.steps, work.skip)

    for batch, bad in read_ahead(work.reader.chunks(job.part, work.rows_per_block), read, work.threads):
        skipped += bad
        yield batch


def _publish(store: Store, job: ShardJob, file: ShardFile, skipped: list[Skipped]) -> Shard:
    try:
        save_skipped(store, job.number, skipped)
    except BaseException:
        file.discard()
        raise
    entry = file.publish()
    return Shard(job.number, entry.size, file.blocks, job.rows, skipped)
