"""In which order rows are written."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow import _native
from dataflow.formats.numeric import numeric_array
from dataflow.sampling.keys import key

__all__ = ["item_order", "shuffle_rows"]

# Rows are shuffled in a buffer of this size, which holds items from all over the source.
_BUFFER_BYTES = 64 << 20


def item_order(num_items: int, seed: int | None) -> npt.NDArray[np.int64]:
    """The numbers of all items in the order in which they are read; None for the stored one."""
    items = np.arange(num_items, dtype=np.int64)
    return items if seed is None else _native.permute(items, num_items, key(seed, "shard", "items"))


def shuffle_rows(batches: Iterator[pa.RecordBatch], seed: int, shard: int) -> Iterator[pa.RecordBatch]:
    """Shuffles the rows of items that have many: batches into a bounded buffer, its rows in keyed order out of it.

    Args:
        batches: The rows of one new shard.
        seed: Names the order.
        shard: Number of the new shard.
    """
    waiting: list[pa.RecordBatch] = []
    num_bytes = fills = 0
    for batch in batches:
        if waiting and num_bytes + batch.nbytes > _BUFFER_BYTES:
            yield _permuted(waiting, key(seed, "shard", "rows", shard, fills))
            num_bytes, fills = 0, fills + 1
        waiting.append(batch)
        num_bytes += batch.nbytes
    if waiting:
        yield _permuted(waiting, key(seed, "shard", "rows", shard, fills))


def _permuted(batches: list[pa.RecordBatch], row_key: int) -> pa.RecordBatch:
    """Takes the batches out of the list, so that their memory is free again."""
    whole = pa.concat_batches(batches)
    batches.clear()
    return whole.take(numeric_array(_native.row_permutation(whole.num_rows, row_key)))
