"""What `dataflow shard` reads from, whatever it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from dataflow.formats import Skipped

__all__ = ["Source"]


class Source(Protocol):
    """Rows that are to become a dataset.

    Attributes:
        unit: What its items are called, in the plural.
        num_items: How many there are.
        num_bytes: About how many bytes they have.
        schema: Columns of a row.
        properties: What the dataset should keep, such as the list of classes.
        skipped: What belongs to no row; grows while reading where bad items are left out.
    """

    unit: str
    num_items: int
    num_bytes: int
    schema: pa.Schema
    properties: dict[str, Any]
    skipped: list[Skipped]

    def batches(self, seed: int | None, workers: int) -> Iterator[pa.RecordBatch]:
        """All rows, shuffled by a seed or in stored order (None); the same for any number of threads that read."""
