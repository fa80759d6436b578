"""Takes rows out of a dataset by their keys: the shards stay as they are, the manifest says what is never delivered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.dataset import Manifest, ManifestWriter, fetch_block
from dataflow.dataset.block import decode_stored_block
from dataflow.errors import DatasetError, OptionError
from dataflow.operations.blocks import OnProgress, in_order
from dataflow.operations.column_types import is_binary, is_text
from dataflow.operations.target import check_no_dataset
from dataflow.storage import Store, open_store

__all__ = ["Exclusion", "exclude"]

Pairs = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What was excluded.

    Attributes:
        manifest: The dataset without the rows; the old one where nothing was written.
        num_rows: Rows that are excluded now and were not before; where nothing was written, those that would be.
        missing: Keys that no row has, in the order given.
        written: Whether there is a new manifest.
    """

    manifest: Manifest
    num_rows: int
    missing: list[str]
    written: bool


def exclude(
    url: str,
    keys: Iterable[str],
    column: str = "key",
    out: str | None = None,
    allow_missing: bool = False,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
) -> Exclusion:
    """Excludes all rows that have one of some keys. Every block is read once, the shards are not changed.

    The dataset's fingerprint changes from the first shard with such a row on. Rows that were excluded before stay so.

    Args:
        url: The dataset.
        keys: The keys. In a column of integers they are read as such.
        column: The column that holds them: text, bytes or integers.
        out: Folder for the new manifest; None replaces the old one.
        allow_missing: Exclude what is there although other keys are not found; else nothing is written then.
        workers: Threads that read; None for what suits the store.
        on_progress: Is told of rows and bytes that were looked through.

    Raises:
        OptionError: There are no keys, no such column, or `out` holds a dataset.
        DatasetError: There is no dataset, or it was changed meanwhile.
        CorruptDataError: A block is damaged.
        StorageError: A store could not be read or written.
    """
    manifest = Manifest.open(url)
    target = open_store(manifest.url if out is None else out)
    if target.url != manifest.url:
        check_no_dataset(target)
    wanted = _values(manifest, column, keys)
    known = set(wanted.values())
    store = open_store(manifest.base_url)

    def find(block: int) -> list[tuple[int, Any]]:
        """Row and key, for each row of the block that has one."""
        rows = decode_stored_block(manifest, block, fetch_block(store, manifest, block))
        return [(row, value) for row, value in enumerate(rows.column(column).to_pylist()) if value in known]

    seen: set[Any] = set()
    found: dict[int, list[tuple[int, int]]] = {}  # shard -> block of it, row
    for block, rows in in_order(manifest, find, workers=workers):
        if rows:
            shard = manifest.shard_of(block)
            in_shard = block - int(manifest.first_blocks[shard])
            found.setdefault(shard, []).extend((in_shard, row) for row, _ in rows)
            seen.update(value for _, value in rows)
        if on_progress is not None:
            on_progress(int(manifest.rows[block]), int(manifest.lengths[block]))
    missing = [text for text, value in wanted.items() if value not in seen]
    pairs = {shard: _together(manifest.excluded_rows(shard), rows) for shard, rows in found.items()}
    num_rows = sum(len(now) - len(manifest.excluded_rows(shard)) for shard, now in pairs.items())
    if (missing and not allow_missing) or (num_rows == 0 and target.url == manifest.url):
        return Exclusion(manifest, num_rows, missing, written=False)
    return Exclusion(_write(manifest, target, pairs), num_rows, missing, written=True)


def _write(manifest: Manifest, target: Store, pairs: dict[int, Pairs]) -> Manifest:
    base = "" if manifest.base_url == target.url else manifest.base_url
    writer = ManifestWriter(manifest.format, base, manifest.properties)
    for shard in range(manifest.num_shards):
        writer.add_from(manifest, shard, excluded=pairs.get(shard))
    # Shards may have been added while the old ones were read.
    if Manifest.open(manifest.url).fingerprint != manifest.fingerprint:
        raise DatasetError(f"{manifest.url} was changed meanwhile: nothing was excluded. Run it again")
    writer.write(target, manifest.schema)
    return Manifest.open(target.url)


def _values(manifest: Manifest, column: str, keys: Iterable[str]) -> dict[str, Any]:
    """The value that each key has in the column."""
    texts = dict.fromkeys(keys)
    if not texts:
        raise OptionError("there are no keys: nothing to exclude")
    names = manifest.schema.names
    if column not in names:
        raise OptionError(f"{manifest.url} has no column {column!r}; it has {', '.join(names)}. Give one with --column")
    kind = manifest.schema.field(column).type
    try:
        if pa.types.is_integer(kind):
            return {text: int(text) for text in texts}
    except ValueError as error:
        raise OptionError(f"the column {column!r} holds integers, and the keys do not: {error}") from error
    if is_text(kind):
        return {text: text for text in texts}
    if is_binary(kind):
        return {text: text.encode() for text in texts}
    raise OptionError(f"the column {column!r} is of type {kind}: keys are text, bytes or integers")


def _together(before: Pairs, rows: list[tuple[int, int]]) -> Pairs:
    """All rows once, sorted by block and row."""
    pairs: Pairs = np.unique(np.concatenate([before, np.array(rows, np.int32)]), axis=0)
    return pairs
