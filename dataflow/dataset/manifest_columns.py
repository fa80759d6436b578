"""Columns of a mapped manifest, looked at where they lie. Nothing that they say is trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import DatasetError

__all__ = ["Texts", "Values", "digests", "list_of", "numbers"]


class Values:
    """A column of bytes, read one at a time.

    Args:
        column: A large_binary or large_string array, a value for each shard.
    """

    def __init__(self, column: pa.LargeBinaryArray) -> None:
        _, offsets, data = column.buffers()
        self._offsets = (
            np.frombuffer(offsets, np.int64, count=len(column) + 1) if len(column) else np.zeros(1, np.int64)
        )
        self._data = memoryview(data) if data is not None else memoryview(b"")

    def at(self, index: int) -> bytes:
        """The value of one shard."""
        return bytes(self._view(index))

    def _view(self, index: int) -> memoryview:
        if not 0 <= index < len(self._offsets) - 1:
            raise IndexError(f"shard {index} of {len(self._offsets) - 1}")
        start, end = int(self._offsets[index]), int(self._offsets[index + 1])
        if not 0 <= start <= end <= len(self._data):
            raise DatasetError(f"damaged manifest: a value of shard {index} lies at {start} to {end}")
        return self._data[start:end]


class Texts:
    """A column of strings, read one at a time."""

    def __init__(self, column: pa.LargeStringArray) -> None:
        self._values = Values(column)

    def at(self, index: int) -> str:
        """The value of one shard."""
        try:
            return str(self._values.at(index), "utf-8")
        except UnicodeDecodeError as error:
            raise DatasetError(f"damaged manifest: the name of shard {index} is not UTF-8") from error


def numbers(column: pa.Array) -> npt.NDArray[Any]:
    """A column of integers without nulls as an array over the same memory. pyarrow's own way imports pandas."""
    kind = np.dtype(str(column.type))
    data = column.buffers()[1]
    if data is None:
        return np.empty(0, kind)
    return np.frombuffer(data, kind, count=len(column), offset=column.offset * kind.itemsize)


def digests(column: pa.FixedSizeBinaryArray) -> npt.NDArray[np.void]:
    """A fixed-size binary column as an array of raw items."""
    width = column.type.byte_width
    data = column.buffers()[1]
    if data is None:
        return np.empty(0, np.dtype(f"V{width}"))
    return np.frombuffer(data, np.dtype(f"V{width}"), count=len(column), offset=column.offset * width)


def list_of(column: pa.ListArray, what: str) -> tuple[npt.NDArray[np.int32], pa.StructArray]:
    """The int32 offsets of a column of lists of structs, one more than there are lists, and the items of all lists.

    Raises:
        DatasetError: Offsets and items do not fit, or items are missing; names `what` they are.
    """
    offsets = (
        np.frombuffer(column.buffers()[1], np.int32, count=len(column) + 1) if len(column) else np.zeros(1, np.int32)
    )
    items, last = column.values, int(offsets[-1])
    if not 0 <= last <= len(items) or offsets[0] != 0:
        raise DatasetError(f"it is damaged (offsets of {what} {offsets[0]} to {last} of {len(items)})")
    items = items.slice(0, last)
    if items.null_count or any(items.field(i).null_count for i in range(items.type.num_fields)):
        raise DatasetError(f"it has nulls in the table of {what}")
    return offsets, items
