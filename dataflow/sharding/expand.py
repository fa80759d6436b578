"""Compressed files of which no part can be read alone: they are expanded to local files, in bounded memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dataflow.errors import CorruptDataError, DatasetError, StorageError
from dataflow.formats.compression import MAX_MEMBER_BYTES, compression_of, pieces
from dataflow.formats.window import Window
from dataflow.storage import Entry, Store, join_url
from dataflow.storage.location import check_path
from dataflow.storage.sizes import format_size

__all__ = ["expand", "is_packed_archive", "needs_expanding"]

logger = logging.getLogger(__name__)

_ARCHIVES = {".tar.gz": "gzip", ".tgz": "gzip", ".tar.zst": "zstd", ".tzst": "zstd"}
# No compression makes more of a byte than this.
_MOST_RATIO = 1 << 15
_THREADS = 4


def is_packed_archive(path: str) -> bool:
    """Whether a file is a compressed tar, by its name."""
    return path.lower().endswith(tuple(_ARCHIVES))


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


def expand(store: Store, entries: Sequence[Entry], folder: Path) -> list[str]:
    """Expands files to a folder.

    Args:
        store: Where they are.
        entries: The files.
        folder: Where each becomes a folder of its own name with one file in it.

    Returns:
        Paths of the new files below `folder`.

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
            return list(pool.map(lambda entry: _expand(store, entry, folder), entries))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _expand(store: Store, entry: Entry, folder: Path) -> str:
    name = entry.path.rpartition("/")[2]
    suffix = next((suffix for suffix in _ARCHIVES if name.lower().endswith(suffix)), None)
    plain = name.rpartition(".")[0] if suffix is None else f"{name[: -len(suffix)]}.tar"
    path = check_path(f"{entry.path}/{plain or 'expanded'}")
    url = join_url(store.url, entry.path)
    compression = compression_of(name) if suffix is None else _ARCHIVES[suffix]
    try:
        (folder / path).parent.mkdir(parents=True)
        with open(folder / path, "xb") as file:
            for piece in pieces(compression, Window(store, entry.path).read, entry.size):
                file.write(piece.data)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"could not expand {url} to {folder / path}: {error.strerror}. Make room, or set TMPDIR to a folder that "
            "has room"
        ) from error
    except (CorruptDataError, DatasetError) as error:
        raise type(error)(f"{url}: {error}") from error
    return path
