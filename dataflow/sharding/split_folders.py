"""Folders that are splits, such as train and val, with folders of classes in them."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import DatasetError
from dataflow.formats import Skipped
from dataflow.sharding.folder import is_image, is_metadata, scan_folder
from dataflow.storage import Entry, join_url, open_store

__all__ = ["SplitFolders", "find_split_folders"]


@dataclass(frozen=True, slots=True)
class SplitFolders:
    """The splits below a URL.

    Attributes:
        url: The URL.
        names: The splits.
        classes: Names of the folders of classes in all of them.
        skipped: Files that are in none.
    """

    url: str
    names: list[str]
    classes: list[str]
    skipped: list[Skipped]


def find_split_folders(url: str) -> SplitFolders:
    """Finds the folders below a URL.

    Raises:
        DatasetError: There are none.
        StorageError: The store could not be read.
    """
    store = open_store(url)
    folders: dict[str, list[Entry]] = {}
    skipped = []
    for entry in store.list():
        name, slash, rest = entry.path.partition("/")
        if slash and not name.startswith("."):
            folders.setdefault(name, []).append(Entry(rest, entry.size, entry.version))
        else:
            skipped.append(Skipped(entry.path, "in no folder of a split"))
    if not folders:
        raise DatasetError(
            f"there are no folders of splits at {store.url}: leave out --split-folders, or check the URL"
        )
    classes: set[str] = set()
    for name, entries in folders.items():
        shown = [entry for entry in entries if not any(part.startswith(".") for part in entry.path.split("/"))]
        images = [entry for entry in shown if is_image(entry.path)]
        if images and not any(is_metadata(entry.path) for entry in shown):
            classes.update(scan_folder(open_store(join_url(store.url, name)), images, whole=True).classes)
    return SplitFolders(store.url, list(folders), sorted(classes), skipped)
