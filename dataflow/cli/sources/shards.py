"""Shards that exist, such as WebDataset tars, as a source of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow import _native
from dataflow.cli.sources.image_kind import HEAD_BYTES, IMAGE_SUFFIXES, image_kind, what_else
from dataflow.cli.sources.read_ahead import read_ahead
from dataflow.dataset import Manifest, describe_block, read_block
from dataflow.errors import CorruptDataError
from dataflow.formats import Skipped
from dataflow.sampling.keys import key
from dataflow.storage import open_store

__all__ = ["ShardSource"]

# Rows are shuffled in a buffer of this size, which holds blocks from all over the source.
_BUFFER_BYTES = 64 << 20


class ShardSource:
    """The rows of indexed shards (a `Source`).

    Shuffling takes blocks in random order into a buffer, and the rows of a full buffer in random order out of it: each
    block is read once, in one range, and memory does not depend on the size of the source.

    Args:
        manifest: The shards.
        skipped: What indexing has left out.
        skip_bad: Whether rows whose image is none are left out instead of ending the run.
    """

    unit = "rows"

    def __init__(self, manifest: Manifest, skipped: list[Skipped], skip_bad: bool) -> None:
        self._manifest = manifest
        self._store = open_store(manifest.base_url)
        self._skip_bad = skip_bad
        self.num_items = manifest.num_rows
        self.num_bytes = manifest.num_bytes
        self.schema = manifest.schema
        self.properties = dict(manifest.properties)
        self.skipped = skipped
        self._image_columns = [name for name in self.schema.names if f".{name.rpartition('.')[2]}" in IMAGE_SUFFIXES]

    def batches(self, seed: int | None, workers: int) -> Iterator[pa.RecordBatch]:
        """All rows; see `Source`."""
        blocks = np.arange(self._manifest.num_blocks, dtype=np.int64)
        if seed is not None:
            blocks = _native.permute(blocks, self._manifest.num_blocks, key(seed, "shard", "blocks"))
        sized = ((block, int(self._manifest.lengths[block])) for block in map(int, blocks))
        batches = self._checked(read_ahead(sized, self._read, workers))
        return batches if seed is None else _shuffled(batches, seed)

    def _read(self, block: int) -> tuple[pa.RecordBatch, list[Skipped]]:
        batch = read_block(self._store, self._manifest, block)
        bad: dict[int, Skipped] = {}
        for name in self._image_columns:
            heads = pc.binary_slice(batch.column(name), 0, HEAD_BYTES).to_pylist()
            for row, head in enumerate(heads):
                if head is not None and not image_kind(head):
                    bad[row] = self._bad(block, batch, row, name, head)
        if bad:
            kept = [row for row in range(batch.num_rows) if row not in bad]
            batch = batch.take(pa.array(kept, pa.int64()))
        return batch, list(bad.values())

    def _bad(self, block: int, batch: pa.RecordBatch, row: int, name: str, head: bytes) -> Skipped:
        where = f"{describe_block(self._manifest, block)}, row {int(self._manifest.first_rows[block]) + row}"
        if "key" in batch.schema.names:
            where += f" ({batch.column('key')[row].as_py()!r})"
        reason = f"{name!r} {what_else(head)}"
        if not self._skip_bad:
            raise CorruptDataError(
                f"{where}: {reason}. Pack the shard again without it, or give --skip-bad, which leaves out and lists "
                "all such rows"
            )
        return Skipped(where, reason)

    def _checked(self, results: Iterator[tuple[pa.RecordBatch, list[Skipped]]]) -> Iterator[pa.RecordBatch]:
        for batch, bad in results:
            self.skipped += bad
            yield batch


def _shuffled(batches: Iterator[pa.RecordBatch], seed: int) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    nbytes = fills = 0
    for batch in batches:
        if waiting and nbytes + batch.nbytes > _BUFFER_BYTES:
            yield _permuted(waiting, key(seed, "shard", "rows", fills))
            nbytes, fills = 0, fills + 1
        waiting.append(batch)
        nbytes += batch.nbytes
    if waiting:
        yield _permuted(waiting, key(seed, "shard", "rows", fills))


def _permuted(batches: list[pa.RecordBatch], row_key: int) -> pa.RecordBatch:
    """Takes the batches out of the list, so that their memory is free again."""
    whole = pa.concat_batches(batches)
    batches.clear()
    return whole.take(pa.array(_native.row_permutation(whole.num_rows, row_key)))
