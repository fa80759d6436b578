from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats import ShardIndex, format_named, format_of
from tests.formats.shards import index_file, mutate, rows_of

CSV = format_named("csv")


def index_bytes(folder: Path, data: bytes | str, block_bytes: int = 1 << 20, name: str = "a.csv") -> ShardIndex:
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return index_file(folder / name, block_bytes)


def read(folder: Path, data: bytes | str, block_bytes: int = 1 << 20, name: str = "a.csv") -> list[dict[str, Any]]:
    return rows_of(folder / name, index_bytes(folder, data, block_bytes, name))


def written(rows: list[list[Any]], **options: Any) -> bytes:
    sink = io.StringIO(newline="")
    csv.writer(sink, **options).writerows(rows)
    return sink.getvalue().encode()


@pytest.mark.parametrize(
    "options", [{}, {"quoting": csv.QUOTE_ALL}, {"lineterminator": "\n", "quoting": csv.QUOTE_NONNUMERIC}], ids=str
)
def test_values_with_delimiters_quotes_and_line_ends(tmp_path: Path, options: dict[str, Any]) -> None:
    values = ["a\nb", "c\r\nd", 'say "hi"', ",", "", "\n", '"', "é\u2028\u0085\v\f", "x\ry", " ", "\n\n\n", "plain"] * 3
    data = b"\xef\xbb\xbf" + written([["text", "other"], *([value, "o"] for value in values)], **options)
    for block_bytes in (1, 10, 50, 10_000):
        assert read(tmp_path, data, block_bytes) == [{"text": value, "other": "o"} for value in values]
    data = written([["other", "text"], *(["o", value] for value in values)], delimiter="\t", **options)
    for block_bytes in (1, 50):
        rows = read(tmp_path, data, block_bytes, "a.tsv")
        assert rows == [{"other": "o", "text": value} for value in values]


def test_blank_lines_and_line_ends(tmp_path: Path) -> None:
    data = "\r\n\na,b\r\n\n1,x\r\n\r\n\n2,y z\n3,last"
    for block_bytes in (1, 5, 100):
        assert read(tmp_path, data, block_bytes) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y z"}, {"a": 3, "b": "last"}]
    assert read(tmp_path, 'a\n\n""\n \nx\n') == [{"a": ""}, {"a": " "}, {"a": "x"}]
    assert index_bytes(tmp_path, "a,b\n").blocks == []
    assert index_bytes(tmp_path, "").blocks == []


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["0911032", "911032"], pa.string(), ["0911032", "911032"]),  # SH-22
        (["1", "", "-2"], pa.int64(), [1, None, -2]),
        (["9223372036854775807", "-9223372036854775808"], pa.int64(), [(1 << 63) - 1, -(1 << 63)]),
        (["9223372036854775808", "1"], pa.string(), None),
        (["1", "", "2.5", "1e3", "-0"], pa.float64(), [1.0, None, 2.5, 1000.0, -0.0]),
        (["9007199254740993", "0.5"], pa.string(), None),
        (["0.5", "9007199254740992"], pa.float64(), [0.5, 2.0**53]),
        (["nan", "inf", "-inf", "0.1"], pa.float64(), [math.nan, math.inf, -math.inf, 0.1]),
        (["1e400"], pa.string(), None),
        (["true", "", "False"], pa.bool_(), [True, None, False]),
        (["true", "1"], pa.string(), None),
        (["+1"], pa.string(), None),
        (["0x10"], pa.string(), None),
        (["1_000"], pa.string(), None),
        ([" 1"], pa.string(), None),
        (["2020-01-01", "12:30"], pa.string(), None),
        (["NULL", "None", "N/A", ""], pa.string(), None),
        (["", ""], pa.null(), [None, None]),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1000])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_types_of_columns(
    tmp_path: Path, values: list[str], kind: pa.DataType, expected: list[Any] | None, block_bytes: int, quoting: Any
) -> None:
    found = index_bytes(tmp_path, written([["v", "w"], *([v, "w"] for v in values)], quoting=quoting), block_bytes)
    assert found.schema.field("v").type == kind
    got = [row["v"] for row in rows_of(tmp_path / "a.csv", found)]
    assert str(got) == str(values if expected is None else expected)


