"""Files beside images that say something of the one with the same name: captions, fields and labels."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dataflow.errors import DatasetError
from dataflow.storage import Entry, Store, join_url

if TYPE_CHECKING:
    from dataflow.sharding.folder import Folder

__all__ = ["SIDECAR_SUFFIXES", "read_sidecars"]

_TAKEN = ("key", "image")
_MOST_BYTES = 64 << 20


def read_sidecars(store: Store, folder: Folder) -> dict[str, pa.Array]:
    """The columns that the files beside images give, null where an image lacks a file or a field.

    `1.txt` is the `text` of `1.jpg`, `1.cls` is its `label` (a whole number), and the fields of the object in `1.json`
    are columns.

    Args:
        store: Where the images are.
        folder: The images and the files beside them.

    Raises:
        DatasetError: A file is not what it should be, or says what another one says too; names it.
        StorageError: It could not be read.
    """
    rows: dict[str, dict[str, Any]] = {}

    def read(entry: Entry) -> tuple[Entry, dict[str, Any]]:
        return entry, _fields(store, entry)

    with ThreadPoolExecutor(store.concurrency, thread_name_prefix="dataflow-sidecars") as pool:
        try:
            for entry, fields in pool.map(read, folder.beside.values()):
                row = rows.setdefault(posixpath.splitext(entry.path)[0], {})
                for name, value in fields.items():
                    if name in _TAKEN or name in row:
                        raise DatasetError(
                            f"{join_url(store.url, entry.path)}: the column {name!r} comes from another file already. "
                            "Rename that field"
                        )
                    row[name] = value
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    names = dict.fromkeys(name for row in rows.values() for name in row)
    found = [rows.get(posixpath.splitext(path)[0], {}) for path in folder.paths]
    return {name: _column(store, name, [row.get(name) for row in found]) for name in sorted(names)}


def _column(store: Store, name: str, values: list[Any]) -> pa.Array:
    try:
        column = pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise DatasetError(
            f"the files beside the images of {store.url} give {name!r} values of different types: {error}"
        ) from error
    if isinstance(column, pa.ChunkedArray):
        raise DatasetError(f"the files beside the images of {store.url} have more than 2 GiB: shard them in parts")
    if pa.types.is_null(column.type):
        raise DatasetError(f"the files beside the images of {store.url} give {name!r} no value but null: take it out")
    return column


def _fields(store: Store, entry: Entry) -> dict[str, Any]:
    url = join_url(store.url, entry.path)
    if entry.size > _MOST_BYTES:
        raise DatasetError(f"{url} has {entry.size} bytes, too many for a file beside an image. Take it out")
    data = bytes(store.read_range(entry.path, 0, entry.size))
    try:
        return _READERS[posixpath.splitext(entry.path)[1].lower()](data.decode("utf-8-sig"))
    except ValueError as error:
        raise DatasetError(
            f"{url}: {error}. A .txt beside an image is its text, a .cls its whole number, a .json an object of fields"
        ) from error


def _text(text: str) -> dict[str, Any]:
    return {"text": text.removesuffix("\n").removesuffix("\r")}


def _label(text: str) -> dict[str, Any]:
    return {"label": int(text)}


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{type(value).__name__} instead of an object")
    return value


_READERS: dict[str, Callable[[str], dict[str, Any]]] = {".txt": _text, ".cls": _label, ".json": _object}
SIDECAR_SUFFIXES = tuple(_READERS)
