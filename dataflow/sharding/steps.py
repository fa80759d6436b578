"""Changes of rows between reading and writing: batch in, batch out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from dataflow.errors import CorruptDataError
from dataflow.formats import Skipped
from dataflow.sharding.source import Reader

__all__ = ["Step", "read_rows", "row_name", "schema_after"]


class Step(Protocol):
    """One change. It travels to worker processes, and its `repr` is part of the plan: a frozen dataclass does well."""

    def properties(self, schema: pa.Schema, before: Mapping[str, Any]) -> dict[str, Any]:
        """JSON-able facts that the dataset should keep.

        Args:
            schema: The columns before this step.
            before: Facts that there are already.

        Raises:
            OptionError: The columns lack what the step needs.
        """
        return {}

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of rows after this step, from those before it.

        Raises:
            OptionError: They lack what the step needs.
        """
        ...

    def apply(self, batch: pa.RecordBatch, skip: bool) -> tuple[pa.RecordBatch, list[Skipped]]:
        """Changes some rows, in any batches: the result for a row depends on that row alone.

        Args:
            batch: The rows.
            skip: Whether bad rows are left out instead of ending the run.

        Returns:
            The rows, and those that were left out because something is wrong with them, named by `row_name`.

        Raises:
            CorruptDataError: A row is bad, and `skip` is false.
        """
        ...


def read_rows(reader: Reader, place: Any, steps: Sequence[Step], skip: bool) -> tuple[pa.RecordBatch, list[Skipped]]:
    """A chunk of a source after all steps, and all that was left out of it; errors as those of `Reader.read`."""
    batch, skipped = reader.read(place)
    for step in steps:
        try:
            batch, left_out = step.apply(batch, skip)
        except CorruptDataError as error:
            raise CorruptDataError(f"{reader.describe(place)}: {error}") from error
        skipped += [replace(item, name=f"{item.name} of {reader.describe(place)}") for item in left_out]
    return batch, skipped


def schema_after(steps: Sequence[Step], schema: pa.Schema) -> pa.Schema:
    """The columns after all steps."""
    for step in steps:
        schema = step.schema(schema)
    return schema


def row_name(batch: pa.RecordBatch, row: int) -> str:
    """What a row is called in messages: its key, or its place among the rows that are read together with it."""
    if "key" in batch.schema.names:
        return repr(batch.column("key")[row].as_py())
    return f"row {row}"
