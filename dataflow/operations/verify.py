"""Looks at every byte of a dataset, and lists all that is wrong."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dataflow.codecs.pillow_guard import load_pillow
from dataflow.dataset import Manifest, describe_block
from dataflow.dataset.manifest_location import find_manifest
from dataflow.errors import CorruptDataError, DatasetError, StorageError, StorageNotFoundError
from dataflow.formats import format_named
from dataflow.operations.block_check import check_block
from dataflow.operations.block_tap import BlockTap
from dataflow.operations.blocks import OnProgress
from dataflow.operations.column_types import is_binary
from dataflow.operations.fault import Fault, Kind
from dataflow.storage import Buffer, Store, join_url, open_store

__all__ = ["Verification", "verify"]

# Each shard that is read holds a window of some MiB and a block.
_MOST_READERS = 16
_WAITING_PER_WORKER = 2


@dataclass(frozen=True, slots=True)
class Verification:
    """What was looked at, and what is wrong with it.

    Attributes:
        manifest: The dataset.
        faults: All faults, by shard, block and row.
    """

    manifest: Manifest
    faults: list[Fault]


def verify(
    url: str, decode: bool = True, workers: int | None = None, on_progress: OnProgress | None = None
) -> Verification:
    """Reads every shard once, from front to back, and goes on after a fault.

    Checks the seal of the manifest; of each shard that it is there, its size, its structure with what lies outside the
    blocks, and its number of rows; of each block its checksum, and that it decodes; of each row that its images are
    images, and decode whole. Of rows that are excluded, images are not looked at.

    Args:
        url: The dataset.
        decode: Decode images; else only look at how they begin.
        workers: Threads that decode; None for one a processor.
        on_progress: Is told of rows and bytes that were looked at, also from other threads, one at a time.

    Raises:
        DatasetError: There is no dataset, or its manifest is damaged.
        OptionError: Images are to be decoded, and Pillow is missing or set to pass over damage.
        StorageError: The manifest could not be read.
    """
    find_manifest(url, anew=True)  # the store's own, and not this node's copy
    manifest = Manifest.open(url)
    if decode and any(map(is_binary, manifest.schema.types)):
        load_pillow()
    store = open_store(manifest.base_url)
    readers = min(store.concurrency, _MOST_READERS)
    with (
        ThreadPoolExecutor(readers, thread_name_prefix="dataflow-read") as reading,
        _Checks(store, manifest, decode, workers or os.cpu_count() or 1, on_progress) as checks,
    ):
        try:
            for _ in reading.map(
                lambda shard: _check_shard(store, manifest, shard, checks), range(manifest.num_shards)
            ):
                pass
        except BaseException:
            reading.shutdown(wait=False, cancel_futures=True)
            raise
    checks.faults.sort(key=_place)
    return Verification(manifest, [fault for _, fault in checks.faults])


def _place(item: tuple[int, Fault]) -> tuple[int, int, int]:
    shard, fault = item
    return shard, -1 if fault.block is None else fault.block, -1 if fault.row is None else fault.row


class _Checks:
    """Checks blocks in threads, with few of them waiting.

    Attributes:
        faults: All faults so far, with the number of the shard.
    """

    def __init__(
        self, store: Store, manifest: Manifest, decode: bool, workers: int, on_progress: OnProgress | None
    ) -> None:
        self.faults: list[tuple[int, Fault]] = []
        self._store, self._manifest, self._decode, self._on_progress = store, manifest, decode, on_progress
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="dataflow-check")
        self._room = threading.Semaphore(_WAITING_PER_WORKER * workers)
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._error = self._error or error  # ends the readers at their next block
        self._pool.shutdown(wait=True)
        if self._error is not None and error is None:
            raise self._error

    def add(self, shard: int, faults: list[Fault], blocks: range) -> None:
        """Notes what is wrong with some blocks, which are done."""
        rows, lengths = self._manifest.rows, self._manifest.lengths
        with self._lock:
            self.faults += [(shard, fault) for fault in faults]
            if self._on_progress is not None and blocks:
                part = slice(blocks.start, blocks.stop)
                self._on_progress(int(rows[part].sum()), int(lengths[part].sum()))

    def submit(self, shard: int, block: int, data: Buffer) -> None:
        """Checks a block as soon as there is room."""
        self._room.acquire()
        if self._error is not None:
            self._room.release()
            raise self._error
        self._pool.submit(self._run, shard, block, data)

    def _run(self, shard: int, block: int, data: Buffer) -> None:
        try:
            faults = check_block(self._store, self._manifest, block, data, self._decode)
            self.add(shard, faults, range(block, block + 1))
        except BaseException as error:
            self._error = error
        finally:
            self._room.release()


def _check_shard(store: Store, manifest: Manifest, shard: int, checks: _Checks) -> None:
    path, expected_size = manifest.shard_path(shard), manifest.shard_size(shard)
    url = join_url(manifest.base_url, path)
    blocks = range(int(manifest.first_blocks[shard]), int(manifest.first_blocks[shard + 1]))
    ranges = [(int(manifest.starts[block]), int(manifest.lengths[block])) for block in blocks]

    def note(kind: Kind, message: str, expected: int | None = None, found: int | None = None) -> None:
        checks.add(shard, [Fault(kind, url, message, expected=expected, found=found)], range(0))

    try:
        size = store.size(path)
        if size != expected_size:
            message = f"{url} has {size} bytes, the manifest says {expected_size}. Restore the shard"
            note("size", message, expected=expected_size, found=size)
        tap = BlockTap(store, ranges, lambda number, data: checks.submit(shard, blocks[number], data))
        _check_structure(tap, manifest, shard, url, note)
        for number, (start, length) in enumerate(ranges):
            if number in tap.passed:
                continue
            block = blocks[number]
            if 0 <= start <= start + length <= size:
                checks.submit(shard, block, store.read_range(path, start, length))
                continue
            message = f"{describe_block(manifest, block)}: is not within the shard, which has {size} bytes"
            checks.add(shard, [Fault("block", url, message, block)], range(block, block + 1))
    except StorageNotFoundError:
        note("missing", f"{url} is not there: {len(blocks)} blocks are lost. Restore the shard")
    except StorageError as error:
        note("unreadable", f"{url} could not be read, and the rest of it was not looked at: {error}")


def _check_structure(tap: BlockTap, manifest: Manifest, shard: int, url: str, note: Callable[..., None]) -> None:
    """Indexes the shard anew: that looks at what lies between and around the blocks, too."""
    first, last = int(manifest.first_blocks[shard]), int(manifest.first_blocks[shard + 1])
    block_bytes = max(1, manifest.num_bytes // max(1, manifest.num_blocks))
    try:
        index = format_named(manifest.format).index(tap, manifest.shard_path(shard), block_bytes)
    except (CorruptDataError, DatasetError) as error:
        note("structure", str(error))
        return
    expected = int(manifest.rows[first:last].sum()) + len(manifest.excluded_rows(shard))
    found = sum(block.rows for block in index.blocks)
    if found != expected:
        message = f"{url} holds {found} rows, the manifest says {expected}. Restore the shard, or index it again"
        note("rows", message, expected=expected, found=found)
    same_blocks = [block.start for block in index.blocks] == manifest.starts[first:last].tolist()
    if same_blocks and index.detail and index.detail != manifest.detail(shard):
        note("structure", f"{url}: its footer is not the one that was indexed. Restore the shard, or index it again")
