"""Columns of a block as NumPy sees them: where nulls may be, and slices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dataflow.dataset.columns import ColumnView, ColumnViewer
from dataflow.errors import DatasetError

PAIRS = pa.list_(pa.float32(), 2)
GRID = pa.list_(PAIRS, 2)


def view(array: pa.Array) -> ColumnView:
    batch = pa.record_batch([array], ["x"])
    (column,) = ColumnViewer(batch.schema, ["x"])(batch)
    return column


def test_null_lists_are_none_and_leave_the_rows_after_them_in_place() -> None:
    column = view(pa.array([[1, 2], None, [5, 6]], PAIRS))
    assert column.value(1) is None
    assert column.value(2).tolist() == [5, 6]


def test_nested_fixed_lists_keep_their_shape() -> None:
    column = view(pa.array([[[1, 2], [3, 4]], None, [[5, 6], [7, 8]]], GRID))
    assert column.value(2).tolist() == [[5, 6], [7, 8]]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([[1, None]], PAIRS),
        pa.array([None, [1, None]], PAIRS),
        pa.array([[[1, 2], None]], GRID),
        pa.array([[1, None], [2]], pa.list_(pa.int32())),
    ],
    ids=["fixed", "beside a null list", "nested", "ragged"],
)
def test_nulls_within_lists_are_refused(array: pa.Array) -> None:
    with pytest.raises(DatasetError, match="'x' has nulls within its lists"):
        view(array)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(range(10), pa.int16()),
        pa.array([bool(n % 3) for n in range(10)]),
        pa.array([str(n) * n for n in range(10)]),
        pa.array([b"x" * n for n in range(10)], pa.large_binary()),
        pa.array([[n, n + 1] for n in range(10)], PAIRS),
        pa.array([list(range(n)) for n in range(10)], pa.list_(pa.int64())),
    ],
    ids=lambda array: str(array.type),
)
def test_slices_are_seen_as_slices(array: pa.Array) -> None:
    column, rows = view(array.slice(3, 4)), np.array([0, 3, 1])
    gathered = column.gather([column], np.zeros(3, np.int32), rows)
    for at, row in enumerate(rows.tolist()):
        wanted = array[3 + row].as_py()
        for found in (column.value(row), gathered[at]):
            assert (found.tolist() if isinstance(found, (np.ndarray, np.generic)) else found) == wanted
