"""Several sources as one: their rows have the same columns, in types that hold the values of all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import DatasetError, OptionError
from dataflow.formats import Skipped
from dataflow.formats.types import merge_columns
from dataflow.sharding.source import Chunk, Reader, Source
from dataflow.sharding.transcode import TRANSCODED

__all__ = ["CombinedSource", "combine"]


def combine(sources: Sequence[tuple[str, Source]]) -> Source:
    """One source of some, in their order.

    Args:
        sources: Each with what messages call it.

    Raises:
        DatasetError: Their columns differ.
        OptionError: Something that the dataset should keep differs, such as the list of classes.
    """
    first_name, first = sources[0]
    if len(sources) == 1:
        return first
    schema = first.schema
    properties = {TRANSCODED: []} | first.properties
    for name, source in sources[1:]:
        try:
            schema = merge_columns(schema, source.schema)
        except DatasetError as error:
            raise DatasetError(
                f"{first_name} have the columns {_columns(first)}, and {name} the columns {_columns(source)}: one "
                "dataset has one set of columns. Shard them apart: give the files of one kind alone, for example by a "
                "pattern such as 'folder/**/*.jsonl'"
            ) from error
        # What was done to images is said of all of them.
        for fact, value in ({TRANSCODED: []} | source.properties).items():
            if fact != "shuffle_seed" and properties.setdefault(fact, value) != value:
                raise OptionError(
                    f"{first_name} and {name} have another {fact!r}: {properties[fact]!r} and {value!r}. Shard them "
                    "apart"
                )
    if not properties[TRANSCODED]:
        del properties[TRANSCODED]
    return CombinedSource([source for _, source in sources], schema, properties)


class CombinedSource:
    """The items of some sources, one after another (a `Source`)."""

    def __init__(self, sources: Sequence[Source], schema: pa.Schema, properties: dict[str, Any]) -> None:
        self._sources = sources
        self._firsts = np.cumsum([0, *(len(source.item_rows) for source in sources)])
        units = {source.unit for source in sources}
        self.unit = units.pop() if len(units) == 1 else "rows"
        self.item_rows = np.concatenate([source.item_rows for source in sources])
        self.item_bytes = np.concatenate([source.item_bytes for source in sources])
        self.schema = schema
        self.properties = properties
        self.skipped: list[Skipped] = [item for source in sources for item in source.skipped]
        self.identity = " ".join(source.identity for source in sources)
        self.concurrency = max(source.concurrency for source in sources)
        self.reader = CombinedReader([source.reader for source in sources], schema)

    @property
    def row_bytes(self) -> float | None:
        """See `Source`."""
        total = 0.0
        for source in self._sources:
            if source.row_bytes is None:
                return None
            total += source.row_bytes * int(source.item_rows.sum())
        return total / max(1, int(self.item_rows.sum()))

    def values(self, column: str) -> pa.Array | None:
        """See `Source`."""
        found = []
        for source in self._sources:
            values = source.values(column)
            if values is None:
                return None
            found.append(values)
        return pa.concat_arrays(found) if all(values.type == found[0].type for values in found) else None

    def part(self, items: npt.NDArray[np.int64], start: int, stop: int) -> list[_Run]:
        """Runs of items of one source each; see `Source`."""
        numbers = np.searchsorted(self._firsts, items, side="right") - 1
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        bounds = [0, *cuts.tolist(), len(items)]
        runs = []
        for begin, end in itertools.pairwise(bounds):
            source = int(numbers[begin])
            run = items[begin:end]
            last = stop if end == len(items) else int(self.item_rows[run[-1]])
            part = self._sources[source].part(run - self._firsts[source], start if begin == 0 else 0, last)
            runs.append(_Run(source, part))
        return runs


@dataclass(frozen=True, slots=True)
class _Run:
    source: int
    part: Any


class _Place(NamedTuple):
    source: int
    place: Any


class CombinedReader:
    """Reads parts of a `CombinedSource` (a `Reader`)."""

    def __init__(self, readers: Sequence[Reader], schema: pa.Schema) -> None:
        self._readers, self._schema = readers, schema

    def chunks(self, part: list[_Run], rows_per_block: int) -> Iterator[Chunk]:
        """See `Reader`."""
        for run in part:
            for chunk in self._readers[run.source].chunks(run.part, rows_per_block):
                yield Chunk(_Place(run.source, chunk.place), chunk.num_bytes)

    def read(self, place: _Place) -> tuple[pa.RecordBatch, list[Skipped]]:
        """See `Reader`."""
        batch, skipped = self._readers[place.source].read(place.place)
        columns = [batch.column(field.name).cast(field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema), skipped

    def describe(self, place: _Place) -> str:
        """See `Reader`."""
        return self._readers[place.source].describe(place.place)


def _columns(source: Source) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in source.schema)
