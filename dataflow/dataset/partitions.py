"""Columns that only the names of folders hold, such as `kind=cat/`: partitioned writers leave them out of the files."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from dataflow.formats import Skipped

__all__ = ["unread_columns"]


def unread_columns(paths: Iterable[str], schema: pa.Schema) -> list[Skipped]:
    """The columns that folders of the shards name and that no shard has, each with the first folder that does."""
    folders: dict[str, str] = {}
    for path in paths:
        for folder in path.split("/")[:-1]:
            name, equals, _ = folder.partition("=")
            if name and equals and name not in schema.names:
                folders.setdefault(name, folder)
    return [
        Skipped(f"the column {name!r} of folders such as {folder}", "values in names of folders, which are not read")
        for name, folder in folders.items()
    ]
