"""Compressed files of which no part can be read alone: they are expanded to local files, in bounded memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dataflow.errors import CorruptDataError, DatasetError, StorageError
from dataflow.formats import Skipped
from dataflow.formats.compression import MAX_MEMBER_BYTES, compression_of, pieces
from dataflow.formats.window import Window
from dataflow.storage import Entry, Store, join_url
from dataflow.storage.location import check_path
from dataflow.storage.sizes import format_size

__all__ = ["expand", "is_packed_archive", "needs_expanding"]

logger = logging.getLogger(__name__)

_ARCHIVES = {".tar.gz": "gzip", ".tgz": "gzip", ".tar.zst": "zstd", ".tzst": "zstd"}
_ARCHIVE_SUFFIXES = tuple(_ARCHIVES)
# No compression makes more of a byte than this.
_MOST_RATIO = 1 << 15
_THREADS = 4
_TAIL_BYTES = 1 << 20


def is_packed_archive(path: str) -> bool:
    """Whether a file is a compressed tar, by its name."""
    return path.lower().endswith(_ARCHIVE_SUFFIXES)


def needs_expanding(store: Store, entry: Entry) -> bool:
    """Whether a file has to be expanded: a compressed tar, or rows that are compressed in a piece that is too large.

    Raises:
        StorageError: The store could not be read.
    """
    if is_packed_archive(entry.path):
        return True
    compression = compression_of(entry.path)
    if not compression or entry.size * _MOST_RATIO <= MAX_MEMBER_BYTES:
        return False
    total = 0
    try:
        for piece in pieces(compression, Window(store, entry.path).read, entry.size):
            total += len(piece.data)
            if total > MAX_MEMBER_BYTES:
                return True
            if piece.last:
                total = 0
    except (CorruptDataError, DatasetError):
        return False  # whoever reads it as it is says what is wrong, and where
    return False


def expand(store: Store, entries: Sequence[Entry], folder: Path, skip: bool = False) -> tuple[list[str], list[Skipped]]:
    """Expands files to a folder.

    Args:
        store: Where they are.
        entries: The files.
        folder: Where each becomes a folder of its own name with one file in it.
        skip: Leave out what is damaged and what follows it, instead of raising an error.

    Returns:
        Paths of the new files below `folder`, and what was left out.

    Raises:
        CorruptDataError: A file is damaged; names it.
        DatasetError: It cannot be decompressed.
        StorageError: It could not be read, or there is no room.
    """
    num_bytes = sum(entry.size for entry in entries)
    logger.warning(
        "%s: expanding %d compressed files (%s, %s ...) to %s, since no part of them can be read alone; they are "
        "removed in the end",
        *(store.url, len(entries), format_size(num_bytes), entries[0].path, folder),
    )
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="dataflow-expand") as pool:
        try:
            made = list(pool.map(lambda entry: _expand(store, entry, folder, skip), entries))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    skipped = [item for _, item in made if item is not None]
    return [path for path, _ in made if path is not None], skipped


def _expand(store: Store, entry: Entry, folder: Path, skip: bool) -> tuple[str | None, Skipped | None]:
    name = entry.path.rpartition("/")[2]
    suffix = next((suffix for suffix in _ARCHIVES if name.lower().endswith(suffix)), None)
    plain = name.rpartition(".")[0] if suffix is None else f"{name[: -len(suffix)]}.tar"
    path = check_path(f"{entry.path}/{plain or 'expanded'}")
    url = join_url(store.url, entry.path)
    compression = compression_of(name) if suffix is None else _ARCHIVES[suffix]
    left_out: Skipped | None = None
    whole = stored = 0  # bytes of whole members: as they are in the new file, and in the old one
    try:
        (folder / path).parent.mkdir(parents=True)
        with open(folder / path, "xb") as file:
            try:
                read = 0
                for piece in pieces(compression, Window(store, entry.path).read, entry.size):
                    file.write(piece.data)
                    read += len(piece.stored)
                    if piece.last:
                        whole, stored = file.tell(), read
            except CorruptDataError as error:
                if not skip:
                    raise
                # What there is of a damaged member is not known to be right.
                file.truncate(whole)
                name = f"{entry.path}: everything after offset {stored}" if whole else entry.path
                left_out = Skipped(name, "damaged or cut off" if whole else "a damaged shard", str(error))
        if left_out is not None and suffix is None:
            _end_with_row(folder / path)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"could not expand {url} to {folder / path}: {error.strerror}. Make room, or set TMPDIR to a folder that "
            "has room"
        ) from error
    except (CorruptDataError, DatasetError) as error:
        raise type(error)(f"{url}: {error}") from error
    return path if whole or left_out is None else None, left_out


def _end_with_row(path: Path) -> None:
    """Cuts off the last line of a file, if it has no end."""
    with open(path, "r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _TAIL_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                file.truncate(start + newline + 1)
                return
            end = start
        file.truncate(0)
