"""Finds out what is at a URL: a folder of images, shards of any known format, or a dataset."""

from __future__ import annotations

from dataflow.dataset import Manifest, index
from dataflow.dataset.manifest_file import MANIFEST_NAME
from dataflow.errors import DatasetError
from dataflow.formats import Skipped, format_of, holds_text
from dataflow.sharding.folder import scan_folder
from dataflow.sharding.images import ImageSource
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.shards import ShardSource
from dataflow.sharding.source import Source
from dataflow.storage import open_store

__all__ = ["open_source"]


def open_source(url: str, options: ShardOptions, index_url: str) -> Source:
    """Opens what is at a URL.

    Args:
        url: The source.
        options: How it is read.
        index_url: A folder for the manifest of shards that have none.

    Raises:
        DatasetError: There is nothing that can be sharded, or several kinds of it; says what to do.
        CorruptDataError: A shard is damaged.
        StorageError: The store could not be read.
    """
    store = open_store(url)
    entries = list(store.list())
    skip = options.on_error == "skip"
    if any(entry.path == MANIFEST_NAME for entry in entries):
        return ShardSource(Manifest.open(url), [], skip)
    folder = scan_folder(store, entries)
    shards = [entry.path for entry in entries if format_of(entry.path) is not None]
    if folder.paths:
        shards = [path for path in shards if not holds_text(path)]
    if shards and folder.paths:
        raise DatasetError(
            f"{store.url} holds shards ({shards[0]} ...) and images ({folder.paths[0]} ...). Give a folder of one kind"
        )
    if shards:
        skipped: list[Skipped] = []
        manifest = index(url, out=index_url, on_skip=skipped.append)
        return ShardSource(manifest, skipped, skip)
    if not folder.paths:
        held = f": it holds {entries[0].path} ..." if entries else ": it is empty or does not exist"
        raise DatasetError(f"there are no images and no shards at {store.url}{held}. Check the URL")
    return ImageSource(store, folder, options)
