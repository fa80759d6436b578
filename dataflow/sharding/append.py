"""A manifest over the shards of a dataset that is there and over new ones, whose columns may differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from dataflow.dataset import Manifest, ManifestWriter
from dataflow.errors import DatasetError, OptionError
from dataflow.formats import Block
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.transcode import TRANSCODED
from dataflow.storage import Store

__all__ = ["GrowingManifest", "options_to_append"]


def options_to_append(base: Manifest, options: ShardOptions) -> ShardOptions:
    """The options, with what has to be as in the dataset that shards are added to: the numbers of classes."""
    classes = base.properties.get("classes")
    if options.classes is not None or not isinstance(classes, list):
        return options
    return replace(options, classes=tuple(classes))


class GrowingManifest:
    """Collects new shards behind those of a dataset.

    Columns that one side lacks are null there: each shard whose columns are not those of the whole has its own schema
    noted beside it.

    Args:
        base: The dataset that shards are added to, None for a new one.
        schema: Columns of the new shards.
        properties: JSON-able facts to keep; those of the dataset that is there win.

    Raises:
        DatasetError: A column has another type than in the dataset; names it and both.
        OptionError: Its tokens or images were made in another way.
    """

    def __init__(self, base: Manifest | None, schema: pa.Schema, properties: dict[str, Any]) -> None:
        self.num_new_rows = 0
        if base is not None:
            _check_tokenizer(base, properties)
            _check_transcoded(base, properties)
        self._schema = schema if base is None else _merged(base, schema)
        self._detail = _detail(schema, self._schema)
        self._writer = ManifestWriter("arrow", properties=properties | ({} if base is None else base.properties))
        for shard in range(0 if base is None else base.num_shards):
            assert base is not None
            detail = base.detail(shard)
            own = pa.ipc.read_schema(pa.py_buffer(detail)) if detail else base.schema
            self._writer.add_from(base, shard, detail=_detail(own, self._schema))

    def add(self, name: str, size: int, blocks: list[Block]) -> None:
        """Adds the next new shard."""
        # Without the store's version of the file: a dataset written twice is the same to the byte.
        self._writer.add(name, size, "", blocks, self._detail)
        self.num_new_rows += sum(block.rows for block in blocks)

    def write(self, store: Store) -> None:
        """Replaces the manifest in one step."""
        self._writer.write(store, self._schema)


def _detail(own: pa.Schema, schema: pa.Schema) -> bytes:
    """What is noted beside a shard: its own schema, where it is not that of the dataset."""
    return b"" if own.equals(schema) else own.serialize().to_pybytes()


def _check_tokenizer(base: Manifest, properties: dict[str, Any]) -> None:
    old, new = (facts.get("tokenizer") for facts in (base.properties, properties))
    if old is not None and new is not None and old != new:
        raise OptionError(f"the tokens of {base.url} were made with {old}, and new ones cannot be with {new}")


def _check_transcoded(base: Manifest, properties: dict[str, Any]) -> None:
    # In both directions: what a dataset says of its images is said of all.
    old, new = (facts.get(TRANSCODED, []) for facts in (base.properties, properties))
    if old != new:
        raise OptionError(
            f"the images of {base.url} were transcoded with {old or 'nothing'}, and new ones would be with "
            f"{new or 'nothing'}: give the same --transcode, or write a dataset of its own"
        )


def _merged(base: Manifest, schema: pa.Schema) -> pa.Schema:
    old, new = ({field.name: field for field in columns} for columns in (base.schema, schema))
    for name in old.keys() & new.keys():
        if not old[name].type.equals(new[name].type):
            raise DatasetError(
                f"column {name!r} is {new[name].type}, and {old[name].type} in {base.url}: rows with another type "
                "cannot be appended. Cast or rename the column, or write a dataset of its own"
            )
    fields = []
    for name, field in (old | {name: field for name, field in new.items() if name not in old}).items():
        shared = name in old and name in new
        fields.append(field.with_nullable(field.nullable or not shared or new[name].nullable))
    return pa.schema(fields, metadata=base.schema.metadata)
