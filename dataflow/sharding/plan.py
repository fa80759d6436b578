"""The plan of a dataset: which rows of the source make which shard. A pure function of the source and the options."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.dataset import Manifest
from dataflow.dataset.block_size import MAX_BLOCK_SIZE, usual_block_bytes
from dataflow.errors import DatasetError
from dataflow.sharding.compression import Compression, choose_compression
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.order import item_order
from dataflow.sharding.source import Source
from dataflow.sharding.steps import Step, read_rows, schema_after

__all__ = ["Plan"]

# Part of every identity. A change of what shards hold for the same source and options changes this.
_LAYOUT = "dataflow-shards-1"
# So much is read to find the size of a row, where reading is needed for that.
_SAMPLE_BYTES = 16 << 20
_SAMPLE_CHUNKS = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rows make which shard. Rows are counted in the order in which items are read.

    Attributes:
        steps: Change rows, and choose those of the split.
        schema: Columns of a row.
        rows_per_block: Rows of every block, but for the last one and where rows are large or were left out.
        block_bytes: Wanted size of a block.
        compression: What blocks are compressed with.
        bounds: int64 [shards + 1], number of rows before each shard; the last is the number of all.
        identity: Names the plan: the same for the same source and options, so that shards of an earlier run fit.
    """

    steps: tuple[Step, ...]
    schema: pa.Schema
    rows_per_block: int
    block_bytes: int
    compression: Compression | None
    bounds: npt.NDArray[np.int64]
    identity: str
    _source: Source
    _order: npt.NDArray[np.int64]
    _ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, source: Source, options: ShardOptions, base: Manifest | None = None) -> Plan:
        """Plans a dataset.

        Args:
            source: Where rows come from.
            options: How the dataset is made.
            base: The dataset that shards are added to: the new ones have blocks like its own.

        Raises:
            DatasetError: The source has no rows.
            OptionError: The split has none of them, or what a step needs is not there.
            CorruptDataError: A first row is bad, and bad rows are not to be left out.
            StorageError: The source could not be read.
        """
        order, num_rows = _first_rows(source, item_order(len(source.item_rows), options.seed), options.limit)
        if not num_rows:
            raise DatasetError("the source has no rows")
        steps, share = options.steps, 1.0
        if options.part is not None:
            chosen = options.part.items(source, order)
            if chosen is None:
                steps, share = (options.part, *steps), options.part.share
            else:
                order, num_rows = chosen, len(chosen)
        schema = schema_after(steps, source.schema)
        ends = np.cumsum(source.item_rows[order])
        row_bytes = source.row_bytes
        if row_bytes is None or steps:
            row_bytes = _sampled_row_bytes(source, order, steps, options.on_error == "skip")
        row_bytes = max(1.0, row_bytes)
        block_bytes = options.block_bytes or usual_block_bytes(int(row_bytes * num_rows * share))
        rows_per_block = max(1, round(block_bytes / row_bytes))
        if base is not None and options.block_bytes is None:
            rows_per_block = max(1, base.block_rows)
            block_bytes = min(MAX_BLOCK_SIZE, max(1, round(rows_per_block * row_bytes)))
        sizes = np.cumsum(source.item_bytes[order], dtype=np.float64)
        sizes *= row_bytes * int(ends[-1]) * share / max(1.0, sizes[-1])
        compression = choose_compression(options.compression, schema)
        identity = _identity(
            _LAYOUT,
            source.identity,
            repr(sorted(source.properties.items())),
            schema.serialize().to_pybytes().hex(),
            repr((options.seed, options.shard_bytes, rows_per_block, block_bytes, options.decode, compression)),
            repr((options.limit, options.part, options.steps)),
            "" if base is None else base.fingerprint,
        )
        bounds = _bounds(num_rows, ends, sizes, rows_per_block, options.shard_bytes)
        return cls(steps, schema, rows_per_block, block_bytes, compression, bounds, identity, source, order, ends)

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return len(self.bounds) - 1

    @property
    def num_rows(self) -> int:
        """Number of rows, with those that will turn out to be bad."""
        return int(self.bounds[-1])

    def part(self, shard: int) -> Any:
        """What a shard is made of, as the source's reader takes it."""
        start, stop = int(self.bounds[shard]), int(self.bounds[shard + 1])
        # Searched so that items without rows between two shards are read by neither.
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self._ends, stop, side="left"))
        items = self._order[first : last + 1]
        before_first = int(self._ends[first]) - int(self._source.item_rows[items[0]])
        before_last = int(self._ends[last]) - int(self._source.item_rows[items[-1]])
        return self._source.part(items, start - before_first, stop - before_last)


def _first_rows(source: Source, order: npt.NDArray[np.int64], limit: int | None) -> tuple[npt.NDArray[np.int64], int]:
    """The items that hold the first rows, and the number of these rows; the last item perhaps has more."""
    ends = np.cumsum(source.item_rows[order])
    num_rows = int(ends[-1]) if len(ends) else 0
    if limit is None or limit >= num_rows:
        return order, num_rows
    return order[: int(np.searchsorted(ends, limit)) + 1], limit


def _bounds(
    num_rows: int,
    ends: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.float64],
    rows_per_block: int,
    shard_bytes: int,
) -> npt.NDArray[np.int64]:
    """Cuts rows into shards of whole blocks: each ends with the block that brings it to its size."""
    bounds = [0]
    row_of_item = np.concatenate(([0], ends)).astype(np.float64)
    byte_of_item = np.concatenate(([0.0], sizes))
    while bounds[-1] < num_rows:
        start_byte = np.interp(bounds[-1], row_of_item, byte_of_item)
        rows = np.interp(start_byte + shard_bytes, byte_of_item, row_of_item) - bounds[-1]
        blocks = max(1, int(np.ceil(round(float(rows), 6) / rows_per_block)))
        bounds.append(min(num_rows, bounds[-1] + blocks * rows_per_block))
    return np.array(bounds, np.int64)


def _sampled_row_bytes(source: Source, order: npt.NDArray[np.int64], steps: tuple[Step, ...], skip: bool) -> float:
    """Mean size of the first rows in memory, after all steps."""
    rows = num_bytes = 0
    items = order[source.item_rows[order] > 0][:_SAMPLE_CHUNKS]
    part = source.part(items, 0, int(source.item_rows[items[-1]]))
    for chunk in _first(source.reader.chunks(part, 1)):
        batch, _ = read_rows(source.reader, chunk, steps, skip)
        rows += batch.num_rows
        num_bytes += batch.nbytes
        if num_bytes >= _SAMPLE_BYTES:
            break
    return num_bytes / rows if rows else float(source.item_bytes.sum()) / float(source.item_rows.sum())


def _first(chunks: Iterator[Any]) -> Iterator[Any]:
    for _, chunk in zip(range(_SAMPLE_CHUNKS), chunks, strict=False):
        yield chunk.place


def _identity(*parts: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
