"""Which values can be written, and what is said of those that cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.dataset import ShardWriter
from dataflow.errors import OptionError
from tests.dataset.written import rows_at, write


def test_values_may_be_reused_by_the_caller(tmp_path: Path) -> None:
    array, data, items = np.zeros(3, np.float32), bytearray(b"000"), [0, 0]
    with ShardWriter(str(tmp_path)) as writer:
        for i in range(3):
            array[:], data[:], items[:] = i, b"%03d" % i, [i, i]
            writer.write(
                {"array": array, "data": data, "view": memoryview(data), "items": items, "deep": {"a": [array]}}
            )
    assert rows_at(str(tmp_path)) == [
        {"array": [i] * 3, "data": b"%03d" % i, "view": b"%03d" % i, "items": [i, i], "deep": {"a": [[i] * 3]}}
        for i in range(3)
    ]


def test_md02_arrays_keep_type_and_length_or_are_refused(tmp_path: Path) -> None:
    for kind in ("int8", "uint16", "int64", "float16", "float32", "float64", "bool"):
        manifest = write(tmp_path / kind, [{"x": np.zeros(n, kind), "y": np.ones((), kind)[()]} for n in (0, 1, 3)])
        assert manifest.schema.field("x").type.value_type == manifest.schema.field("y").type
        assert manifest.schema.field("y").type.to_pandas_dtype() == np.dtype(kind)
        assert [len(row["x"]) for row in rows_at(str(tmp_path / kind))] == [0, 1, 3]
    for array in (np.empty(()), np.zeros((0, 3)), np.zeros((2, 2))):
        with pytest.raises(OptionError, match=r"column 'x' of row 1 is an array of shape \(.*ravel"):
            write(tmp_path / "refused", [{"x": np.zeros(2)}, {"x": array}])


def test_fixed_size_lists_by_schema(tmp_path: Path) -> None:
    schema = pa.schema([("pose", pa.list_(pa.float32(), 3)), ("matrix", pa.list_(pa.list_(pa.int8(), 2), 2))])
    rows = [{"pose": np.full(3, i, np.float32), "matrix": [[i, 1], [2, 3]]} for i in range(5)]
    write(tmp_path / "d", rows, schema=schema)
    assert rows_at(str(tmp_path / "d"))[4] == {"pose": [4, 4, 4], "matrix": [[4, 1], [2, 3]]}
    with pytest.raises(OptionError, match=r"column 'pose', row 2: .*expected 3"):
        write(tmp_path / "e", [*rows[:2], {"pose": np.zeros(2), "matrix": [[0, 0], [0, 0]]}], schema=schema)


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ({"x": 1}, {"x": "one"}, r"column 'x', row 7: .*type int64"),
        ({"x": 1}, {"x": 1.5}, r"column 'x', row 7: double values do not fit an integer column.*int64"),
        ({"x": np.ones(2, np.int32)}, {"x": np.ones(2)}, r"column 'x', row 7: double values do not fit an integer"),
        ({"x": "text"}, {"x": 3}, r"column 'x', row 7: .*type string"),
        ({"x": b"bytes"}, {"x": 3}, r"column 'x', row 7: .*type binary"),
        ({"x": 1}, {"x": 2**70}, r"column 'x', row 7: "),
        ({"x": {"a": 1}}, {"x": {"a": 1, "b": 2}}, r"column 'x', row 7: unknown field 'b'"),
        ({"x": {"a": 1}}, {"x": {"a": 1.5}}, r"column 'x', row 7: double values"),
        ({"x": 1}, {"y": 1}, r"row 7 lacks the columns \['x'\] and has \['y'\]"),
        ({"x": 1, "y": 2}, {"x": 1}, r"row 7 lacks the columns \['y'\]"),
        ({"x": 1}, {"x": object()}, r"column 'x', row 7: "),
    ],
)
@pytest.mark.parametrize("rows_per_block", [3, 100])
def test_a_row_that_does_not_fit_is_named(
    tmp_path: Path, good: dict[str, Any], bad: dict[str, Any], message: str, rows_per_block: int
) -> None:
    rows = [*[good] * 7, bad, *[good] * 3]
    if rows_per_block == 100:  # all in the first block, which the types are taken from
        message = message.split(": ", maxsplit=1)[0]
        if "1.5" in str(bad) or "'a'" in str(bad) or isinstance(good["x"], np.ndarray):
            return  # whole numbers and fractions in the first block make a column of fractions
    with pytest.raises(OptionError, match=message):
        write(tmp_path, rows, rows_per_block=rows_per_block)
    assert not (tmp_path / "manifest.arrow").exists()


def test_a_column_without_any_value_needs_a_schema(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"column 'x' has no value in the first 3 rows.*schema="):
        write(tmp_path / "d", [{"x": None}] * 3)
    with pytest.raises(OptionError, match="column 'x' has no value"):
        write(tmp_path / "e", [{"x": []}] * 3)
    write(tmp_path / "f", [{"x": None}] * 3, schema=pa.schema([("x", pa.string())]))
    assert rows_at(str(tmp_path / "f")) == [{"x": None}] * 3


@pytest.mark.parametrize("row", [{}, {1: 2}])
def test_what_is_no_row(tmp_path: Path, row: dict[Any, Any]) -> None:
    with pytest.raises(OptionError, match="a row is a dict of column names to values"):
        write(tmp_path, [row])


def test_batches_that_do_not_fit(tmp_path: Path) -> None:
    plain, dictionary = pa.array(["1"]), pa.array(["1"]).dictionary_encode()
    with ShardWriter(str(tmp_path / "a")) as writer:
        writer.write_batch(pa.record_batch({"x": [1]}))
        with pytest.raises(OptionError, match="'x' of type string instead of 'x' of type int64"):
            writer.write_batch(pa.record_batch({"x": plain}))
    writer = ShardWriter(str(tmp_path / "b"))
    with pytest.raises(OptionError, match="'x' is dictionary-encoded"):
        writer.write_batch(pa.record_batch({"x": dictionary}))
    writer.abort()
    twice = pa.schema([("x", pa.int64()), ("x", pa.int64())])
    with pytest.raises(OptionError, match="columns of the same name"):
        ShardWriter(str(tmp_path / "c"), twice)


def test_a_row_larger_than_any_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="row 1 has 1073741825 bytes, more than the limit"):
        write(tmp_path, [{"x": b""}, {"x": bytes((1 << 30) + 1)}])
