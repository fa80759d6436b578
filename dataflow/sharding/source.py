"""What `shard` reads from, whatever it is: items of known size, and a reader that travels to worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.formats import Skipped

__all__ = ["Chunk", "Reader", "Source"]


class Chunk(NamedTuple):
    """What one thread reads at a time.

    Attributes:
        place: What is read; only the reader knows what this is.
        num_bytes: About how many bytes that takes.
    """

    place: Any
    num_bytes: int


class Reader(Protocol):
    """Reads items of a source. It is pickled for each worker process, so it holds nothing that grows with the items."""

    def chunks(self, part: Any, rows_per_block: int) -> Iterator[Chunk]:
        """Cuts a part of the source into what is read at a time: at most some MiB or one item, in order.

        Args:
            part: From `Source.part`.
            rows_per_block: Chunks of a multiple of this many rows cost the least.
        """
        ...

    def read(self, place: Any) -> tuple[pa.RecordBatch, list[Skipped]]:
        """Reads a chunk: its good rows, and what was left out of it. Called from many threads.

        Raises:
            CorruptDataError: There is something bad, and bad things are not to be left out.
            StorageError: The store could not be read, which is never a reason to leave something out.
        """
        ...

    def describe(self, place: Any) -> str:
        """Names a chunk in messages."""
        ...


class Source(Protocol):
    """Items that are to become a dataset, in a stored order. An item has one row, as a file has, or many, as a block.

    Attributes:
        unit: What rows are called, in the plural.
        item_rows: int64 [items], rows of each item.
        item_bytes: int64 [items], stored bytes of each item.
        schema: Columns of a row.
        properties: What the dataset should keep, such as the list of classes.
        skipped: What belongs to no item.
        identity: Names what the items hold: another one when a file was changed.
        concurrency: How many reads in flight keep its store busy.
    """

    unit: str
    item_rows: npt.NDArray[np.int64]
    item_bytes: npt.NDArray[np.int64]
    schema: pa.Schema
    properties: dict[str, Any]
    skipped: list[Skipped]
    identity: str
    concurrency: int

    @property
    def row_bytes(self) -> float | None:
        """Mean size of a row in memory; None where only reading tells."""
        ...

    @property
    def reader(self) -> Reader:
        """Reads items."""
        ...

    def values(self, column: str) -> pa.Array | None:
        """A column's value for each item, where an item is one row and that value is known before it is read."""
        ...

    def part(self, items: npt.NDArray[np.int64], start: int, stop: int) -> Any:
        """Some items as their reader takes them, to be pickled.

        Args:
            items: Their numbers, in the order in which they are read.
            start: First row of the first item.
            stop: Row of the last item behind its last one.
        """
        ...
