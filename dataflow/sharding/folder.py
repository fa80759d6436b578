"""Which files of a folder are images, which class each belongs to, and what the folder holds besides."""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from dataflow.errors import OptionError
from dataflow.formats import Skipped
from dataflow.sharding.image_kind import IMAGE_SUFFIXES
from dataflow.sharding.metadata import METADATA_NAME
from dataflow.storage import Entry, Store
from dataflow.storage.local import LocalStore

__all__ = ["Folder", "class_numbers", "key_text", "scan_folder"]

_OTHER_METADATA = ("metadata.csv", "metadata.parquet")
_NAMED = 5


@dataclass(slots=True)
class Folder:
    """What was found below a URL.

    Attributes:
        paths: The images, sorted.
        sizes: Bytes of each.
        metadata: The metadata files.
        other_metadata: Metadata in forms that are not read.
        classes: Names of the first-level folders, also of those without an image, sorted as text.
        skipped: Everything else.
        identity: Names the content: another one when any file was changed.
    """

    paths: list[str] = field(default_factory=list)
    sizes: array[int] = field(default_factory=lambda: array("q"))
    metadata: list[Entry] = field(default_factory=list)
    other_metadata: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    identity: str = ""


def scan_folder(store: Store, entries: Iterable[Entry]) -> Folder:
    """Sorts the objects of a folder."""
    folder = Folder()
    classes: set[str] = _subfolders(store)
    digest = hashlib.blake2b(digest_size=16)
    for entry in entries:
        digest.update(json.dumps([entry.path, entry.size, entry.version]).encode())
        parts = entry.path.split("/")
        if any(part.startswith(".") for part in parts):
            folder.skipped.append(Skipped(entry.path, "hidden"))
            continue
        if len(parts) > 1:
            classes.add(parts[0])
        if parts[-1] == METADATA_NAME:
            folder.metadata.append(entry)
        elif parts[-1] in _OTHER_METADATA:
            folder.other_metadata.append(entry.path)
        elif PurePosixPath(parts[-1]).suffix.lower() in IMAGE_SUFFIXES:
            folder.paths.append(entry.path)
            folder.sizes.append(entry.size)
        else:
            folder.skipped.append(Skipped(entry.path, "not an image by its name"))
    folder.classes = sorted(classes)
    folder.identity = digest.hexdigest()
    return folder


def class_numbers(url: str, paths: list[str], classes: list[str]) -> array[int]:
    """The label of each image: the place of its first-level folder in the list of classes.

    Raises:
        OptionError: An image is in no folder, or in one that is no class.
    """
    numbers = {name: number for number, name in enumerate(classes)}
    labels = array("q")
    outside: list[str] = []
    for path in paths:
        name, slash, _ = path.partition("/")
        if slash and name in numbers:
            labels.append(numbers[name])
        else:
            outside.append(path)
    if outside:
        raise OptionError(
            f"{url}: {len(outside)} images are in no folder of a class, for example {', '.join(outside[:_NAMED])}. "
            f"The classes are {', '.join(classes[:_NAMED])}{', ...' if len(classes) > _NAMED else ''}. Move the images "
            "into folders of their classes, or give --no-labels"
        )
    return labels


def key_text(path: str) -> str:
    """A path as text: bytes of it that are not UTF-8 become %XX."""
    return re.sub("[\udc80-\udcff]", lambda match: f"%{ord(match[0]) - 0xDC00:02X}", path)


def _subfolders(store: Store) -> set[str]:
    """First-level folders of a local source: one that is empty is a class too, though listings of stores pass it."""
    if not isinstance(store, LocalStore) or not Path(store.url).is_dir():
        return set()
    return {path.name for path in Path(store.url).iterdir() if path.is_dir() and not path.name.startswith(".")}
