"""Which files of a folder are images, which class each belongs to, and what the folder holds besides."""

from __future__ import annotations

import hashlib
import posixpath
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dataflow.errors import OptionError
from dataflow.formats import Skipped
from dataflow.sharding.image_kind import IMAGE_SUFFIXES
from dataflow.sharding.metadata import METADATA_NAMES
from dataflow.sharding.sidecars import SIDECAR_SUFFIXES
from dataflow.storage import Entry, Store
from dataflow.storage.local import LocalStore

__all__ = ["Folder", "check_no_splits", "class_numbers", "is_image", "is_metadata", "key_text", "scan_folder"]

_NAMED = 5
_SPLITS = frozenset(("train", "training", "val", "valid", "validation", "dev", "test", "testing", "eval"))
_NO_IMAGE = "not an image by its name"


@dataclass(slots=True)
class Folder:
    """What was found below a URL.

    Attributes:
        paths: The images, sorted.
        sizes: Bytes of each.
        metadata: The metadata files.
        beside: Files that may say something of the image with the same name, by path; see `read_sidecars`.
        classes: Names of the first-level folders, also of those without an image, sorted as text.
        skipped: Everything else.
        identity: Names the content: another one when any file was changed.
    """

    paths: list[str] = field(default_factory=list)
    sizes: array[int] = field(default_factory=lambda: array("q"))
    metadata: list[Entry] = field(default_factory=list)
    beside: dict[str, Entry] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    identity: str = ""


def scan_folder(store: Store, entries: Iterable[Entry], whole: bool) -> Folder:
    """Sorts the objects of a folder.

    Args:
        store: The folder.
        entries: The objects.
        whole: Whether these are all objects, so that a folder without one is a class without images.
    """
    folder = Folder()
    classes: set[str] = _subfolders(store) if whole else set()
    digest = hashlib.blake2b(digest_size=16)
    for entry in entries:
        # `repr` writes every path as text, even one that is not UTF-8.
        digest.update(repr((entry.path, entry.size, entry.version)).encode())
        name, slash, _ = entry.path.partition("/")
        if slash:
            classes.add(name)
        if is_metadata(entry.path):
            folder.metadata.append(entry)
        elif is_image(entry.path):
            folder.paths.append(entry.path)
            folder.sizes.append(entry.size)
        elif entry.path.lower().endswith(SIDECAR_SUFFIXES):
            folder.beside[entry.path] = entry
        else:
            folder.skipped.append(Skipped(entry.path, _NO_IMAGE))
    stems = {posixpath.splitext(path)[0] for path in folder.paths} if folder.beside else set()
    for path in list(folder.beside):
        if folder.metadata or posixpath.splitext(path)[0] not in stems:
            del folder.beside[path]
            folder.skipped.append(Skipped(path, _NO_IMAGE))
    folder.classes = sorted(classes)
    folder.identity = digest.hexdigest()
    return folder


def is_image(path: str) -> bool:
    """Whether a file is an image by its name."""
    return posixpath.splitext(path)[1].lower() in IMAGE_SUFFIXES


def is_metadata(path: str) -> bool:
    """Whether a file would hold the metadata of a folder of images."""
    return posixpath.basename(path) in METADATA_NAMES


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


def check_no_splits(url: str, folders: Sequence[str]) -> None:
    """Makes sure that folders are not taken for classes that are splits.

    Raises:
        OptionError: All of them have names of splits.
    """
    if folders and all(name.lower() in _SPLITS for name in folders):
        raise OptionError(
            f"the folders of {url} are splits and no classes ({', '.join(folders)}): give --split-folders, which makes "
            f"a dataset of each, or one of them alone ({url}/{folders[0]}), or --no-labels to take all images together"
        )


def key_text(path: str) -> str:
    """A path as text: bytes of it that are not UTF-8 become %XX."""
    return re.sub("[\udc80-\udcff]", lambda match: f"%{ord(match[0]) - 0xDC00:02X}", path)


def _subfolders(store: Store) -> set[str]:
    """First-level folders of a local source: one that is empty is a class too, though listings of stores pass it."""
    if not isinstance(store, LocalStore) or not Path(store.url).is_dir():
        return set()
    return {path.name for path in Path(store.url).iterdir() if path.is_dir() and not path.name.startswith(".")}
