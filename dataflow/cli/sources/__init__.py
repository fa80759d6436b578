"""What `dataflow shard` can read: folders of images, shards of any known format, datasets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from dataflow.cli.sources.folder import scan_folder
from dataflow.cli.sources.images import ImageOptions, ImageSource
from dataflow.cli.sources.shards import ShardSource
from dataflow.cli.sources.source import Source
from dataflow.dataset import Manifest, index
from dataflow.dataset.manifest_file import MANIFEST_NAME
from dataflow.errors import DatasetError
from dataflow.formats import Skipped, format_of
from dataflow.storage import open_store

__all__ = ["ImageOptions", "Source", "open_source"]


@contextmanager
def open_source(url: str, options: ImageOptions) -> Iterator[Source]:
    """Finds out what is at a URL and opens it.

    Raises:
        DatasetError: There is nothing that can be sharded, or several kinds of it; says what to do.
        StorageError: The store could not be read.
    """
    store = open_store(url)
    entries = list(store.list())
    if any(entry.path == MANIFEST_NAME for entry in entries):
        yield ShardSource(Manifest.open(url), [], options.skip_bad)
        return
    folder = scan_folder(store, entries)
    shards = [entry.path for entry in entries if format_of(entry.path) is not None]
    if shards and folder.paths:
        raise DatasetError(
            f"{store.url} holds shards ({shards[0]} ...) and images ({folder.paths[0]} ...). Give a folder of one kind"
        )
    if shards:
        with tempfile.TemporaryDirectory(prefix="dataflow-index-") as temporary:
            skipped: list[Skipped] = []
            manifest = index(url, out=temporary, on_skip=skipped.append)
            yield ShardSource(manifest, skipped, options.skip_bad)
        return
    if not folder.paths:
        held = f": it holds {entries[0].path} ..." if entries else ": it is empty or does not exist"
        raise DatasetError(f"there are no images and no shards at {store.url}{held}. Check the URL")
    yield ImageSource(store, folder, options)
