"""Parquet files with row groups too large to be read whole: they are written anew to local files, in small blocks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from pyarrow import ipc

from dataflow.errors import CorruptDataError, DatasetError, StorageError
from dataflow.formats import Skipped
from dataflow.formats.format import MAX_BLOCK_BYTES
from dataflow.formats.parquet_footer import read_footer
from dataflow.formats.parquet_parts import parquet_parts
from dataflow.storage import Entry, Store, join_url

__all__ = ["has_large_row_groups", "rewrite"]

logger = logging.getLogger(__name__)

# Several are in memory at a time while shards are made.
_LARGE_BYTES = MAX_BLOCK_BYTES // 4


def has_large_row_groups(store: Store, entry: Entry) -> bool:
    """Whether a Parquet file has a row group that is better not read whole.

    Raises:
        StorageError: The store could not be read.
    """
    try:
        groups = read_footer(store, entry.path).groups
    except (CorruptDataError, DatasetError):
        return False  # whoever reads it as it is says what is wrong, and where
    return any(max(group.length, group.decoded) > _LARGE_BYTES for group in groups)


def rewrite(
    store: Store, entries: Sequence[Entry], folder: Path, skip: bool = False
) -> tuple[list[str], list[Skipped]]:
    """Writes the rows of Parquet files to Arrow files, in bounded memory.

    Args:
        store: Where they are.
        entries: The files.
        folder: Where each becomes a file.
        skip: Leave out what is damaged and what follows it, instead of raising an error.

    Returns:
        Paths of the new files below `folder`, and what was left out.

    Raises:
        CorruptDataError: A file is damaged; names it and the row group.
        DatasetError: It cannot be read.
        StorageError: It could not be read, or there is no room.
    """
    logger.warning(
        "%s: writing %d Parquet files with large row groups (%s ...) to %s, in small blocks; those are removed in the "
        "end",
        *(store.url, len(entries), entries[0].path, folder),
    )
    paths: list[str] = []
    skipped: list[Skipped] = []
    for entry in entries:
        path = f"{entry.path}.arrow"
        try:
            rows = 0
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with ipc.new_file(str(folder / path), read_footer(store, entry.path).schema) as writer:
                try:
                    for batch in parquet_parts(store, entry.path):
                        writer.write_batch(batch)
                        rows += batch.num_rows
                except CorruptDataError as error:
                    if not skip:
                        raise
                    skipped.append(Skipped(f"{entry.path}: all after row {rows}", "damaged or cut off", str(error)))
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(
                f"could not write the rows of {join_url(store.url, entry.path)} to {folder / path}: "
                f"{error.strerror or error}. Make room, or set TMPDIR to a folder that has room"
            ) from error
        if rows:
            paths.append(path)
    return paths, skipped
