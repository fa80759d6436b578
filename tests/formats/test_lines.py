"""Rows of text in compressed files: the same rows whichever way they come in."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.dataset import index, read_block
from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats import compression, row_source
from dataflow.storage import open_store
from tests.formats.shards import PACKERS, index_file, mutate, pack_parts, rows_of

KINDS = [".jsonl", ".csv", ".tsv", ".txt"]


def row(number: int) -> dict[str, Any]:
    return {"id": number, "text": f'"{number}", é\u2028 ' * (number % 4) + "end", "score": number + 0.5}


def write(kind: str, rows: list[dict[str, Any]], blanks: bool = False) -> bytes:
    """Rows as their usual writers write them."""
    between = "\n\r\n" if blanks else "\n"
    if kind == ".jsonl":
        return between.join(json.dumps(row, ensure_ascii=False) for row in rows).encode()
    if kind == ".txt":
        return between.join(row["text"] for row in rows).encode()
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, delimiter="," if kind == ".csv" else "\t", lineterminator=between)
    writer.writerow(["id", "text", "score"])
    for row in rows:
        writer.writerow([row["id"], row["text"] + "\n" * (row["id"] % 3), row["score"]])
    return sink.getvalue().encode()


def expected(kind: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if kind == ".txt":
        return [{"text": row["text"]} for row in rows]
    if kind == ".jsonl":
        return rows
    return [{**row, "text": row["text"] + "\n" * (row["id"] % 3)} for row in rows]


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([*PACKERS, ""]),
    st.integers(0, 40),
    st.lists(st.integers(0, 1500), max_size=12),
    st.integers(1, 700),
    st.booleans(),
    st.booleans(),
)
def test_any_rows_cut_into_any_members_and_blocks(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    suffix: str,
    rows: int,
    cuts: list[int],
    block_bytes: int,
    blanks: bool,
    marked: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / f"a{kind}{suffix}"
    data = b"\xef\xbb\xbf" * marked + write(kind, [row(number) for number in range(rows)], blanks)
    stored = pack_parts(suffix, data, cuts) if suffix else data
    path.write_bytes(stored)
    found = index_file(path, block_bytes)
    assert rows_of(path, found) == expected(kind, [row(number) for number in range(rows)])
    for block in found.blocks:
        assert block.checksum == xxhash.xxh3_128_digest(stored[block.start : block.start + block.length])


@pytest.mark.parametrize("suffix", PACKERS)
def test_blocks_are_read_without_the_file_before_them(tmp_path: Path, suffix: str) -> None:
    data = write(".jsonl", [row(number) for number in range(3000)])
    stored = pack_parts(suffix, data, range(0, len(data), 5000))
    (tmp_path / f"a.jsonl{suffix}").write_bytes(stored)
    found = index_file(tmp_path / f"a.jsonl{suffix}", 4000)
    assert len(found.blocks) > 8
    assert max(block.length for block in found.blocks) < 8000
    assert sum(block.length for block in found.blocks) < 1.5 * len(stored)
    assert any(block.skip for block in found.blocks)


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_row_over_many_members(tmp_path: Path, suffix: str) -> None:
    rows = [{"id": number, "text": "x" * (20_000 if number % 3 == 1 else 10)} for number in range(9)]
    data = write(".jsonl", rows)
    for step in (100, 999, 10**6):
        (tmp_path / f"a.jsonl{suffix}").write_bytes(pack_parts(suffix, data, range(0, len(data), step)))
        for block_bytes in (1, 300, 10**6):
            found = index_file(tmp_path / f"a.jsonl{suffix}", block_bytes)
            assert rows_of(tmp_path / f"a.jsonl{suffix}", found) == rows


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_file_without_seek_points_is_one_block_or_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(".jsonl", [row(number) for number in range(1000)])
    (tmp_path / f"a.jsonl{suffix}").write_bytes(PACKERS[suffix](data))
    [block] = index_file(tmp_path / f"a.jsonl{suffix}", 100).blocks
    assert (block.start, block.rows) == (0, 1000)
    monkeypatch.setattr(compression, "MAX_MEMBER_BYTES", len(data) - 1)
    with pytest.raises(DatasetError, match=rf"a\.jsonl{suffix}: what is compressed in one piece .*dataflow shard"):
        index_file(tmp_path / f"a.jsonl{suffix}", 100)
    monkeypatch.undo()
    monkeypatch.setattr(row_source, "MAX_DECODED_BYTES", len(data) - 1)
    with pytest.raises(DatasetError, match=r"which share a row, have .*dataflow shard"):
        index_file(tmp_path / f"a.jsonl{suffix}", 100)


@pytest.mark.parametrize("suffix", PACKERS)
def test_tx06_lines_are_counted_through_members(tmp_path: Path, suffix: str) -> None:
    lines = [b'{"a": 1}', b"", b'{"a": 2}'] * 50
    lines[100] = b'{"a": }'
    data = b"\n".join(lines)
    for step in (7, 100, 10**6):
        (tmp_path / f"a.jsonl{suffix}").write_bytes(pack_parts(suffix, data, range(0, len(data), step)))
        with pytest.raises(CorruptDataError, match=rf"a\.jsonl{suffix}: line 101: not JSON"):
            index_file(tmp_path / f"a.jsonl{suffix}", 50)


@pytest.mark.parametrize("suffix", PACKERS)
def test_damaged_compression_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    data = pack_parts(suffix, b"some text\n" * 1000, [3000])
    for damaged in (data[:-1], data + b"x", data[: len(data) // 3], b"plain text\n"):
        path.write_bytes(damaged)
        with pytest.raises(CorruptDataError, match=rf"a\.txt{suffix}: .*offset \d+"):
            index_file(path)


@pytest.mark.parametrize("place", ["local", "s3"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_of_plain_and_compressed_files(
    tmp_path: Path, place: str, kind: str, request: pytest.FixtureRequest
) -> None:
    rows = [row(number) for number in range(90)]
    store = open_store(str(tmp_path / "shards") if place == "local" else request.getfixturevalue("s3_url"))
    for shard, suffix in enumerate(["", ".gz", ".zst"]):
        data = write(kind, rows[shard * 30 : shard * 30 + 30])
        store.put_atomic(f"{shard}{kind}{suffix}", pack_parts(suffix, data, [500, 900, 1300]) if suffix else data)
    manifest = index(store.url, out=str(tmp_path / "out"), block_bytes=300)
    assert manifest.num_blocks > 3
    got = [row for block in range(manifest.num_blocks) for row in read_block(store, manifest, block).to_pylist()]
    assert got == expected(kind, rows)


def test_shards_with_other_keys_and_types(tmp_path: Path) -> None:
    (tmp_path / "0.jsonl").write_text('{"a": 1, "b": null, "o": {"x": 1}}\n')
    (tmp_path / "1.jsonl").write_text('{"a": 0.5, "c": "z", "o": {"y": [2]}}\n')
    manifest = index(str(tmp_path))
    store = open_store(str(tmp_path))
    assert [read_block(store, manifest, block).to_pylist()[0] for block in range(2)] == [
        {"a": 1.0, "b": None, "o": {"x": 1, "y": None}, "c": None},
        {"a": 0.5, "b": None, "o": {"x": None, "y": [2]}, "c": "z"},
    ]
    (tmp_path / "2.jsonl").write_text('{"a": "text"}\n')
    with pytest.raises(DatasetError, match=r"2\.jsonl column 'a' is text here, and a number before .*0\.jsonl"):
        index(str(tmp_path))


def test_csv_shards_whose_columns_turn_out_to_be_text(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("id,n\n7,1\n,2\n")
    (tmp_path / "1.csv").write_text("n,id\n2.5,007\n,x\n")
    manifest = index(str(tmp_path))
    store = open_store(str(tmp_path))
    assert [row for block in range(2) for row in read_block(store, manifest, block).to_pylist()] == [
        {"id": "7", "n": 1.0},
        {"id": "", "n": 2.0},
        {"id": "007", "n": 2.5},
        {"id": "x", "n": None},
    ]


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("kind", [".jsonl", ".csv"])
def test_damaged_files_raise_and_nothing_else(tmp_path: Path, kind: str, suffix: str) -> None:
    data = write(kind, [row(number) for number in range(60)])
    (tmp_path / f"a{kind}{suffix}").write_bytes(pack_parts(suffix, data, range(0, len(data), 700)))
    assert mutate(tmp_path / f"a{kind}{suffix}", 200) > 200
