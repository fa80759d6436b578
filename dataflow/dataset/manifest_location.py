"""Where the manifest of a dataset is: in place for local datasets, else a copy kept on this node."""

from __future__ import annotations

import hashlib
import logging
import os
from itertools import islice
from pathlib import Path, PurePosixPath
from secrets import token_hex

from dataflow.dataset.manifest_file import MANIFEST_NAME
from dataflow.dataset.target import PLAN_NAME
from dataflow.errors import DatasetError, OptionError, StorageError, StorageNotFoundError
from dataflow.formats import format_of, holds_text
from dataflow.storage import Entry, Store, join_url, open_store, split_url
from dataflow.storage.local import LocalStore

__all__ = ["find_manifest"]

logger = logging.getLogger(__name__)

IMAGES = frozenset((".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"))
# How much of a folder is looked at to tell what it is.
LOOKED_AT = 1000
PIECE_BYTES = 8 << 20


def find_manifest(url: str, anew: bool = False) -> tuple[str, Path]:
    """Returns the dataset's folder and a local file with its manifest.

    Args:
        url: The dataset's folder, or the manifest in it.
        anew: Download it even if there is a copy.

    Raises:
        DatasetError: There is no manifest; says what is there instead and what to do.
        StorageError: The store could not be read, or there is no room for the copy.
    """
    if url.endswith("/" + MANIFEST_NAME):
        url = split_url(url)[0]
    store = open_store(url)
    try:
        entry = store.entry(MANIFEST_NAME)
    except StorageNotFoundError as error:
        raise DatasetError(_advice(store)) from error
    if isinstance(store, LocalStore):
        return store.url, Path(store.url) / MANIFEST_NAME
    return store.url, _copy(store, entry, anew)


def _advice(store: Store) -> str:
    url = store.url
    names = [entry.path for entry in islice(store.list(), LOOKED_AT)]
    if not names:
        if _is_file(url):
            return (
                f"{url} is a file, not a dataset. Open the folder that holds its {MANIFEST_NAME}, or index that folder"
            )
        return f"there is nothing at {url}. Check the URL"
    if PLAN_NAME in names:
        return f"{url} holds what a run of `dataflow shard` has not finished: run that again, it goes on"
    below = [name for name in names if name.endswith("/" + MANIFEST_NAME)]
    if below:
        return f"{url} is no dataset, but {join_url(url, str(PurePosixPath(below[0]).parent))} is: open that"
    images = any(_suffix(name) in IMAGES for name in names)
    shards = [name for name in names if format_of(name) is not None and not (images and holds_text(name))]
    if shards:
        return (
            f"{url} holds shards ({shards[0]} ...) but no {MANIFEST_NAME}: `dataflow index {url}` writes it. If "
            "they are what a writer left that was stopped before its end, run that again instead"
        )
    if images:
        return f"{url} is a folder of images, not a dataset: `dataflow shard {url} DESTINATION` turns it into one"
    return f"{url} holds no {MANIFEST_NAME} and no shards that are known ({names[0]} ...). Check the URL"


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _is_file(url: str) -> bool:
    try:
        parent, name = split_url(url)
        open_store(parent).entry(name)
    except (OptionError, StorageNotFoundError):
        return False
    return True


def _copy(store: Store, entry: Entry, anew: bool) -> Path:
    """Returns the node's copy of a manifest, downloading it when there is none of this version."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dataflow" / "manifests"
    identity = hashlib.blake2b("\n".join((store.url, entry.version)).encode(), digest_size=16).hexdigest()
    target = folder / f"{identity}.arrow"
    # The size check passes over what a full disk or a power cut may have left. No version: no way to trust a copy.
    if not anew and entry.version and target.is_file() and target.stat().st_size == entry.size:
        return target
    temporary = folder / f".{identity}.{token_hex(8)}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "xb") as file:
                for start in range(0, entry.size, PIECE_BYTES):
                    file.write(store.read_range(entry.path, start, min(PIECE_BYTES, entry.size - start)))
            # Processes of one node may download at once: each publishes a whole file, the last one stays.
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"could not keep a copy of {join_url(store.url, entry.path)} ({entry.size} bytes) in {folder}: {error}. "
            "Make room there, or set XDG_CACHE_HOME to a folder that has it"
        ) from error
    logger.info("copied the manifest of %s (%d bytes) to %s", store.url, entry.size, target)
    return target
