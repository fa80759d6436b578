"""Steps that choose and rename columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dataflow.errors import OptionError
from dataflow.formats import Skipped
from dataflow.sharding.steps import Step

__all__ = ["Rename", "Select", "check_column"]


@dataclass(frozen=True)
class Select(Step):
    """Keeps some columns, in the order given.

    Args:
        names: The columns.

    Raises:
        OptionError: There is none, or one comes twice.
    """

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_once(self.names, "columns to keep")
        if not self.names:
            raise OptionError("there are no columns to keep: name at least one")

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """See `Step.schema`."""
        for name in self.names:
            check_column(schema, name)
        return pa.schema([schema.field(name) for name in self.names])

    def apply(self, batch: pa.RecordBatch, skip: bool) -> tuple[pa.RecordBatch, list[Skipped]]:
        """See `Step.apply`."""
        return batch.select(list(self.names)), []


@dataclass(frozen=True)
class Rename(Step):
    """Gives columns other names. They keep their places, and may swap names.

    Args:
        names: Pairs of an old and a new name.

    Raises:
        OptionError: A name comes twice on one side, or is empty.
    """

    names: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        _check_once([old for old, _ in self.names], "columns to rename")
        _check_once([new for _, new in self.names], "new names of columns")
        if not all(new for _, new in self.names):
            raise OptionError("a column cannot have an empty name")

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """See `Step.schema`."""
        for old, _ in self.names:
            check_column(schema, old)
        names = self._renamed(schema.names)
        double = next((name for name, count in Counter(names).items() if count > 1), None)
        if double is not None:
            raise OptionError(
                f"there would be two columns {double!r} after renaming: rename or leave out the one that has this name"
            )
        return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])

    def apply(self, batch: pa.RecordBatch, skip: bool) -> tuple[pa.RecordBatch, list[Skipped]]:
        """See `Step.apply`."""
        return batch.rename_columns(self._renamed(batch.schema.names)), []

    def _renamed(self, names: Sequence[str]) -> list[str]:
        new = dict(self.names)
        return [new.get(name, name) for name in names]


def check_column(schema: pa.Schema, name: str) -> None:
    """Makes sure that there is a column.

    Raises:
        OptionError: There is none; names those that exist.
    """
    if name not in schema.names:
        raise OptionError(f"there is no column {name!r}: there are {', '.join(map(repr, schema.names))}")


def _check_once(names: Sequence[str], what: str) -> None:
    double = next((name for name, count in Counter(names).items() if count > 1), None)
    if double is not None:
        raise OptionError(f"{double!r} comes twice among the {what}")
