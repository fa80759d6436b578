from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import CorruptDataError, DataflowError, DatasetError
from dataflow.formats import ShardIndex, format_named, format_of, json_types
from tests.formats.shards import index_file, mutate, rows_of

JSONL = format_named("jsonl")


def index_bytes(folder: Path, data: bytes | str, block_bytes: int = 1 << 20, name: str = "a.jsonl") -> ShardIndex:
    (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return index_file(folder / name, block_bytes)


def read(folder: Path, data: bytes | str, block_bytes: int = 1 << 20) -> list[dict[str, Any]]:
    return rows_of(folder / "a.jsonl", index_bytes(folder, data, block_bytes))


def test_tx06_blank_lines_and_line_ends(tmp_path: Path) -> None:
    data = b'\xef\xbb\xbf{"a": "x"}\r\n\n  \t\n\r\n{"a": "y "}\n \n {"a": "z"} \r\n{"a": "last"}'
    expected = [{"a": "x"}, {"a": "y "}, {"a": "z"}, {"a": "last"}]
    for block_bytes in (1, 5, 12, 1000):
        assert read(tmp_path, data, block_bytes) == expected


@pytest.mark.parametrize("block_bytes", [1, 1000])
@pytest.mark.parametrize(
    ("row", "error", "message"),
    [
        ('{"a": }', CorruptDataError, "not JSON: Expecting value"),
        ('{"a": "x"', CorruptDataError, "not JSON"),
        ('{"a": "x"} {"a": "y"}', CorruptDataError, "not JSON: Extra data"),
        ("[1, 2]", DatasetError, "not an object, but list"),
        ('"x"', DatasetError, "not an object, but str"),
        ("null", DatasetError, "not an object, but NoneType"),
        ("7", DatasetError, "not an object, but int"),
        ('{"a": "x", "a": "y"}', CorruptDataError, "'?Column\\(/a\\) was specified twice"),
        ('{"b": {"c": 1, "c": 2}}', CorruptDataError, "Column\\(/b/c\\) was specified twice"),
        ('{"a": "\\ud800"}', CorruptDataError, "surrogate"),
        ('{"i": 9223372036854775808}', DatasetError, "column 'i' has 9223372036854775808, which int64 does not hold"),
        ('{"n": 1e400}', CorruptDataError, "too big to be stored in double"),
        ('{"a": 1}', DatasetError, "column 'a' is an integer here, and text before"),
        ('{"a": ["x"]}', DatasetError, "column 'a' is a list here, and text before"),
        ('{"a": {"x": 1}}', DatasetError, "column 'a' is an object here, and text before"),
        ('{"l": [{"m": 1}, {"m": true}]}', DatasetError, r"column 'l\[\]\.m' is true or false here, and an integer"),
        ('{"w": 9007199254740993, "f": 1}\n{"w": 0.5}', DatasetError, "column 'w' has integers beyond 2\\^53"),
        ('{"f": 0.5}\n{"f": 9007199254740993}', DatasetError, "column 'f' has integers beyond 2\\^53"),
        ('{"z": ' + "[" * 40 + "]" * 40 + "}", DatasetError, "nested more than 32 levels deep"),
        ('{"z": ' + "[" * 100_000, CorruptDataError, "not JSON: maximum recursion"),
    ],
)
def test_tx06_bad_rows_are_named_by_their_line(
    tmp_path: Path, block_bytes: int, row: str, error: type[DataflowError], message: str
) -> None:
    data = '{"a": "x"}\n\n  \r\n{"a": "y"}\r\n' + row + '\n{"a": "z"}\n'
    line = 5 + row.count("\n")
    with pytest.raises(error, match=rf"a\.jsonl: line {line}: .*{message}"):
        index_bytes(tmp_path, data, block_bytes)


def test_tx06_text_that_is_not_utf8(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match=r"a\.jsonl: line 3: not UTF-8 .*b'\\xe9'.*iconv"):
        index_bytes(tmp_path, b'{"a": "x"}\n\n{"a": "caf\xe9"}\n')
    with pytest.raises(CorruptDataError, match="line 1: not UTF-8"):
        index_bytes(tmp_path, '{"a": 1}\n'.encode("utf-16"))


def test_tx09_only_newlines_end_a_row(tmp_path: Path) -> None:
    texts = ["a\u2028b", "c\u2029d", "e\u0085f", "g\vh\fi", "j\rk\nl", "\x1c\x1d\x1e", "é\U0001f600\x00", ""]
    data = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts * 5)
    assert "\u2028" in data
    for block_bytes in (1, 17, 40, 10_000):
        assert [row["text"] for row in read(tmp_path, data, block_bytes)] == texts * 5


