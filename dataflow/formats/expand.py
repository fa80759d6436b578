"""Decompresses a file that cannot be read in parts, so that it can be: for conversion."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from dataflow.errors import CorruptDataError, DatasetError, StorageError
from dataflow.formats.compression import COMPRESSIONS, compression_of, pieces
from dataflow.formats.window import Window
from dataflow.storage import join_url

if TYPE_CHECKING:
    from dataflow.storage import Store

__all__ = ["expand", "expanded_name"]

# Room that is left on the disk for others.
SPARE_BYTES = 256 << 20
CHECK_BYTES = 64 << 20


def expanded_name(path: str) -> str | None:
    """The base name of a compressed file without its compression (`a.tar` for `x/a.tar.gz`), or None for others."""
    name = PurePosixPath(path).name
    if name.lower().endswith(".tgz"):
        return name[:-4] + ".tar"
    ending = next((ending for ending in COMPRESSIONS if name.lower().endswith(ending)), None)
    return None if ending is None else name[: -len(ending)]


def expand(store: Store, path: str, folder: Path) -> Path:
    """Decompresses a file of any size into a local folder, in bounded memory.

    Args:
        store: Where the file is.
        path: Its path there: `.gz`, `.tgz` or `.zst`.
        folder: An existing folder that holds nothing of the same name.

    Returns:
        The new file, `expanded_name(path)` in the folder. After an error there is none.

    Raises:
        CorruptDataError: The file is damaged, cut off, or followed by something else; names it and the offset.
        DatasetError: It is not compressed, or in a way that is not known.
        StorageError: It could not be read, or the folder has no room for it.
    """
    url = join_url(store.url, path)
    name = expanded_name(path)
    if not name:
        raise DatasetError(f"{url}: is not compressed by its name ({', '.join(COMPRESSIONS)}, .tgz)")
    target = folder / name
    window = Window(store, path)
    written = checked = 0
    try:
        with open(target, "xb") as file:
            try:
                for piece in pieces(compression_of(path) or "gzip", window.read, window.size):
                    if written >= checked:
                        _check_room(folder, url, written)
                        checked = written + CHECK_BYTES
                    file.write(piece.data)
                    written += len(piece.data)
            except BaseException:
                target.unlink()
                raise
    except StorageError:
        raise
    except CorruptDataError as error:
        raise CorruptDataError(f"{url}: {error}. Write or copy the file again") from error
    except DatasetError as error:
        raise DatasetError(f"{url}: {error}") from error
    except OSError as error:
        raise StorageError(
            f"could not decompress {url} into {target}: {error.strerror or error} after {written} bytes. Make room "
            "there, or set TMPDIR to a folder that has room"
        ) from error
    return target


def _check_room(folder: Path, url: str, written: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < SPARE_BYTES + CHECK_BYTES:
        raise StorageError(
            f"could not decompress {url}: {folder} has {free} bytes left after {written} bytes. Make room there, or "
            "set TMPDIR to a folder that has room"
        )
