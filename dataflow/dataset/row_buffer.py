"""Rows as Python dicts, collected into record batches. A value that would not come back as it was is refused."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.errors import OptionError
from dataflow.formats.binary import binary_array, text_array
from dataflow.formats.format import MAX_BLOCK_BYTES
from dataflow.formats.numeric import numeric_array

__all__ = ["RowBuffer"]


class RowBuffer:
    """Rows that wait to become a record batch.

    Args:
        schema: Columns of a row; None takes them from the rows of the first batch.
    """

    def __init__(self, schema: pa.Schema | None) -> None:
        self.schema = schema
        self._columns: dict[str, list[Any]] = {}
        self._taken = 0
        self.num_rows = 0
        self.num_bytes = 0

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a row. Values that the caller might change later are copied.

        Raises:
            OptionError: The row has other columns than those before it, or an array that no column can hold.
        """
        number = self._taken + self.num_rows
        if not self._columns:
            if not row or not all(isinstance(name, str) for name in row):
                raise OptionError(f"row {number} has the keys {list(row)}: a row is a dict of column names to values")
            self._columns = {name: [] for name in (row if self.schema is None else self.schema.names)}
        if row.keys() != self._columns.keys():
            missing = [name for name in self._columns if name not in row]
            extra = [name for name in row if name not in self._columns]
            raise OptionError(
                f"row {number} lacks the columns {missing} and has {extra} besides. Give every row the same columns, "
                "None where there is no value"
            )
        size = 0
        kept: list[Any] = []
        for name, value in row.items():
            kind = type(value)
            if kind is bytes or kind is str:
                size += len(value)
            elif kind is int or kind is float:
                size += 8
            elif isinstance(value, np.ndarray):
                if value.ndim != 1:
                    raise OptionError(
                        f"column {name!r} of row {number} is an array of shape {value.shape}; columns hold numbers and "
                        "1-D arrays. Write `array[()]` if it has no dimension; else `array.ravel()` with its shape in "
                        "a column of its own, or `array.tolist()` with a schema that has nested fixed_size_lists"
                    )
                value = value.copy()
                size += value.nbytes
            else:
                value, more = _copy(value)
                size += more
            kept.append(value)
        if size > MAX_BLOCK_BYTES:
            raise OptionError(
                f"row {number} has {size} bytes, more than the limit of {MAX_BLOCK_BYTES} of a block. Split it"
            )
        for name, value in zip(row, kept, strict=True):
            self._columns[name].append(value)
        self.num_rows += 1
        self.num_bytes += size

    def take(self) -> pa.RecordBatch:
        """Returns the rows so far as a record batch, and forgets them.

        Raises:
            OptionError: A value does not fit its column; names row and column.
        """
        fields: list[pa.Field] = []
        arrays: list[pa.Array] = []
        for name, values in self._columns.items():
            array = self._array(name, values)
            arrays.append(array)
            fields.append(pa.field(name, array.type) if self.schema is None else self.schema.field(name))
        if self.schema is None:
            self.schema = pa.schema(fields)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._taken += self.num_rows
        self.num_rows = self.num_bytes = 0
        for values in self._columns.values():
            values.clear()
        return batch

    def _array(self, name: str, values: list[Any]) -> pa.Array:
        kind = None if self.schema is None else self.schema.field(name).type
        try:
            array = _convert(values, kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise OptionError(
                f"column {name!r}, row {self._taken + _culprit(values, kind)}: {error}"
                + ("" if kind is None else f". The column has the type {kind}")
            ) from error
        if kind is None and _has_null(array.type):
            raise OptionError(
                f"column {name!r} has no value in the first {len(values)} rows, so its type is unknown. Give schema="
            )
        return array


def _copy(value: Any) -> tuple[Any, int]:
    """A value of a rarer type that nobody else can change, and about how many bytes it has."""
    if value is None or isinstance(value, (bool, np.generic)):
        return value, 8
    if isinstance(value, (bytearray, memoryview)):
        data = bytes(value)
        return data, len(data)
    if isinstance(value, (list, tuple)) and value and type(value[0]) in (int, float):
        return list(value), 8 * len(value)
    return copy.deepcopy(value), _num_bytes(value)


def _num_bytes(value: Any) -> int:
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(_num_bytes(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_num_bytes(item) for item in value)
    return 8


def _convert(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    found = {type(value) for value in values}
    if kind in (None, pa.binary()) and found in ({bytes}, {bytes, type(None)}):
        return binary_array(values)
    if kind in (None, pa.string()) and found in ({str}, {str, type(None)}):
        return text_array(values)
    if (kind in (None, pa.int64()) and found == {int}) or (kind in (None, pa.float64()) and found == {float}):
        return numeric_array(np.array(values, np.int64 if found == {int} else np.float64))
    array = pa.array(values, kind)
    if isinstance(array, pa.ChunkedArray):
        raise ValueError("the values have more bytes than one block can hold")
    if kind is not None and _may_lose(kind):
        # pyarrow cuts fractions off and drops unknown fields of structs without a word when it is given a type.
        lost = _loss(pa.array(values).type, kind)
        if lost:
            raise ValueError(lost)
    return array


def _may_lose(kind: pa.DataType) -> bool:
    nested = (kind.field(i).type for i in range(kind.num_fields))
    return pa.types.is_integer(kind) or pa.types.is_struct(kind) or any(map(_may_lose, nested))


def _loss(found: pa.DataType, wanted: pa.DataType) -> str:
    """What would be lost in a conversion, "" if nothing."""
    if pa.types.is_integer(wanted) and pa.types.is_floating(found):
        return f"{found} values do not fit an integer column"
    if pa.types.is_struct(wanted) and pa.types.is_struct(found):
        names = {wanted.field(i).name: wanted.field(i).type for i in range(wanted.num_fields)}
        for i in range(found.num_fields):
            field = found.field(i)
            lost = _loss(field.type, names[field.name]) if field.name in names else f"unknown field {field.name!r}"
            if lost:
                return lost
    elif wanted.num_fields == 1 and found.num_fields == 1:
        return _loss(found.field(0).type, wanted.field(0).type)
    return ""


def _has_null(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or any(_has_null(kind.field(i).type) for i in range(kind.num_fields))


def _culprit(values: list[Any], kind: pa.DataType | None) -> int:
    """The first row that does not convert together with those before it."""
    low, high = 0, len(values)
    while low + 1 < high:  # rows up to `low` convert, rows up to `high` do not
        middle = (low + high) // 2
        try:
            _convert(values[:middle], kind)
            low = middle
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            high = middle
    return high - 1