@pytest.mark.parametrize("block_bytes", [1, 1000])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1", "Expected 2 columns, got 1"),
        ("1,2,3", "Expected 2 columns, got 3"),
        ("   ", "Expected 2 columns, got 1"),
        ('"a"b,c', "text follows a closing quote"),
        ('"a,b', "a quote is not closed"),
        ("a\rb,c", "a carriage return stands alone"),
        ("a\r,c", "a carriage return stands alone"),
    ],
)
def test_tx06_bad_rows_are_named_by_their_line(tmp_path: Path, block_bytes: int, row: str, message: str) -> None:
    for quoted in ("x", '"x\ny"'):
        line = 4 + quoted.count("\n")
        with pytest.raises(CorruptDataError, match=rf"a\.csv: line {line}: .*{message}"):
            index_bytes(tmp_path, f"a,b\n\n{quoted},1\n{row}\nz,2\n", block_bytes)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match=r"a\.csv: line 3: .*UTF8"):
        index_bytes(tmp_path, b"a,b\nx,y\ncaf\xe9,z\n")
    with pytest.raises(CorruptDataError, match=r"a\.csv: line 1: not UTF-8"):
        index_bytes(tmp_path, b"caf\xe9,b\nx,y\n")


def test_headers(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"a\.csv: line 1: the header has two columns 'a'"):
        index_bytes(tmp_path, "a,b,a\n1,2,3\n")
    assert read(tmp_path, ',"x\ny, ""z"""\r\n1,2\r\n', 1) == [{"": 1, 'x\ny, "z"': 2}]
    with pytest.raises(CorruptDataError, match=r"a\.csv: line 1: not a row"):
        index_bytes(tmp_path, '"a\nb\n')


def test_merge(tmp_path: Path) -> None:
    def schema(text: str) -> pa.Schema:
        return index_bytes(tmp_path, text).schema

    first = schema("a,b,c,d\n1,2,x,\n")
    merged = CSV.merge(first, schema("d,c,b,a\n1,2,2.5,7\n"))
    assert merged.names == ["a", "b", "c", "d"]
    assert merged.types == [pa.int64(), pa.float64(), pa.string(), pa.int64()]
    assert CSV.merge(schema("a\n9007199254740993\n"), schema("a\n0.5\n")).types == [pa.string()]
    with pytest.raises(DatasetError, match="lacks column 'd'"):
        CSV.merge(first, schema("a,b,c\n1,2,3\n"))
    with pytest.raises(DatasetError, match="a column 'e' that earlier shards lack"):
        CSV.merge(first, schema("a,b,c,d,e\n1,2,3,4,5\n"))


TEXT = st.text(st.sampled_from('ab,"\n\r\t é\u2028;1.-'), max_size=6)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(TEXT, TEXT, st.integers() | st.floats()), min_size=1, max_size=8),
    st.integers(1, 60),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["a.csv", "a.tsv"]),
)
def test_what_python_writes_comes_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]], block_bytes: int, end: str, name: str
) -> None:
    folder = tmp_path_factory.getbasetemp()
    delimiter = "," if name == "a.csv" else "\t"
    # Python leaves a carriage return unquoted where rows end otherwise, and readers differ on what that means.
    quoting = csv.QUOTE_NONNUMERIC if end == "\n" else csv.QUOTE_MINIMAL
    data = written([["x", "y", "z"], *map(list, rows)], lineterminator=end, delimiter=delimiter, quoting=quoting)
    for row, (x, y, z) in zip(read(folder, data, block_bytes, name), rows, strict=True):
        # Text of numbers alone becomes numbers; what that means is tested above.
        assert row["x"] in (x, None) or str(row["x"]) == x or float(x) == row["x"]
        assert row["y"] in (y, None) or str(row["y"]) == y or float(y) == row["y"]
        assert row["z"] == z or str(row["z"]) == str(z) or math.isnan(z)


def test_damaged_files_raise_and_nothing_else(tmp_path: Path) -> None:
    rows = [[i, i / 3, 'text, "é"\n' * (i % 3), "x"] for i in range(60)]
    (tmp_path / "a.csv").write_bytes(written([["a", "b", "c", "d"], *rows]))
    assert mutate(tmp_path / "a.csv") > 50


def test_formats_by_suffix() -> None:
    assert format_of("x/a.CSV.gz") is CSV
    assert format_of("x/a.tsv.zst") is format_named("tsv")
