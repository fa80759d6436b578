"""One column of one block as NumPy sees it: values of single rows, and rows of many blocks gathered into a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataflow import _native
from dataflow.errors import DatasetError

Rows = NDArray[np.int64]
BlockNumbers = NDArray[np.int32]


class ColumnView(Protocol):
    """A column of one block. All views of a column, over all blocks, are of one class.

    `gather` takes the views of the blocks of a batch, and for each row of the batch the view and the row in it.
    """

    def value(self, row: int) -> Any:
        """The value of one row: NumPy scalar or array, bytes, str, for nested types a Python object; None for null."""

    def gather(self, views: Sequence[Any], block: BlockNumbers, row: Rows) -> Any:
        """The rows of a batch: an array [rows, ...] for fixed widths, a list of values for ragged ones."""


class FixedView:
    """Numbers, booleans, and fixed-size lists of them (of any depth)."""

    def __init__(self, name: str, array: pa.Array) -> None:
        self._name = name
        self._nulls = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
        self._rows = len(array)
        shape: list[int] = []
        while pa.types.is_fixed_size_list(array.type):
            shape.append(array.type.list_size)
            # flatten() would drop null lists and shift the rows after them.
            array = array.values.slice(array.offset * array.type.list_size, len(array) * array.type.list_size)
        self.shape = tuple(shape)
        self.width = int(np.prod(shape, dtype=np.int64))
        self.values: NDArray[Any] = _numbers(array)

    def value(self, row: int) -> Any:
        if self._nulls is not None and not self._nulls[row]:
            return None
        if not self.shape:
            return self.values[row]
        return self.values[row * self.width : (row + 1) * self.width].reshape(self.shape)

    def gather(self, views: Sequence[FixedView], block: BlockNumbers, row: Rows) -> NDArray[Any]:
        if any(view._nulls is not None for view in views):
            raise DatasetError(
                f"column {self._name!r} has nulls, which no array can hold: "
                "leave it out with select(), or replace them with map()"
            )
        out = np.empty((len(row), self.width), self.values.dtype)
        _native.gather_fixed([view.values for view in views], self.width, block, row, out)
        return out.reshape(len(row), *self.shape)


class BytesView:
    """Binary and string columns."""

    _text: ClassVar[bool] = False

    def __init__(self, name: str, array: pa.Array) -> None:
        self._valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
        self.offsets = _offsets(array)
        data = array.buffers()[2]
        self.values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)

    def value(self, row: int) -> Any:
        return self.gather([self], np.zeros(1, np.int32), np.array([row], np.int64))[0]

    def gather(self, views: Sequence[BytesView], block: BlockNumbers, row: Rows) -> list[Any]:
        values: list[Any] = _native.gather_bytes(
            [view.values for view in views], [view.offsets for view in views], block, row
        )
        if self._text:
            values = [value.decode() for value in values]
        if any(view._valid is not None for view in views):
            for at, (number, stored) in enumerate(zip(block.tolist(), row.tolist(), strict=True)):
                valid = views[number]._valid
                if valid is not None and not valid[stored]:
                    values[at] = None
        return values


class TextView(BytesView):
    """String columns: as bytes, but decoded."""

    _text = True


class ListView:
    """Variable-length lists of numbers."""

    def __init__(self, name: str, array: pa.Array) -> None:
        self._valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
        self.offsets = _offsets(array)
        self.values: NDArray[Any] = _numbers(array.values)

    def value(self, row: int) -> NDArray[Any] | None:
        if self._valid is not None and not self._valid[row]:
            return None
        start, stop = int(self.offsets[row]), int(self.offsets[row + 1])
        if not 0 <= start <= stop <= len(self.values):
            raise DatasetError(f"row {row} of a list column lies at {start}..{stop} of {len(self.values)} values")
        return self.values[start:stop]

    def gather(self, views: Sequence[ListView], block: BlockNumbers, row: Rows) -> list[Any]:
        # Copies, since a view of a row would keep its whole block in memory.
        found = [views[number].value(stored) for number, stored in zip(block.tolist(), row.tolist(), strict=True)]
        return [None if value is None else value.copy() for value in found]


class ObjectView:
    """Every other type: Python objects."""

    def __init__(self, name: str, array: pa.Array) -> None:
        self._array = array

    def value(self, row: int) -> Any:
        return self._array[row].as_py()

    def gather(self, views: Sequence[ObjectView], block: BlockNumbers, row: Rows) -> list[Any]:
        return [views[number].value(stored) for number, stored in zip(block.tolist(), row.tolist(), strict=True)]


def column_view(name: str, array: pa.Array) -> ColumnView:
    """The view that fits the type of a column."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return column_view(name, array.dictionary_decode())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return BytesView(name, array)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return TextView(name, array)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_number(kind.value_type):
        return ListView(name, array) if not array.values.null_count else ObjectView(name, array)
    innermost = kind
    while pa.types.is_fixed_size_list(innermost):
        innermost = innermost.value_type
    return FixedView(name, array) if _is_number(innermost) else ObjectView(name, array)


def column_views(rows: pa.RecordBatch, names: Sequence[str]) -> tuple[ColumnView, ...]:
    """The views of some columns of a block."""
    return tuple(column_view(name, rows.column(name)) for name in names)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Values without copying where the layout allows; null values read as whatever lies under them."""
    if pa.types.is_boolean(array.type):
        return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
    buffer = array.buffers()[1]
    dtype = np.dtype(array.type.to_pandas_dtype())
    if buffer is None:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, count=len(array), offset=array.offset * dtype.itemsize)


def _offsets(array: pa.Array) -> NDArray[Any]:
    large = (
        pa.types.is_large_binary(array.type)
        or pa.types.is_large_string(array.type)
        or pa.types.is_large_list(array.type)
    )
    dtype = np.dtype(np.int64 if large else np.int32)
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(1, dtype)
    return np.frombuffer(buffer, dtype, count=len(array) + 1, offset=array.offset * dtype.itemsize)
