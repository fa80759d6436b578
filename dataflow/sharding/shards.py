"""Shards that exist, such as WebDataset tars, as a source of rows: their blocks are its items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.dataset import Manifest, describe_block, read_block
from dataflow.errors import CorruptDataError
from dataflow.formats import Skipped
from dataflow.formats.numeric import numeric_array
from dataflow.sharding.image_kind import HEAD_BYTES, IMAGE_SUFFIXES, image_kind, what_else
from dataflow.sharding.source import Chunk
from dataflow.storage import open_store

__all__ = ["ShardReader", "ShardSource"]


class ShardSource:
    """The rows of indexed shards (a `Source`).

    Args:
        manifest: The shards.
        skipped: What indexing has left out.
        skip: Whether rows whose image is none, and blocks that are damaged, are left out instead of ending the run.
    """

    unit = "rows"

    def __init__(self, manifest: Manifest, skipped: list[Skipped], skip: bool) -> None:
        self.item_rows = manifest.rows.astype(np.int64)
        self.item_bytes = manifest.lengths
        self.row_bytes = None
        self.schema = manifest.schema
        self.properties = dict(manifest.properties)
        self.skipped = skipped
        self.identity = manifest.fingerprint
        self.concurrency = open_store(manifest.base_url).concurrency
        self.reader = ShardReader(manifest, skip)

    def values(self, column: str) -> pa.Array | None:
        """See `Source`. Blocks have many rows."""
        return None

    def part(self, items: npt.NDArray[np.int64], start: int, stop: int) -> ShardPart:
        """Some blocks; see `Source`."""
        return ShardPart(items, self.item_rows[items], self.item_bytes[items], start, stop)


@dataclass(frozen=True, slots=True)
class ShardPart:
    """Blocks that are read one after another, with their rows and bytes; the first and last one perhaps in part."""

    blocks: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    start: int
    stop: int


class _Rows(NamedTuple):
    """Rows of one block, from one to before another."""

    block: int
    start: int
    stop: int


class ShardReader:
    """Reads parts of a `ShardSource` (a `Reader`).

    Args:
        manifest: The shards.
        skip: Whether bad rows and blocks are left out.
    """

    def __init__(self, manifest: Manifest, skip: bool) -> None:
        self._manifest = manifest
        self._skip = skip
        self._store = open_store(manifest.base_url)
        names = manifest.schema.names
        self._image_columns = [name for name in names if f".{name.rpartition('.')[2]}" in IMAGE_SUFFIXES]

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardReader, (self._manifest, self._skip)

    def chunks(self, part: ShardPart, rows_per_block: int) -> Iterator[Chunk]:
        """Block by block; see `Reader`."""
        last = len(part.blocks) - 1
        for at, (block, rows, length) in enumerate(zip(part.blocks, part.rows, part.lengths, strict=True)):
            start = part.start if at == 0 else 0
            yield Chunk(_Rows(int(block), start, part.stop if at == last else int(rows)), int(length))

    def read(self, place: _Rows) -> tuple[pa.RecordBatch, list[Skipped]]:
        """Reads rows of one block; see `Reader`."""
        try:
            batch = read_block(self._store, self._manifest, place.block)
        except CorruptDataError as error:
            if not self._skip:
                raise
            skipped = Skipped(describe_block(self._manifest, place.block), "is damaged", str(error))
            return pa.RecordBatch.from_pylist([], schema=self._manifest.schema), [skipped]
        batch = batch.slice(place.start, place.stop - place.start)
        bad: dict[int, Skipped] = {}
        for name in self._image_columns:
            from pyarrow import compute  # slow to import

            heads = compute.binary_slice(batch.column(name), 0, HEAD_BYTES).to_pylist()
            for row, head in enumerate(heads):
                if head is not None and not image_kind(head):
                    bad[row] = self._bad(place, batch, row, name, head)
        if bad:
            batch = batch.take(numeric_array(np.delete(np.arange(batch.num_rows), list(bad))))
        return batch, list(bad.values())

    def describe(self, place: _Rows) -> str:
        """See `Reader`."""
        return describe_block(self._manifest, place.block)

    def _bad(self, place: _Rows, batch: pa.RecordBatch, row: int, name: str, head: bytes) -> Skipped:
        number = int(self._manifest.first_rows[place.block]) + place.start + row
        where = f"{describe_block(self._manifest, place.block)}, row {number}"
        if "key" in batch.schema.names:
            where += f" ({batch.column('key')[row].as_py()!r})"
        reason, note = what_else(head)
        reason = f"{name!r} {reason}"
        if not self._skip:
            raise CorruptDataError(
                f"{where}: {reason}{f' ({note})' if note else ''}. Pack the shard again without it, or give "
                "--on-error skip, which leaves out and lists all such rows"
            )
        return Skipped(where, reason, note)
