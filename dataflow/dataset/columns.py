"""One column of one block as NumPy sees it: values of single rows, and rows of many blocks gathered into a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataflow import _native
from dataflow.errors import DatasetError

Rows = NDArray[np.int64]
BlockNumbers = NDArray[np.int32]


class ColumnView(Protocol):
    """A column of one block.

    `gather` takes the views of the blocks of a batch, and for each row of the batch the view and the row in it.
    """

    def of(self, array: pa.Array) -> ColumnView:
        """The view of the same column of another block."""

    def value(self, row: int) -> Any:
        """The value of one row: NumPy scalar or array, bytes, str, for nested types a Python object; None for null."""

    def gather(self, views: Sequence[Any], block: BlockNumbers, row: Rows) -> Any:
        """The rows of a batch: an array [rows, ...] for fixed widths, a list of values for ragged ones."""


class FixedView:
    """Numbers, booleans, and fixed-size lists of them (of any depth)."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self._name = name
        shape: list[int] = []
        while pa.types.is_fixed_size_list(kind):
            shape.append(kind.list_size)
            kind = kind.value_type
        self.shape = tuple(shape)
        self.width = math.prod(shape)
        self._dtype = _dtype(kind)
        self._valid: NDArray[np.bool_] | None = None
        self.values: NDArray[Any] = np.empty(0, self._dtype)
        self.held_values = _native.Array(self.values)

    def of(self, array: pa.Array) -> FixedView:
        view = _like(self)
        view._valid = _validity(array)
        for size in self.shape:
            # flatten() would drop null lists and shift the rows after them.
            array = array.values.slice(array.offset * size, len(array) * size)
            if array.null_count and not _under_nulls(array, view._valid):
                raise _inner_nulls(self._name)
        view.values = _numbers(array, self._dtype)
        view.held_values = _native.Array(view.values)
        return view

    def value(self, row: int) -> Any:
        if self._valid is not None and not self._valid[row]:
            return None
        if not self.shape:
            return self.values[row]
        return self.values[row * self.width : (row + 1) * self.width].reshape(self.shape)

    def gather(
        self, views: Sequence[FixedView], block: BlockNumbers, row: Rows, out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """As the others; into `out` where it is given, which may be of a wider type."""
        if any(view._valid is not None for view in views):
            raise DatasetError(
                f"column {self._name!r} has nulls, which no array can hold: "
                "leave it out with select(), or replace them with map()"
            )
        if out is None:
            out = np.empty((len(row), *self.shape), self._dtype)
        _native.gather_fixed([view.held_values for view in views], self.width, block, row, out)
        return out


class BytesView:
    """Binary and string columns.

    Attributes:
        valid: Which rows are not null; None where all are not.
        held_values: The bytes of all rows.
        held_offsets: Where those of each row begin, and the last one ends.
    """

    _text: ClassVar[bool] = False

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self._offset = _offset_dtype(kind)
        self.valid: NDArray[np.bool_] | None = None
        self.held_offsets = _native.Array(np.zeros(1, self._offset))
        self.held_values = _native.Array(np.empty(0, np.uint8))

    def of(self, array: pa.Array) -> BytesView:
        view = _like(self)
        _, offsets, data = array.buffers()
        view.valid = _validity(array)
        view.held_offsets = _native.Array(_offsets(array, offsets, self._offset))
        if data is not None:
            view.held_values = _native.Array(np.frombuffer(data, np.uint8))
        return view

    def value(self, row: int) -> Any:
        return self.gather([self], np.zeros(1, np.int32), np.array([row], np.int64))[0]

    def gather(self, views: Sequence[BytesView], block: BlockNumbers, row: Rows) -> list[Any]:
        values: list[Any] = _native.gather_bytes(
            [view.held_values for view in views], [view.held_offsets for view in views], block, row
        )
        if self._text:
            values = [value.decode() for value in values]
        if any(view.valid is not None for view in views):
            for at, (number, stored) in enumerate(zip(block.tolist(), row.tolist(), strict=True)):
                valid = views[number].valid
                if valid is not None and not valid[stored]:
                    values[at] = None
        return values


class TextView(BytesView):
    """String columns: as bytes, but decoded."""

    _text = True


class ListView:
    """Variable-length lists of numbers.

    Attributes:
        valid: Which rows are not null; None where all are not.
    """

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self._name = name
        self._offset = _offset_dtype(kind)
        self._dtype = _dtype(kind.value_type)
        self.valid: NDArray[np.bool_] | None = None
        self.offsets: NDArray[Any] = np.zeros(1, self._offset)
        self.values: NDArray[Any] = np.empty(0, self._dtype)
        self.held_offsets = _native.Array(self.offsets)
        self.held_values = _native.Array(self.values)

    def of(self, array: pa.Array) -> ListView:
        if array.values.null_count:
            raise _inner_nulls(self._name)
        view = _like(self)
        view.valid = _validity(array)
        view.offsets = _offsets(array, array.buffers()[1], self._offset)
        view.values = _numbers(array.values, self._dtype)
        view.held_offsets = _native.Array(view.offsets)
        view.held_values = _native.Array(view.values)
        return view

    def value(self, row: int) -> NDArray[Any] | None:
        if self.valid is not None and not self.valid[row]:
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

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self._array: pa.Array = pa.nulls(0, kind)

    def of(self, array: pa.Array) -> ObjectView:
        view = _like(self)
        view._array = array
        return view

    def value(self, row: int) -> Any:
        return self._array[row].as_py()

    def gather(self, views: Sequence[ObjectView], block: BlockNumbers, row: Rows) -> list[Any]:
        return [views[number].value(stored) for number, stored in zip(block.tolist(), row.tolist(), strict=True)]


class ColumnViewer:
    """Makes the views of some columns of one block after another. What depends on their types is found once.

    Args:
        schema: The columns that blocks have.
        names: Those to look at.
    """

    def __init__(self, schema: pa.Schema, names: Sequence[str]) -> None:
        self._places = [schema.get_field_index(name) for name in names]
        self._kinds = [_view_class(schema.field(name).type)(name, schema.field(name).type) for name in names]

    def __call__(self, rows: pa.RecordBatch) -> tuple[ColumnView, ...]:
        """The views of a block, in the order of the names.

        Raises:
            DatasetError: There are nulls where no array can hold them; names the column.
        """
        return tuple(kind.of(rows.column(place)) for kind, place in zip(self._kinds, self._places, strict=True))


View = TypeVar("View")


def _like(view: View) -> View:
    """A shallow copy; `copy.copy` takes longer than all else that is done for a block."""
    other = object.__new__(type(view))
    other.__dict__.update(view.__dict__)
    return other


def _view_class(kind: pa.DataType) -> Callable[[str, pa.DataType], ColumnView]:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return BytesView
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return TextView
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_number(kind.value_type):
        return ListView
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return FixedView if _is_number(kind) else ObjectView


def _under_nulls(values: pa.Array, valid: NDArray[np.bool_] | None) -> bool:
    """Whether all nulls among the values of fixed-size lists belong to lists that are null themselves."""
    if valid is None:
        return False
    whole = _bits(values, values.buffers()[0]).reshape(len(valid), -1).all(axis=1)
    return bool((whole | ~valid).all())


def _inner_nulls(name: str) -> DatasetError:
    return DatasetError(f"column {name!r} has nulls within its lists: leave it out with select(), or write it without")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    return np.dtype(np.bool_ if pa.types.is_boolean(kind) else kind.to_pandas_dtype())


def _offset_dtype(kind: pa.DataType) -> np.dtype[Any]:
    large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind) or pa.types.is_large_list(kind)
    return np.dtype(np.int64 if large else np.int32)


def _validity(array: pa.Array) -> NDArray[np.bool_] | None:
    return _bits(array, array.buffers()[0]) if array.null_count else None


def _bits(array: pa.Array, buffer: pa.Buffer | None) -> NDArray[np.bool_]:
    """A bitmap of an array, one boolean a value. pyarrow's own way imports pandas where that is installed."""
    if buffer is None:
        return np.zeros(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), count=array.offset + len(array), bitorder="little")
    return bits[array.offset :].view(np.bool_)


def _numbers(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values without copying where the layout allows; null values read as whatever lies under them."""
    if dtype == np.bool_:
        return _bits(array, array.buffers()[1])
    buffer = array.buffers()[1]
    if buffer is None:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, count=len(array), offset=array.offset * dtype.itemsize)


def _offsets(array: pa.Array, buffer: pa.Buffer | None, dtype: np.dtype[Any]) -> NDArray[Any]:
    if buffer is None or len(array) == 0:
        return np.zeros(1, dtype)
    return np.frombuffer(buffer, dtype, count=len(array) + 1, offset=array.offset * dtype.itemsize)
