"""The layout of batches: columns of numbers in the types and widths that were asked for, in memory used again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from dataflow import _native
from dataflow.dataset.columns import BlockNumbers, FixedView, ListView, Rows
from dataflow.errors import DatasetError
from dataflow.pipeline.collate import Batch, to_tensors
from dataflow.pipeline.dtypes import Dtype, cast, cast_column, widens
from dataflow.pipeline.padding import Pad, pad_rows
from dataflow.pipeline.slabs import Slabs

# Less is cheaper to take anew.
_LEAST_SLAB_BYTES = 1 << 14


class BatchLayout:
    """Lays columns into batches; used by many threads at once.

    Attributes:
        slabs: Memory of columns that are gathered.

    Args:
        pad: Columns of lists to pad, and how; `<column>_length` is added to the batch.
        dtypes: Types of columns, where not the stored ones.
        rows: Most rows of a batch.
        waiting: Most batches that wait for the consumer.
        pin: Whether slabs are page-locked.
    """

    def __init__(
        self, pad: Mapping[str, Pad], dtypes: Mapping[str, Dtype], *, rows: int, waiting: int, pin: bool
    ) -> None:
        self._pad = pad
        self._dtypes = dtypes
        self._rows = rows
        # One is the consumer's, and one is being made while it looks for the next.
        self._keep = waiting + 2
        self._pin = pin
        self.slabs: dict[str, Slabs] = {}

    def gather(self, column: str, views: Sequence[Any], block: BlockNumbers, row: Rows) -> Batch:
        """A stored column of a batch, without a copy on the way; arguments as those of `ColumnView.gather`."""
        first = views[0]
        target = self._dtypes.get(column)
        if column in self._pad:
            if not isinstance(first, ListView):
                raise DatasetError(f"column {column!r} has no lists of numbers: leave it out of pad=")
            return self._gather_padded(column, views, block, row, target or first.values.dtype)
        if isinstance(first, FixedView):
            stored = first.values.dtype
            out = self._take(column, len(row), first.shape, target or stored)
            if target is None or widens(stored, target):
                first.gather(views, block, row, out.numpy())
            else:
                cast(column, first.gather(views, block, row), target, out.numpy())
            return {column: out}
        values = to_tensors(first.gather(views, block, row))
        return {column: values if target is None else cast_column(column, values, target)}

    def arrange(self, column: str, values: Any) -> Batch:
        """A column of a batch that was made in another way."""
        if column in self._dtypes:
            values = cast_column(column, values, self._dtypes[column])
        if column not in self._pad:
            return {column: values}
        padded, lengths = pad_rows(column, values, self._pad[column])
        return {column: padded, f"{column}_length": lengths}

    def arrange_all(self, batch: Batch) -> Batch:
        """A batch that was made of samples.

        Raises:
            DatasetError: It does not have a column that is to be padded or to be of another type.
        """
        for argument, columns in (("pad", self._pad), ("dtypes", self._dtypes)):
            for column in columns:
                if column not in batch:
                    raise DatasetError(
                        f"the samples have no {column!r}, only {', '.join(batch)}: see {argument}= and map()"
                    )
        if not self._pad and not self._dtypes:
            return batch
        arranged: Batch = {}
        for column, values in batch.items():
            arranged |= self.arrange(column, values)
        return arranged

    def _gather_padded(
        self, column: str, views: Sequence[ListView], block: BlockNumbers, row: Rows, target: Dtype
    ) -> Batch:
        if any(view.valid is not None for view in views):
            for number, stored in zip(block.tolist(), row.tolist(), strict=True):
                if views[number].value(stored) is None:
                    raise DatasetError(f"column {column!r} has nulls: leave it out of pad=, or replace them with map()")
        pad, stored_type = self._pad[column], views[0].values.dtype
        offsets, values = [view.held_offsets for view in views], [view.held_values for view in views]
        width = pad.width(column, int(_native.ragged_lengths(offsets, block, row).max(initial=0)))
        out = self._take(column, len(row), (width,), target)
        lengths = np.empty(len(row), np.int64)
        direct = widens(stored_type, target)
        gathered: NDArray[Any] = out.numpy() if direct else np.empty((len(row), width), stored_type)
        fill = pad.fill(column, target)
        _native.gather_ragged(values, offsets, block, row, gathered, lengths, fill if direct else 0, pad.truncate)
        if not direct:
            cast(column, gathered, target, out.numpy())
            out.numpy()[np.arange(width) >= lengths[:, None]] = fill
        return {column: out, f"{column}_length": torch.from_numpy(lengths)}

    def _take(self, column: str, rows: int, shape: tuple[int, ...], dtype: Dtype) -> torch.Tensor:
        """Memory for a column of a batch, not initialised."""
        if self._rows * math.prod(shape) * dtype.itemsize < _LEAST_SLAB_BYTES:
            return torch.from_numpy(np.empty((rows, *shape), dtype))
        slabs = self.slabs.get(column)
        if slabs is None:
            slabs = self.slabs.setdefault(column, Slabs(self._rows, shape, dtype.name, self._keep, self._pin))
        return slabs.take(rows, shape)


def laid_bytes(schema: pa.Schema | None, pad: Mapping[str, Pad], dtypes: Mapping[str, Dtype]) -> int:
    """Bytes that the columns of a row take in a batch beyond what they take in the store, as far as that is known."""
    total = 0
    if schema is None:
        return total
    for column in {*pad, *dtypes}:
        kind, count = schema.field(column).type, 1
        if column in pad:
            count = pad[column].length or 0
        while pa.types.is_fixed_size_list(kind):
            count, kind = count * kind.list_size, kind.value_type
        itemsize = dtypes[column].itemsize if column in dtypes else 8
        total += count * itemsize
    return total
