from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.formats.thrift import integer, octets, pick, write
from tests.formats.test_parquet import table_of

EVERYTHING = dict.fromkeys(range(1, 20))


def footer(folder: Path) -> bytes:
    pq.write_table(table_of(20), folder / "a.parquet", row_group_size=8)
    data = (folder / "a.parquet").read_bytes()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


def test_what_is_picked_is_written_as_it_was(tmp_path: Path) -> None:
    data = footer(tmp_path)
    nested = {**EVERYTHING, 4: {**EVERYTHING, 1: {**EVERYTHING, 3: {**EVERYTHING, 16: EVERYTHING}}}, 5: EVERYTHING}
    for fields in (EVERYTHING, nested):
        struct, end = pick(data, fields)
        assert end == len(data)
        # The writer may have chosen another encoding for lists and field numbers; what they say is the same.
        assert pick(write(struct), fields) == (struct, len(write(struct)))
    assert write(pick(data, EVERYTHING)[0]) == data
    assert integer(struct, 3) == 20
    assert octets(struct, 6).startswith(b"parquet-cpp-arrow")
    with pytest.raises(ValueError, match="field 6 is no integer"):
        integer(struct, 6)


def test_only_what_is_wanted(tmp_path: Path) -> None:
    struct, _ = pick(footer(tmp_path), {3: None, 4: {3: None}})
    assert set(struct) == {3, 4}
    _, groups = struct[4]
    assert isinstance(groups, list)
    assert [integer(group, 3) for group in groups] == [8, 8, 4]
    assert [set(group) for group in groups] == [{3}] * 3


@given(st.binary(max_size=60))
def test_any_bytes_raise_value_errors_and_nothing_else(data: bytes) -> None:
    for fields in (EVERYTHING, {1: {1: None, 2: {1: None}}, 2: None}):
        try:
            struct, end = pick(data, fields)
        except ValueError:
            continue
        assert end <= len(data)
        assert pick(write(struct), fields)[0] == struct


def test_numbers_of_items_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="cut off"):
        pick(b"\x19\xfc\xff\xff\xff\xff\x0f\0", {1: {1: None}})
    with pytest.raises(ValueError, match="nested too deeply"):
        pick(b"\x1c" * 40, {})
