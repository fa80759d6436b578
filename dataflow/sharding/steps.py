"""Changes of rows between reading and writing: batch in, batch out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

__all__ = ["Step", "apply_steps", "schema_after"]


class Step(Protocol):
    """One change. It travels to worker processes, and its `repr` is part of the plan: a frozen dataclass does well."""

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of rows after this step, from those before it.

        Raises:
            OptionError: They lack what the step needs.
        """
        ...

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Changes some rows, in any batches: the result for a row depends on that row alone."""
        ...


def apply_steps(steps: Sequence[Step], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows after all steps."""
    for step in steps:
        batch = step.apply(batch)
    return batch


def schema_after(steps: Sequence[Step], schema: pa.Schema) -> pa.Schema:
    """The columns after all steps."""
    for step in steps:
        schema = step.schema(schema)
    return schema
