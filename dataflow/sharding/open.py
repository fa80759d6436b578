"""Finds out what sources are: folders of images, shards of any known format, datasets."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dataflow.dataset import Manifest
from dataflow.dataset.manifest_file import MANIFEST_NAME
from dataflow.dataset.target import PLAN_NAME
from dataflow.errors import DatasetError, OptionError
from dataflow.formats import FORMATS, Format, Skipped, format_named, format_of, is_side_file
from dataflow.formats.arrow import ArrowFormat
from dataflow.formats.parquet import ParquetFormat
from dataflow.sharding.combined import combine
from dataflow.sharding.expand import expand, is_packed_archive, needs_expanding
from dataflow.sharding.folder import Folder, is_image, is_metadata, scan_folder
from dataflow.sharding.glob import has_pattern
from dataflow.sharding.images import ImageSource
from dataflow.sharding.indexed import Shards, index_all
from dataflow.sharding.inputs import Found, find_inputs
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.rewrite import has_large_row_groups, rewrite
from dataflow.sharding.shards import ShardSource
from dataflow.sharding.source import Source
from dataflow.storage import Entry, Store, join_url, open_store

__all__ = ["open_sources"]


@dataclass(slots=True)
class _Sorted:
    """What was found below one root, by kind."""

    datasets: list[str] = field(default_factory=list)
    images: list[Entry] = field(default_factory=list)
    shards: dict[str, list[Entry]] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)


def open_sources(urls: Sequence[str], options: ShardOptions, scratch: Path, target: str) -> Source:
    """Opens everything at some URLs as one source.

    Args:
        urls: Folders, files, datasets and patterns.
        options: How they are read.
        scratch: A local folder for what is needed while they are read.
        target: The folder that will be written, which nothing is read from.

    Raises:
        OptionError: The target lies in a source, or a source is named twice.
        DatasetError: There is nothing that can be sharded, or what there is does not go together; says what to do.
        CorruptDataError: A shard is damaged.
        StorageError: A store could not be read.
    """
    skip = options.on_error == "skip"
    for url in urls:
        root = "" if has_pattern(url) else open_store(url).url
        if root and f"{target}/".startswith(f"{root}/"):
            raise OptionError(f"{target} lies inside {root}: write the dataset beside its source")
    found = find_inputs(urls)
    sources: list[tuple[str, Source]] = []
    skipped: list[Skipped] = []
    folders: list[tuple[Store, Folder]] = []
    shards: dict[str, list[Shards]] = {}
    for part in found:
        _check_outside(part, target)
        kinds = _sort(part)
        skipped += kinds.skipped
        sources += [(f"the rows of {url}", ShardSource(Manifest.open(url), [], skip)) for url in kinds.datasets]
        if kinds.images:
            folders.append((part.store, scan_folder(part.store, kinds.images, part.kind == "folder")))
        for name, entries in kinds.shards.items():
            for readable, groups, left_out in _readable(name, part.store, entries, scratch, skip):
                skipped += left_out
                shards.setdefault(readable, []).extend(groups)
    sources += _open_images(folders, options)
    for name, groups in sorted((name, groups) for name, groups in shards.items() if groups):
        manifests, left_out = index_all(format_named(name), groups, scratch, skip)
        skipped += left_out
        example = join_url(groups[0].origin, groups[0].entries[0].path)
        label = f"the {name} shards ({example}, ...)"
        sources += [(label, ShardSource(manifest, [], skip)) for manifest in manifests]
    if not sources:
        place = found[0].store.url
        held = f": it holds {skipped[0].name} ({skipped[0].reason})" if skipped else ""
        raise DatasetError(f"there are no images and no shards with rows at {place}{held}. Check the URL")
    source = combine(sources)
    source.skipped = [*skipped, *source.skipped]
    return source


def _check_outside(part: Found, target: str) -> None:
    inside = next((e.path for e in part.entries if join_url(part.store.url, e.path).startswith(f"{target}/")), None)
    if inside is not None:
        raise OptionError(f"{join_url(part.store.url, inside)} lies inside {target}: write the dataset elsewhere")


def _sort(part: Found) -> _Sorted:
    kinds = _Sorted()
    roots = {posixpath.dirname(entry.path) for entry in part.entries if posixpath.basename(entry.path) == MANIFEST_NAME}
    kinds.datasets = sorted(join_url(part.store.url, root) if root else part.store.url for root in roots)
    rest: list[Entry] = []
    for entry in part.entries:
        if any(not root or entry.path.startswith(f"{root}/") for root in roots):
            continue
        if f"/{entry.path}".endswith(f"/{PLAN_NAME}"):
            raise DatasetError(
                f"{join_url(part.store.url, entry.path)} says that a run of `dataflow shard` has not finished: run "
                "that again, it goes on"
            )
        if part.kind != "files" and "/." in f"/{entry.path}":
            kinds.skipped.append(Skipped(entry.path, "hidden"))
        else:
            rest.append(entry)
    images = any(is_image(entry.path) for entry in rest)
    telling = any(_format(entry.path) is not None and not is_side_file(entry.path) for entry in rest)
    for entry in rest:
        kind = _format(entry.path)
        if images and (kind is None or is_side_file(entry.path) or is_metadata(entry.path)):
            kinds.images.append(entry)
        elif kind is None:
            kinds.skipped.append(Skipped(entry.path, "no known kind of file by its name"))
        elif telling and is_side_file(entry.path) and part.kind == "folder":
            kinds.skipped.append(Skipped(entry.path, "taken for a note beside shards"))
        else:
            kinds.shards.setdefault(kind.name, []).append(entry)
    return kinds


def _format(path: str) -> Format | None:
    if is_packed_archive(path):
        return next(kind for kind in FORMATS if ".tar" in kind.suffixes)
    return format_of(path)


def _readable(
    name: str, store: Store, entries: list[Entry], scratch: Path, skip: bool
) -> Iterator[tuple[str, list[Shards], list[Skipped]]]:
    """The shards where parts of them can be read: some in their place, others as copies, and what these lack.

    Yields:
        The format, the shards, and what was left out of them.
    """
    parquet = name == ParquetFormat.name
    unfit = [entry for entry in entries if (has_large_row_groups if parquet else needs_expanding)(store, entry)]
    paths = {entry.path for entry in unfit}
    if len(unfit) < len(entries):
        yield name, [Shards(store, [entry for entry in entries if entry.path not in paths], store.url)], []
    if unfit:
        folder = scratch / f"copies-{len(list(scratch.glob('copies-*')))}"
        made, skipped = (rewrite if parquet else expand)(store, unfit, folder, skip)
        copies = open_store(str(folder))
        groups = [Shards(copies, [copies.entry(path) for path in made], store.url)] if made else []
        yield ArrowFormat.name if parquet else name, groups, skipped


def _open_images(folders: list[tuple[Store, Folder]], options: ShardOptions) -> list[tuple[str, Source]]:
    if len(folders) > 1 and options.labels and options.classes is None:
        classes = sorted({name for _, folder in folders if not folder.metadata for name in folder.classes})
        options = replace(options, classes=tuple(classes) or None)
    sources: list[tuple[str, Source]] = []
    owners: dict[str, str] = {}
    for store, folder in folders:
        source = ImageSource(store, folder, options)
        sources.append((f"the images of {store.url} ({folder.paths[0]}, ...)", source))
        for path in folder.paths if len(folders) > 1 else ():
            if owners.setdefault(path, store.url) != store.url:
                raise OptionError(
                    f"{store.url} and {owners[path]} both have an image {path}, and keys are the paths of images: give "
                    "the folder above them, or patterns that begin there"
                )
    return sources
