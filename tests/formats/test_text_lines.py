from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import CorruptDataError
from dataflow.formats import format_named, format_of
from tests.formats.shards import index_file, rows_of


def read(folder: Path, data: bytes, block_bytes: int) -> list[str]:
    (folder / "a.txt").write_bytes(data)
    found = index_file(folder / "a.txt", block_bytes)
    assert found.schema == pa.schema([("text", pa.string())])
    return [row["text"] for row in rows_of(folder / "a.txt", found)]


@pytest.mark.parametrize("block_bytes", [1, 8, 1000])
def test_lines(tmp_path: Path, block_bytes: int) -> None:
    data = "\ufefffirst\r\n\r\n\n \t\n  indented \nlast\r".encode()
    assert read(tmp_path, data, block_bytes) == ["first", "  indented ", "last"]
    assert read(tmp_path, b"", block_bytes) == []
    assert read(tmp_path, b"\n\n", block_bytes) == []


def test_tx09_only_newlines_end_a_row(tmp_path: Path) -> None:
    texts = ["a\u2028b", "c\u2029d", "e\u0085f", "g\vh\fi", "j\rk", "\x1c\x1d\x1e", "\u3000", "\v", "n\x00l"]
    for block_bytes in (1, 1000):
        assert read(tmp_path, "\n".join(texts).encode(), block_bytes) == texts


@pytest.mark.parametrize("block_bytes", [1, 1000])
def test_text_that_is_not_utf8(tmp_path: Path, block_bytes: int) -> None:
    with pytest.raises(CorruptDataError, match=r"a\.txt: line 4: not UTF-8"):
        read(tmp_path, b"a\n\nb\ncaf\xe9\n", block_bytes)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5)), st.integers(1, 30))
def test_rows_are_lines(tmp_path_factory: pytest.TempPathFactory, lines: list[str], block_bytes: int) -> None:
    text = "\n".join(lines)
    expected = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n") if line.strip(" \t\r")]
    assert read(tmp_path_factory.getbasetemp(), text.encode(), block_bytes) == expected


def test_formats_by_suffix() -> None:
    assert format_of("a.txt.zst") is format_named("text")
