"""Manifests of shards of one format, whose rows have the same columns wherever they lie."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dataflow.dataset import Manifest, ManifestWriter
from dataflow.dataset.block_size import usual_block_bytes
from dataflow.dataset.partitions import unread_columns
from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats import Format, ShardIndex, Skipped
from dataflow.storage import Entry, Store, join_url, open_store

__all__ = ["Shards", "index_all"]

# Each holds a window of a few MiB, and a thread more than this finds no processor to hash with.
_THREADS = 8


@dataclass(frozen=True, slots=True)
class Shards:
    """Shards below one root.

    Attributes:
        store: The root.
        entries: The shards.
        origin: The root as messages call it, where shards are expanded copies.
    """

    store: Store
    entries: Sequence[Entry]
    origin: str


def index_all(kind: Format, groups: Sequence[Shards], folder: Path, skip: bool) -> tuple[list[Manifest], list[Skipped]]:
    """Finds the blocks of all shards.

    Args:
        kind: Their format.
        groups: The shards.
        folder: Where their manifests are written.
        skip: Whether rows and shards that are damaged are left out.

    Returns:
        A manifest for each group that has rows, with the same schema, and what was left out.

    Raises:
        CorruptDataError: A shard is damaged; names it and the place.
        DatasetError: The shards' columns do not go together.
        StorageError: A store could not be read.
    """
    block_bytes = usual_block_bytes(sum(entry.size for group in groups for entry in group.entries))
    skipped: list[Skipped] = []
    schema: pa.Schema | None = None
    first = ""
    writers: list[tuple[ManifestWriter, Path]] = []

    def scan(task: tuple[Shards, Entry]) -> ShardIndex | Exception:
        group, entry = task
        try:
            return kind.index(group.store, entry.path, block_bytes, skip)
        except (CorruptDataError, DatasetError) as error:
            return type(error)(str(error).replace(group.store.url, group.origin))

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="dataflow-index") as pool:
        try:
            for number, group in enumerate(groups):
                writer = ManifestWriter(kind.name, group.store.url)
                for entry, found in zip(
                    group.entries, pool.map(scan, [(group, entry) for entry in group.entries]), strict=True
                ):
                    url = join_url(group.origin, entry.path)
                    if isinstance(found, Exception):
                        if not (skip and isinstance(found, CorruptDataError)):
                            raise found
                        skipped.append(Skipped(entry.path, "a damaged shard", str(found)))
                        continue
                    skipped += [Skipped(f"{entry.path}: {item.name}", item.reason, item.note) for item in found.skipped]
                    if not found.blocks:
                        skipped.append(Skipped(entry.path, "has no rows"))
                        continue
                    schema = found.schema if schema is None else _merged(kind, schema, found.schema, url, first)
                    first = first or url
                    writer.add(entry.path, entry.size, entry.version, found.blocks, found.detail)
                if writer.num_rows:
                    writers.append((writer, folder / f"{kind.name}-{number}"))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    manifests = []
    for writer, place in writers:
        assert schema is not None
        writer.write(open_store(str(place)), schema)
        manifests.append(Manifest.open(str(place)))
    if schema is not None:
        skipped = [*unread_columns((entry.path for group in groups for entry in group.entries), schema), *skipped]
    return manifests, skipped


def _merged(kind: Format, first: pa.Schema, second: pa.Schema, url: str, first_url: str) -> pa.Schema:
    try:
        return kind.merge(first, second)
    except DatasetError as error:
        raise DatasetError(
            f"{url} {error} (the first is {first_url}). Give shards with the same columns, others apart"
        ) from error
