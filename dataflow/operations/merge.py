"""Makes one dataset of several: a manifest over all their shards, which stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dataflow.dataset import Manifest, ManifestWriter
from dataflow.errors import DatasetError, OptionError
from dataflow.formats import format_named
from dataflow.formats.arrow import ArrowFormat
from dataflow.operations.common_base import common_base
from dataflow.operations.target import check_no_dataset
from dataflow.sharding.transcode import TRANSCODED
from dataflow.storage import join_url, open_store

__all__ = ["Merged", "merge"]

_ARROW = ArrowFormat.name
_CLASSES = "classes"
_LABEL = "label"


@dataclass(frozen=True, slots=True)
class Merged:
    """What came of a merge.

    Attributes:
        manifest: The dataset of all shards.
        dropped: Names of properties that differ between the datasets, and that the merged one does not have.
    """

    manifest: Manifest
    dropped: list[str]


def merge(urls: Sequence[str], out: str) -> Merged:
    """Writes a manifest over the shards of several datasets, in the order given. No shard is read.

    Rows lack the columns that only other datasets have: these are null there. Excluded rows stay excluded.

    Args:
        urls: The datasets, two or more.
        out: Folder for the manifest.

    Raises:
        DatasetError: They do not go together: other formats, types of columns or classes; or a shard is in two of them.
        OptionError: They lie in different stores, or `out` holds a dataset.
        StorageError: A store could not be read or written.
    """
    if len(urls) < 2:
        raise OptionError("merge takes two datasets or more")
    target = open_store(out)
    check_no_dataset(target)
    manifests = [Manifest.open(url) for url in urls]
    _check_formats(manifests)
    _check_classes(manifests)
    schema = _merge_schemas(manifests)
    base, folders = common_base([manifest.base_url for manifest in manifests])
    properties, dropped = _merge_properties(manifests)
    writer = ManifestWriter(manifests[0].format, "" if base == target.url else base, properties)
    seen: dict[str, str] = {}
    for manifest, folder in zip(manifests, folders, strict=True):
        own = _detail(manifest, schema)
        for shard in range(manifest.num_shards):
            path = join_url(folder, manifest.shard_path(shard)) if folder else manifest.shard_path(shard)
            if path in seen:
                raise DatasetError(
                    f"{join_url(base, path)} is a shard of {seen[path]} and of {manifest.url}: its rows would come "
                    "twice. Leave one of them out"
                )
            seen[path] = manifest.url
            writer.add_from(manifest, shard, path=path, detail=manifest.detail(shard) or own)
    writer.write(target, schema)
    return Merged(Manifest.open(target.url), dropped)


def _check_formats(manifests: list[Manifest]) -> None:
    first = manifests[0]
    for manifest in manifests[1:]:
        if manifest.format != first.format:
            raise DatasetError(
                f"{manifest.url} has shards of the format {manifest.format!r}, {first.url} of {first.format!r}: one "
                f"manifest describes one format. Turn one into the other: `dataflow shard {manifest.url} NEW`"
            )


def _check_classes(manifests: list[Manifest]) -> None:
    """Label 3 must be the same class in all of them."""
    listed = [manifest for manifest in manifests if _CLASSES in manifest.properties]
    if not listed:
        return
    first = listed[0]
    remedy = f"Shard it again from its source with the same classes: `dataflow shard SRC NEW --classes-of {first.url}`"
    for manifest in manifests:
        if _CLASSES not in manifest.properties and _LABEL in manifest.schema.names:
            raise DatasetError(f"{manifest.url} has labels but no list of classes, which {first.url} has. {remedy}")
        if _CLASSES in manifest.properties and manifest.properties[_CLASSES] != first.properties[_CLASSES]:
            raise DatasetError(
                f"{manifest.url} has other classes than {first.url}: "
                f"{_difference(first.properties[_CLASSES], manifest.properties[_CLASSES])}. {remedy}"
            )


def _difference(first: Any, second: Any) -> str:
    if isinstance(first, list) and isinstance(second, list):
        for number, (one, other) in enumerate(zip(first, second, strict=False)):
            if one != other:
                return f"class {number} is {other!r} there and {one!r} here"
        return f"{len(second)} there and {len(first)} here"
    return f"{second!r} there and {first!r} here"


def _merge_schemas(manifests: list[Manifest]) -> pa.Schema:
    """The schema that the shards of all datasets can be read with."""
    kind = format_named(manifests[0].format)
    if kind.name == _ARROW:
        return _union(manifests)
    schema = manifests[0].schema
    for manifest in manifests[1:]:
        try:
            schema = kind.merge(schema, manifest.schema)
        except DatasetError as error:
            raise DatasetError(f"{manifest.url} {error}. Merge datasets with the same columns") from error
    return schema


def _union(manifests: list[Manifest]) -> pa.Schema:
    """The columns of all datasets, in the order in which they first come."""
    fields: dict[str, pa.Field] = {}
    for manifest in manifests:
        for field in manifest.schema:
            known = fields.setdefault(field.name, field)
            if known.type != field.type:
                raise DatasetError(
                    f"{manifest.url} has column {field.name!r} as {field.type}, another dataset has it as "
                    f"{known.type}. Write one of them again with the other's type"
                )
            if field.nullable or any(field.name not in other.schema.names for other in manifests):
                fields[field.name] = known.with_nullable(True)
    return pa.schema(fields.values(), metadata=manifests[0].schema.metadata)


def _detail(manifest: Manifest, schema: pa.Schema) -> bytes:
    """What shards need that have none of their own: Arrow's are read with the columns that they were written with."""
    if manifest.format != _ARROW or manifest.schema.equals(schema):
        return b""
    return bytes(manifest.schema.serialize())


def _merge_properties(manifests: list[Manifest]) -> tuple[dict[str, Any], list[str]]:
    """Properties that are the same wherever they are given, and the names of the others."""
    merged: dict[str, Any] = {}
    dropped: dict[str, None] = {}
    for manifest in manifests:
        # What was done to images has to be true of all of them.
        for name, value in ({TRANSCODED: []} | manifest.properties).items():
            if merged.setdefault(name, value) != value:
                dropped[name] = None
    if not merged[TRANSCODED]:
        del merged[TRANSCODED]
    return {name: value for name, value in merged.items() if name not in dropped}, list(dropped)
