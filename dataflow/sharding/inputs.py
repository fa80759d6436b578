"""Finds the files that sources name: folders, single files, and patterns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from dataflow.errors import DatasetError, OptionError, StorageNotFoundError
from dataflow.sharding.glob import has_pattern, path_pattern
from dataflow.storage import Entry, Store, join_url, open_store, split_url
from dataflow.storage.location import local_path, scheme_of, tidy_url

__all__ = ["Found", "find_inputs"]

_THREADS = 16


@dataclass(frozen=True, slots=True)
class Found:
    """Files below one root.

    Attributes:
        store: The root.
        entries: The files, sorted by path.
        kind: Whether a "folder" was given, a "pattern" of paths below the root, or all "files" by their names.
    """

    store: Store
    entries: list[Entry]
    kind: Literal["folder", "pattern", "files"]


def find_inputs(urls: Sequence[str]) -> list[Found]:
    """The files of all sources. Single files of one store come together.

    Raises:
        OptionError: There is no source, or one file is in two of them.
        DatasetError: There is nothing at a source, or nothing matches a pattern.
        StorageError: A store could not be read.
    """
    if not urls:
        raise OptionError("there is no source: give a folder, a file or a pattern")
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="dataflow-find") as pool:
        files = list(pool.map(_file, urls))
    found: list[Found] = []
    named: dict[str, list[tuple[str, Entry]]] = {}
    for url, file in zip(urls, files, strict=True):
        if file is not None:
            named.setdefault(_store_of(file[0]), []).append(file)
        elif has_pattern(url) and not _is_local_folder(url):
            found.append(_matching(url))
        else:
            found.append(_folder(url))
    found += [_together(files) for files in named.values()]
    seen: set[str] = set()
    for part in found:
        for entry in part.entries:
            place = join_url(part.store.url, entry.path)
            if place in seen:
                raise OptionError(f"{place} is in two of the sources: name it once")
            seen.add(place)
    return found


def _file(url: str) -> tuple[str, Entry] | None:
    """The folder and the entry of a single file, None if it is none."""
    if url.endswith("/"):
        return None
    try:
        folder, name = split_url(local_path(url) if scheme_of(url) in ("", "file") else url)
    except OptionError:
        return None  # a bucket, or a path such as ".."
    if "://" in folder and has_pattern(url):
        return None  # a pattern: stores are not asked for names with such characters
    store = open_store(folder)
    try:
        return store.url, store.entry(name)
    except StorageNotFoundError:
        return None


def _is_local_folder(url: str) -> bool:
    return scheme_of(url) in ("", "file") and os.path.isdir(local_path(url))


def _folder(url: str) -> Found:
    store = open_store(url)
    entries = list(store.list())
    if not entries:
        raise DatasetError(f"there are no images and no shards at {store.url}: it is empty or does not exist")
    return Found(store, entries, "folder")


def _matching(url: str) -> Found:
    tidy = local_path(url) if scheme_of(url) in ("", "file") else tidy_url(url)
    parts = tidy.split("/")
    first = next(number for number, part in enumerate(parts) if has_pattern(part))
    if "://" in tidy and first < 3:
        raise OptionError(f"{url} is a pattern of buckets: name the bucket")
    store = open_store("/".join(parts[:first]) or "/")
    matches = path_pattern("/".join(parts[first:])).fullmatch
    entries = [entry for entry in store.list() if matches(entry.path)]
    if not entries:
        raise DatasetError(f"no file matches {url}: check the pattern (** stands for any number of folders)")
    return Found(store, entries, "pattern")


def _store_of(folder: str) -> str:
    return "/".join(folder.split("/")[:3]) if "://" in folder else ""


def _together(files: list[tuple[str, Entry]]) -> Found:
    """Single files below the nearest folder that they share."""
    shared = [folder.split("/") for folder, _ in files]
    depth = next(
        (number for number, parts in enumerate(zip(*shared, strict=False)) if len(set(parts)) > 1),
        min(map(len, shared)),
    )
    root = "/".join(shared[0][:depth]) or "/"
    entries = []
    for folder, (_, entry) in zip(shared, files, strict=True):
        entries.append(Entry("/".join([*folder[depth:], entry.path]), entry.size, entry.version))
    entries.sort(key=lambda entry: entry.path)
    return Found(open_store(root), entries, "files")
