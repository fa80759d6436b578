"""Makes a dataset of shards that exist already: finds their blocks and writes a manifest, nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pyarrow as pa

from dataflow.dataset.block_size import usual_block_bytes
from dataflow.dataset.kept_exclusions import KeptExclusions
from dataflow.dataset.manifest import Manifest
from dataflow.dataset.manifest_file import MANIFEST_NAME
from dataflow.dataset.manifest_writer import ManifestWriter
from dataflow.dataset.partitions import unread_columns
from dataflow.dataset.target import PLAN_NAME
from dataflow.errors import CorruptDataError, DatasetError, OptionError
from dataflow.formats import FORMATS, Format, ShardIndex, Skipped, format_named, format_of, is_side_file
from dataflow.formats.compression import compression_of
from dataflow.storage import Entry, Store, join_url, open_store

__all__ = ["index"]

logger = logging.getLogger(__name__)

# Each holds a window of a few MiB, and a thread more than this finds no processor to hash with.
THREADS = 8


def index(
    source: str,
    out: str | None = None,
    format: str | None = None,
    block_bytes: int | None = None,
    on_skip: Callable[[Skipped], None] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
) -> Manifest:
    """Indexes the shards below `source`, in the order of their paths. The shards are read once and never changed.

    An older manifest is replaced, and its properties (such as the list of classes) and excluded rows are kept.

    Args:
        source: Folder of the shards, with the folders in it.
        out: Folder for the manifest; None puts it beside the shards.
        format: Name of a format, such as "arrow", "parquet" or "webdataset"; None takes that of the files there.
        block_bytes: Wanted size of a block, for formats that leave a choice. None: 1/4096 of all, between 64 KiB and
            2 MiB.
        on_skip: Is told of everything that is not in the dataset: files of other kinds, members of archives, whose
            names begin with the shard's, and columns that are in no file but in names of folders. The log has a count
            and an example in any case.
        on_error: "raise", or "skip", which leaves out rows, samples and blocks that are damaged and what cannot be
            read behind damage, and shards of which nothing is left.

    Raises:
        DatasetError: There are no shards or rows, shards of several formats, or shards that do not go together.
        CorruptDataError: A shard is damaged, and `on_error` is "raise"; names it and the offset.
        OptionError: An argument makes no sense.
        StorageError: A store could not be read or written.
    """
    if block_bytes is not None and block_bytes < 1:
        raise OptionError(f"block_bytes is {block_bytes}, it must be at least 1")
    if on_error not in ("raise", "skip"):
        raise OptionError(f"on_error is {on_error!r}, it must be 'raise' or 'skip'")
    skip_bad = on_error == "skip"
    store = open_store(source)
    target = store if out is None else open_store(out)
    shards, kind, skipped = _choose(store, None if format is None else format_named(format))
    block_bytes = block_bytes or usual_block_bytes(sum(entry.size for entry in shards))
    old = _old(target)
    properties = {} if old is None else old.properties
    writer = ManifestWriter(kind.name, "" if target.url == store.url else store.url, properties)
    kept = KeptExclusions(old)
    schema: pa.Schema | None = None
    first = shards[0]

    def index_shard(entry: Entry) -> ShardIndex | CorruptDataError:
        try:
            return kind.index(store, entry.path, block_bytes, skip_bad)
        except CorruptDataError as error:
            return error

    with ThreadPoolExecutor(THREADS, thread_name_prefix="dataflow-index") as pool:
        try:
            for entry, found in zip(shards, pool.map(index_shard, shards), strict=True):
                if isinstance(found, CorruptDataError):
                    if not skip_bad:
                        raise found
                    skipped.append(Skipped(entry.path, "a damaged shard", str(found)))
                    continue
                skipped += [Skipped(f"{entry.path}: {item.name}", item.reason, item.note) for item in found.skipped]
                if skip_bad and found.skipped and not found.blocks:
                    skipped.append(Skipped(entry.path, "has no rows"))
                    continue
                if schema is None:
                    schema, first = found.schema, entry
                else:
                    schema = _merge(kind, schema, found.schema, store, entry, first)
                excluded = kept.of(entry.path, found.blocks)
                writer.add(entry.path, entry.size, entry.version, found.blocks, found.detail, excluded)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if schema is None or writer.num_rows == 0:
        raise DatasetError(f"the {len(shards)} shards at {store.url} hold no rows{_first(skipped)}")
    writer.write(target, schema)
    skipped = [*unread_columns((entry.path for entry in shards), schema), *skipped]
    if skipped:
        logger.warning("%s: left out %d files, members and columns%s", store.url, len(skipped), _first(skipped))
    if on_skip is not None:
        for item in skipped:
            on_skip(item)
    return Manifest.open(target.url)


def _choose(store: Store, wanted: Format | None) -> tuple[list[Entry], Format, list[Skipped]]:
    """The shards below a store, their format, and the files that are none."""
    shards: list[Entry] = []
    skipped: list[Skipped] = []
    first: Format | None = wanted
    entries = [entry for entry in store.list() if entry.path.rsplit("/", 1)[-1] != MANIFEST_NAME]
    telling = wanted is None and any(format_of(entry.path) and not is_side_file(entry.path) for entry in entries)
    for entry in entries:
        if entry.path == PLAN_NAME:
            raise DatasetError(
                f"{store.url} holds what a run of `dataflow shard` has not finished: run that again, it goes on"
            )
        found = format_of(entry.path)
        if found is None:
            skipped.append(Skipped(entry.path, _unknown(entry.path)))
        elif wanted is not None and found is not wanted:
            skipped.append(Skipped(entry.path, f"a {found.name} shard"))
        elif telling and is_side_file(entry.path):
            skipped.append(
                Skipped(entry.path, f"taken for a note beside the shards; give format={found.name!r} if not")
            )
        elif first is not None and found is not first:
            raise DatasetError(
                f"{store.url} holds shards of two formats ({shards[0].path} and {entry.path}). Give "
                f"format={first.name!r} or {found.name!r}, or the folder of one of them"
            )
        else:
            first = found
            shards.append(entry)
    if not shards or first is None:
        suffixes = ", ".join(name for kind in FORMATS for name in kind.suffixes if not compression_of(name))
        raise DatasetError(f"there are no shards ({suffixes}) at {store.url}{_first(skipped)}. Check the URL")
    return shards, first, skipped


def _unknown(path: str) -> str:
    if path.lower().endswith((".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")):
        return "a compressed archive, of which no part can be read alone: `dataflow shard` converts it"
    return "no shard format has this suffix"


def _merge(kind: Format, first: pa.Schema, second: pa.Schema, store: Store, entry: Entry, start: Entry) -> pa.Schema:
    try:
        return kind.merge(first, second)
    except DatasetError as error:
        raise DatasetError(
            f"{join_url(store.url, entry.path)} {error} (the first is {start.path}). Index shards of one kind together"
        ) from error


def _old(target: Store) -> Manifest | None:
    try:
        return Manifest.open(target.url)
    except DatasetError:
        return None  # none yet, or a damaged one, which is about to be replaced


def _first(skipped: list[Skipped]) -> str:
    return f" (skipped {skipped[0].name}: {skipped[0].reason}, and {len(skipped) - 1} more)" if skipped else ""
