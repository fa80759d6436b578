"""Cuts rows into blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

__all__ = ["cut_blocks"]


def cut_blocks(batches: Iterable[pa.RecordBatch], rows: int, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yields blocks of `rows` rows; where that many are too large together, several smaller ones for them.

    So one large row changes the blocks around it, and none behind these.

    Args:
        batches: Rows, in any batches.
        rows: Rows of a block; the last one may have fewer.
        most_bytes: A block is smaller than this, unless a single row is not.
    """
    waiting: list[pa.RecordBatch] = []
    num_bytes = 0
    room = rows
    for batch in batches:
        while batch.num_rows:
            piece = batch.slice(0, room)
            fitting = _rows_within(piece, most_bytes - num_bytes)
            if fitting == 0 and waiting:
                yield _joined(waiting)
                num_bytes = 0
                continue
            fitting = max(1, fitting)
            if fitting < piece.num_rows:
                piece = piece.slice(0, fitting)
            batch = batch.slice(fitting)
            waiting.append(piece)
            num_bytes += piece.nbytes
            room -= fitting
            if room == 0:
                yield _joined(waiting)
                num_bytes, room = 0, rows
    if waiting:
        yield _joined(waiting)


def _joined(waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
    block = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
    waiting.clear()
    return block


def _rows_within(batch: pa.RecordBatch, num_bytes: int) -> int:
    """The number of first rows that have fewer bytes together."""
    if batch.nbytes < num_bytes:
        return int(batch.num_rows)
    low, high = 0, batch.num_rows  # `low` rows fit, `high` rows do not
    while low + 1 < high:
        middle = (low + high) // 2
        if batch.slice(0, middle).nbytes < num_bytes:
            low = middle
        else:
            high = middle
    return low