def test_types_hold_every_value(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"i": 1, "f": 1, "s": "x", "none": None},
        {"i": -(1 << 63), "f": None, "date": "2020-01-01", "l": []},
        {"i": (1 << 63) - 1, "f": 2.5, "late": {"a": 1}, "l": [1, None]},
        {"f": 1 << 53, "late": {"b": [{"c": True}]}, "l": [0.5]},
        {"key.with.dots": 1, "": "x", "empty": {}, "0911032": "0911032"},
    ]
    data = "".join(json.dumps(row) + "\n" for row in rows)
    for block_bytes in (1, 60, 10_000):
        found = index_bytes(tmp_path, data, block_bytes)
        assert found.schema.types == [
            pa.int64(),
            pa.float64(),
            pa.string(),
            pa.null(),
            pa.string(),
            pa.list_(pa.float64()),
            pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.bool_())])))]),
            pa.int64(),
            pa.string(),
            pa.struct([]),
            pa.string(),
        ]
        got = rows_of(tmp_path / "a.jsonl", found)
        assert [row["i"] for row in got] == [1, -(1 << 63), (1 << 63) - 1, None, None]
        assert [row["f"] for row in got] == [1.0, None, 2.5, 2.0**53, None]
        assert [row["date"] for row in got] == [None, "2020-01-01", None, None, None]
        assert got[2]["late"] == {"a": 1, "b": None}
        assert got[3]["late"] == {"a": None, "b": [{"c": True}]}
        assert [row["l"] for row in got] == [None, [], [1.0, None], [0.5], None]
        assert got[4]["key.with.dots"] == 1
        assert got[4]["empty"] == {}
        assert got[4]["0911032"] == "0911032"  # SH-22


def test_nulls_of_no_type(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"l": [None, None], "s": {"a": None, "b": 1}, "ls": [{"x": [None] * 3}, None], "n": None},
        {"l": None, "s": None, "ls": [], "n": None},
        {"l": [], "s": {"a": None, "b": 2}, "ls": [{"x": None}, {"x": [None]}], "n": None},
        {"l": [None], "s": {"a": None, "b": None}, "ls": None, "n": None},
    ]
    data = "".join(json.dumps(row) + "\n" for row in rows)
    for block_bytes in (1, 1000):
        assert read(tmp_path, data, block_bytes) == rows


def test_numbers_as_python_writes_them(tmp_path: Path) -> None:
    values = [0.1, 1e-320, 1.7976931348623157e308, -0.0, 1e22, 123456789.12345679, math.inf, -math.inf, math.nan]
    got = [row["x"] for row in read(tmp_path, "".join(json.dumps({"x": value}) + "\n" for value in values))]
    assert [value.hex() for value in got] == [value.hex() for value in values]


def test_keys_that_are_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_types, "MAX_KEYS", 10)
    with pytest.raises(DatasetError, match="line 11: the row has more than 10 different keys"):
        index_bytes(tmp_path, "".join(json.dumps({str(i): i}) + "\n" for i in range(20)))


def test_json_files_of_other_shapes(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"a\.json: line 1: a JSON array, not one object a line.*jq"):
        index_bytes(tmp_path, '[{"a": 1}]', name="a.json")
    with pytest.raises(CorruptDataError, match=r"a\.json: line 1: not JSON"):
        index_bytes(tmp_path, '{\n "a": 1\n}', name="a.json")
    with pytest.raises(DatasetError, match="no columns"):
        index_bytes(tmp_path, "{}\n{}\n")
    assert index_bytes(tmp_path, "\n \n").blocks == []
    assert index_bytes(tmp_path, "").blocks == []


def test_more_small_rows_than_pyarrow_takes_at_once(tmp_path: Path) -> None:
    found = index_bytes(tmp_path, b'{"a":1}\n' + b"{}\n" * 400_000, 1 << 30)
    assert [block.rows for block in found.blocks] == [400_001]
    assert rows_of(tmp_path / "a.jsonl", found)[:2] == [{"a": 1}, {"a": None}]


def test_rows_of_very_different_sizes(tmp_path: Path) -> None:
    rows = [{"a": "x" * (3 << 20 if i % 50 == 7 else i)} for i in range(120)]
    data = "".join(json.dumps(row) + "\n" for row in rows)
    for block_bytes in (1000, 1 << 20, 5 << 20):
        assert read(tmp_path, data, block_bytes) == rows


def test_a_row_that_never_ends(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"a\.jsonl: .*a row of more than 64 MiB"):
        index_bytes(tmp_path, b'{"a": "' + b"x" * (130 << 20), 1000)


def test_merge_is_the_union_of_keys(tmp_path: Path) -> None:
    def schema(*rows: dict[str, Any]) -> pa.Schema:
        return index_bytes(tmp_path, "".join(json.dumps(row) + "\n" for row in rows)).schema

    first = schema({"a": 1, "b": None, "c": {"d": [1]}})
    second = schema({"e": "x", "c": {"d": [0.5], "f": True}, "b": "y", "a": 2.5})
    merged = JSONL.merge(first, second)
    assert merged.names == ["a", "b", "c", "e"]
    assert merged.types == [
        pa.float64(),
        pa.string(),
        pa.struct([("d", pa.list_(pa.float64())), ("f", pa.bool_())]),
        pa.string(),
    ]
    with pytest.raises(DatasetError, match="column 'a' is text here, and an integer before"):
        JSONL.merge(first, schema({"a": "x"}))
    with pytest.raises(DatasetError, match="column 'a' has integers beyond"):
        JSONL.merge(schema({"a": (1 << 53) + 1}), second)
    with pytest.raises(DatasetError, match=r"column 'c\.d\[\]' has integers beyond"):
        JSONL.merge(second, schema({"c": {"d": [(1 << 53) + 1]}}))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c.d"]), inner, max_size=3),
    max_leaves=6,
)


def fits(value: Any, like: Any, path: str = "") -> None:
    """Checks that a value read is the one written: keys that it lacked are null, integers may be floats."""
    if isinstance(value, dict):
        assert isinstance(like, dict | None)
        for key, inner in value.items():
            fits(inner, (like or {}).get(key), f"{path}.{key}")
        assert like is not None
        assert set(like) <= set(value)
    elif isinstance(value, list):
        assert isinstance(like, list)
        for one, other in zip(value, like, strict=True):
            fits(one, other, path)
    elif isinstance(value, float) and math.isnan(value):
        assert math.isnan(like)
    else:
        assert value == like, path
        assert isinstance(value, bool) == isinstance(like, bool)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3), min_size=1, max_size=6), st.integers(1, 99)
)
def test_rows_come_back_or_do_not_go_together(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], block_bytes: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    try:
        found = index_bytes(folder, data, block_bytes)
    except DatasetError as error:
        assert any(word in str(error) for word in ("here, and", "beyond 2^53", "no columns"))  # noqa: PT017
        return
    got = rows_of(folder / "a.jsonl", found)
    assert len(got) == len(rows)
    for one, other in zip(got, rows, strict=True):
        fits(one, other)


def test_damaged_files_raise_and_nothing_else(tmp_path: Path) -> None:
    rows = [{"a": i, "t": "text é", "l": [{"x": 1.5}] * (i % 3), "o": {"k": None, "b": True}} for i in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert mutate(tmp_path / "a.jsonl") > 100


def test_formats_by_suffix() -> None:
    for name in ("a.jsonl", "a.JSONL.GZ", "x/a.ndjson.zst", "a.json", "a.json.gz"):
        assert format_of(name) is JSONL
    assert format_of("a.jsonl.bz2") is None
