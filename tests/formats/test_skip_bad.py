"""Damaged shards with `skip_bad`: what is sound is read, what is not is listed, and nothing else happens."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from dataflow.errors import CorruptDataError, DatasetError, StorageError
from dataflow.formats import ShardIndex, format_of, row_source
from dataflow.storage import Buffer, open_store
from dataflow.storage.local import LocalStore
from tests.formats.archives import header, pack
from tests.formats.shards import PACKERS, pack_parts, rows_of


def index_sound(path: Path, block_bytes: int = 1 << 20) -> ShardIndex:
    """Indexes what is sound. What is sound throughout is found as it is without `skip_bad`."""
    kind = format_of(path.name)
    assert kind is not None
    store = open_store(str(path.parent))
    found = kind.index(store, path.name, block_bytes, skip_bad=True)
    try:
        strict = kind.index(store, path.name, block_bytes)
    except (CorruptDataError, DatasetError):
        assert found.skipped
    else:
        assert strict == found
    return found


def sound(path: Path, data: bytes, block_bytes: int = 1 << 20) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows, and what was left out: names with notes."""
    path.write_bytes(data)
    found = index_sound(path, block_bytes)
    return rows_of(path, found), {item.name: item.note for item in found.skipped}


BAD_LINES = {
    "not JSON": b'{"id": 1, "text": }',
    "cut off": b'{"id": 1, "text": "x',
    "two objects": b'{"id": 1} {"id": 2}',
    "a list": b"[1, 2]",
    "a number": b"7",
    "not UTF-8": b'{"id": 1, "text": "caf\xe9"}',
    "a lone surrogate": b'{"id": 1, "text": "\\ud800"}',
    "another type": b'{"id": 1, "text": 5}',
    "another type, and a key of its own": b'{"new": [1], "id": {"x": 1}}',
    "beyond int64": b'{"id": 9223372036854775808}',
    "beyond float64": b'{"id": 1, "score": 1e999}',
    "a key twice": b'{"id": 1, "id": 2}',
    "too deep": b'{"z": ' + b"[" * 100_000,
    "zeros": bytes(40),
}


@pytest.mark.parametrize("suffix", ["", *PACKERS])
@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_bad_json_lines_are_left_out_alone(tmp_path: Path, block_bytes: int, suffix: str) -> None:
    good = [{"id": n, "text": f"é\u2028{n}", "score": n + 0.5} for n in range(30)]
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in good]
    for place, bad in enumerate(BAD_LINES.values()):
        lines.insert(1 + 3 * place, bad)
    lines.insert(5, b"  \r")  # blank lines count in numbers
    lines += [b'{"id": 3']
    data = b"\n".join(lines)
    stored = pack_parts(suffix, data, range(0, len(data), 333)) if suffix else data
    rows, skipped = sound(tmp_path / f"a.jsonl{suffix}", stored, block_bytes)
    assert rows == good
    bad_lines = [number for number, line in enumerate(lines, 1) if line in BAD_LINES.values() or number == len(lines)]
    assert list(skipped) == [f"line {number}" for number in bad_lines]
    assert skipped["line 2"].startswith("not JSON: Expecting value")
    assert any("not UTF-8" in note for note in skipped.values())
    assert any("column 'text' is an integer here, and text before" in note for note in skipped.values())


def test_a_bad_line_leaves_no_trace_in_the_columns(tmp_path: Path) -> None:
    data = b'{"a": 1}\n{"b": "x", "a": "y"}\n{"a": 2.5}\n{"a": 9007199254740993}\n{"a": 3, "b": true}\n'
    (tmp_path / "a.jsonl").write_bytes(data)
    for block_bytes in (1, 1000):
        found = index_sound(tmp_path / "a.jsonl", block_bytes)
        assert found.schema == pa.schema([("a", pa.float64()), ("b", pa.bool_())])
        assert [item.name for item in found.skipped] == ["line 2", "line 4"]
        assert [row["a"] for row in rows_of(tmp_path / "a.jsonl", found)] == [1, 2.5, 3]


@pytest.mark.parametrize("suffix", ["", *PACKERS])
@pytest.mark.parametrize("block_bytes", [1, 60, 1 << 20])
def test_bad_csv_rows_are_left_out_alone(tmp_path: Path, block_bytes: int, suffix: str) -> None:
    lines = [
        b"id,text,x",
        b'1,"two\nlines, ""quoted""",0.5',
        b"2,too few",  # line 4
        b"3,b,1.5",
        b"4,too,many,values",  # line 6
        b'5,"text"after,1',  # line 7
        b'"6',  # line 8: not closed, which the next quote shows
        b'"7",c,2.5',
        b"8,caf\xe9,1",  # line 10
        b"9,lone\rreturn,1",  # line 11
        b"",
        b"10,d,",
        b'11,"never closed,1',  # line 14
        b"12,e,3.5",
    ]
    data = b"\n".join(lines) + b"\n"
    stored = pack_parts(suffix, data, range(0, len(data), 41)) if suffix else data
    rows, skipped = sound(tmp_path / f"a.csv{suffix}", stored, block_bytes)
    assert rows == [
        {"id": 1, "text": 'two\nlines, "quoted"', "x": 0.5},
        {"id": 3, "text": "b", "x": 1.5},
        {"id": 7, "text": "c", "x": 2.5},
        {"id": 10, "text": "d", "x": None},
        {"id": 12, "text": "e", "x": 3.5},
    ]
    assert list(skipped) == [f"line {number}" for number in (4, 6, 7, 8, 10, 11, 14)]
    assert "Expected 3 columns, got 2" in skipped["line 4"]
    assert skipped["line 14"].startswith("not a row: a quote is not closed")


def test_a_quote_that_is_not_closed_in_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataflow.formats import csv_rows, lines

    for module in (row_source, csv_rows, lines):
        monkeypatch.setattr(module, "MAX_ROW_BYTES", 1000)
    data = b"id,text\n" + b"".join(b'%d,%s"text\n' % (n, b"" if n == 50 else b"a") for n in range(2000))
    rows, skipped = sound(tmp_path / "a.csv", data, 100)
    assert [row["id"] for row in rows] == [n for n in range(2000) if n != 50]
    assert list(skipped) == ["line 52"]


def test_a_row_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataflow.formats import lines

    for module in (row_source, lines):
        monkeypatch.setattr(module, "MAX_ROW_BYTES", 1000)
    rows, skipped = sound(tmp_path / "a.jsonl", b'{"a": 1}\n{"a": 2}\n{"a": "' + b"x" * 300_000 + b'"}\n{"a": 4}\n', 10)
    assert rows == [{"a": 1}, {"a": 2}]
    assert list(skipped) == ["everything from line 3"]


def test_bad_lines_of_text(tmp_path: Path) -> None:
    data = b"one\n\ncaf\xe9\nthree\r\n\xff\xfe\nfour"
    for block_bytes in (1, 1000):
        rows, skipped = sound(tmp_path / "a.txt", data, block_bytes)
        assert rows == [{"text": "one"}, {"text": "three"}, {"text": "four"}]
        assert list(skipped) == ["line 3", "line 5"]


def test_sound_lines_only_are_as_they_were(tmp_path: Path) -> None:
    data = b"".join(b'{"id": %d}\n' % n for n in range(1000))
    for suffix in ("", *PACKERS):
        path = tmp_path / f"a.jsonl{suffix}"
        path.write_bytes(pack_parts(suffix, data, range(0, len(data), 777)) if suffix else data)
        assert not index_sound(path, 500).skipped  # which compares it with that of `raise`


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(["jsonl", "csv", "txt"]),
    st.sampled_from(["", *PACKERS]),
    st.lists(st.booleans(), max_size=60),
    st.lists(st.integers(0, 2500), max_size=10),
    st.integers(1, 1500),
    st.integers(0, 1000),
)
def test_exactly_the_good_rows(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    suffix: str,
    good: list[bool],
    cuts: list[int],
    block_bytes: int,
    seed: int,
) -> None:
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    bad = {
        "jsonl": list(BAD_LINES.values()),
        "csv": [b"1", b"1,2,3", b'1,"x"y', b"1,\xff", b"\r1,2", b'1,"x""'],
        "txt": [b"\xff", b"caf\xe9"],
    }[kind]
    lines, rows = ([b"id,text"] if kind == "csv" else []), []
    # The first row is good, so that it says what the types are.
    for number, is_good in enumerate([True, *good]):
        text = f"t{number} é\u2028 " + "x" * (seed * number % 90)
        if not is_good:
            lines.append(bad[(seed + number) % len(bad)])
            continue
        rows.append({"text": text} if kind == "txt" else {"id": number, "text": text})
        sink.seek(0)
        sink.truncate()
        writer.writerow([number, text])
        lines.append({"txt": text, "csv": sink.getvalue()[:-1], "jsonl": json.dumps(rows[-1])}[kind].encode())
    data = b"\n".join(lines)
    path = tmp_path_factory.getbasetemp() / f"skip.{kind}{suffix}"
    got, skipped = sound(path, pack_parts(suffix, data, cuts) if suffix else data, block_bytes)
    assert got == rows
    offset = 2 if kind == "csv" else 1
    assert list(skipped) == [f"line {n + offset}" for n, is_good in enumerate([True, *good]) if not is_good]


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt"])
def test_compressed_pieces_before_damage_stay(tmp_path: Path, kind: str, suffix: str) -> None:
    head = b"id,text\n" if kind == "csv" else b""
    lines = [b'{"id": %d, "text": "row"}\n' % n if kind == "jsonl" else b'%d,"row"\n' % n for n in range(300)]
    data = head + b"".join(lines)
    parts = range(0, len(data), 500)
    stored = pack_parts(suffix, data, parts)
    ends = [len(pack_parts(suffix, data[:end], range(0, end, 500))) for end in parts[1:]]
    for member, damaged in [
        (0, stored[:5]),
        (2, stored[: ends[1] + 3]),
        (3, stored[: ends[3] - 1] + stored[ends[3] :]),
        (4, stored[: ends[3]] + b"\0" + stored[ends[3] :]),
        (len(parts), stored + b"x"),
        (len(parts) - 1, stored[:-1]),
    ]:
        whole = data if member == len(parts) else data[: member * 500]
        for block_bytes in (1, 150, 1 << 20):
            path = tmp_path / f"a.{kind}{suffix}"
            path.write_bytes(damaged)
            found = index_sound(path, block_bytes)
            assert len(rows_of(path, found)) == max(0, whole.count(b"\n") - bool(head))
            [item] = found.skipped
            assert item.reason == "damaged or cut off"
            assert item.name == f"everything from line {1 + whole.count(10)}"
            assert "offset" in item.note


def samples(count: int) -> list[tuple[str, bytes]]:
    return [(f"{n:03d}.{kind}", f"{kind} {n}".encode() * 50) for n in range(count) for kind in ("cls", "jpg")]


def tar_keys(path: Path, data: bytes, block_bytes: int) -> tuple[list[str], list[str]]:
    rows, skipped = sound(path, data, block_bytes)
    expected = dict(samples(100))
    for row in rows:
        assert all(row[kind] == expected[f"{row['key']}.{kind}"] for kind in ("cls", "jpg"))
    return [row["key"] for row in rows], list(skipped)


@pytest.mark.parametrize("block_bytes", [1, 4000, 1 << 20])
def test_bad_samples_of_tars_are_left_out_alone(tmp_path: Path, block_bytes: int) -> None:
    for bad in ([0], [5], [9], [0, 1, 4, 9], list(range(10))):
        for member in [("x", b""), ("cls", b"again"), ("key", b"x")]:
            members = samples(10)
            for key in reversed(bad):
                members.insert(2 * key + 2, (f"{key:03d}.{member[0]}", member[1]))
            keys, skipped = tar_keys(tmp_path / "a.tar", pack(members), block_bytes)
            assert keys == [f"{n:03d}" for n in range(10) if n not in bad]
            assert [name.split()[1] for name in skipped] == [f"'{n:03d}'" for n in bad]
    found = index_sound(tmp_path / "a.tar", block_bytes)
    assert not found.blocks


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_a_sample_that_comes_back_is_left_out_as_a_whole(tmp_path: Path, block_bytes: int) -> None:
    members = samples(10)
    members.insert(12, ("002.txt", b"late"))
    keys, skipped = tar_keys(tmp_path / "a.tar", pack(members), block_bytes)
    assert keys == [f"{n:03d}" for n in range(10) if n != 2]
    assert [name.split()[1] for name in skipped] == ["'002'"]
    assert index_sound(tmp_path / "a.tar", block_bytes).schema.names == ["key", "cls", "jpg"]


@pytest.mark.parametrize("block_bytes", [1, 4000, 1 << 20])
def test_whole_samples_before_damage_stay(tmp_path: Path, block_bytes: int) -> None:
    data = pack(samples(10))
    member = 1024  # a header and the data
    for number in range(20):
        for at in (0, 1, 511, 512, 513, 1000):
            cut = number * member + at
            # Whole members: number. The last sample that has one of them may lack the other.
            before = (number - 1) // 2 if number else 0
            keys, skipped = tar_keys(tmp_path / "a.tar", data[:cut], block_bytes)
            assert keys == [f"{n:03d}" for n in range(before)]
            assert skipped[-1] == f"everything after offset {number * member}"
            assert len(skipped) == (2 if number else 1)
    for damage in (b"x" * 100, bytes(512)):
        damaged = data[: 6 * member] + damage + data[6 * member + len(damage) :]
        keys, skipped = tar_keys(tmp_path / "a.tar", damaged, block_bytes)
        assert keys == ["000", "001"]
        assert skipped == ["sample '002' at offset 4096", "everything after offset 6144"]


def test_a_sparse_member_in_a_tar(tmp_path: Path) -> None:
    data = pack(samples(3))[: 6 * 1024] + header(b"x.jpg", b"00000000000", b"S") + bytes(1024)
    keys, skipped = tar_keys(tmp_path / "a.tar", data, 1)
    assert keys == ["000", "001"]
    assert skipped[-1] == "everything after offset 6144"


def batches() -> list[pa.RecordBatch]:
    return [pa.record_batch({"id": range(n * 10, n * 10 + 10), "text": [f"{n}" * 9] * 10}) for n in range(5)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("codec", [None, "zstd"])
def test_arrow_record_batches_around_damage_stay(tmp_path: Path, stream: bool, codec: str | None) -> None:
    path = tmp_path / "a.arrow"
    opened = ipc.new_stream if stream else ipc.new_file
    with opened(str(path), batches()[0].schema, options=ipc.IpcWriteOptions(compression=codec)) as writer:
        for batch in batches():
            writer.write_batch(batch)
    whole = path.read_bytes()
    blocks = index_sound(path).blocks

    def ids(data: bytes) -> tuple[list[int], list[str]]:
        rows, skipped = sound(path, data)
        assert all(row["id"] % 10 < 10 and row["text"] == f"{row['id'] // 10}" * 9 for row in rows)
        return sorted({row["id"] // 10 for row in rows}), list(skipped)

    for bad in range(5):
        start, end = blocks[bad].start, blocks[bad].start + blocks[bad].length
        rest = [f"everything after offset {start}"]
        assert ids(whole[:start]) == (list(range(bad)), rest)
        assert ids(whole[: end - 1]) == (list(range(bad)), rest)
        assert ids(whole[:start] + bytes(64) + whole[start + 64 :])[0] == list(range(bad))
        # Offsets of the text, or its codec's header: the end of the record batch is known.
        metadata = int.from_bytes(whole[start + 4 : start + 8], "little") + 8
        damaged = whole[: start + metadata] + b"\xff" * (end - start - metadata) + whole[end:]
        expected = [n for n in range(5) if n != bad], [f"record batch at offset {start}"]
        assert ids(damaged) == expected
    everything = list(range(5))
    assert ids(whole + whole) == (everything, [f"everything after offset {len(whole)}"]) if stream else True
    if not stream:
        assert ids(whole[:-20] + bytes(14) + whole[-6:]) == (everything, ["the footer"])
        assert ids(whole[:-1]) == (everything, [f"everything after offset {blocks[-1].start + blocks[-1].length + 8}"])


def test_an_arrow_batch_that_the_footer_has_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    with ipc.new_file(str(path), batches()[0].schema) as writer:
        for batch in batches():
            writer.write_batch(batch)
    block = index_sound(path).blocks[2]
    data = bytearray(path.read_bytes())
    place = data.rindex(block.start.to_bytes(8, "little"))
    data[place : place + 8] = (block.start + 8).to_bytes(8, "little")
    rows, skipped = sound(path, bytes(data))
    assert [row["id"] for row in rows] == [n for n in range(50) if n // 10 != 2]
    assert list(skipped) == [f"record batch at offset {block.start}"]


def test_damaged_parquet_row_groups_are_left_out_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(
        pa.Table.from_batches(batches()), path, row_group_size=10, write_page_checksum=True, compression="zstd"
    )
    whole = path.read_bytes()
    blocks = index_sound(path).blocks
    for bad in ([0], [2, 3], [4], [0, 1, 2, 3, 4]):
        data = bytearray(whole)
        for number in bad:
            place = blocks[number].start + blocks[number].length - 5
            data[place] ^= 0x55
        rows, skipped = sound(path, bytes(data))
        assert [row["id"] for row in rows] == [n for n in range(50) if n // 10 not in bad]
        assert list(skipped) == [f"row group {number} at offset {blocks[number].start}" for number in bad]
    with pytest.raises(CorruptDataError, match=r"a\.parquet: "):
        sound(path, whole[:-1])


def test_an_outage_is_never_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n' * 1_500_000)
    (tmp_path / "a.tar").write_bytes(pack((f"{n}.jpg", bytes(1 << 20)) for n in range(12)))
    with ipc.new_file(str(tmp_path / "a.arrow"), pa.schema([("x", pa.binary())])) as writer:
        for _ in range(12):
            writer.write_batch(pa.record_batch({"x": [bytes(1 << 20)]}))
    parquet.write_table(pa.table({"x": range(100_000)}), tmp_path / "a.parquet", row_group_size=10_000)
    (tmp_path / "a.txt.gz").write_bytes(b"".join(PACKERS[".gz"](bytes([65 + n % 20]) * 99 + b"\n") for n in range(9)))

    class Failing(LocalStore):
        def read_range(self, path: str, start: int, length: int) -> Buffer:
            if start > 0 or path.endswith(".gz"):
                raise StorageError("the store is out")
            return super().read_range(path, start, length)

    for path in sorted(tmp_path.iterdir()):
        kind = format_of(path.name)
        assert kind is not None
        with pytest.raises(StorageError, match="the store is out"):
            kind.index(Failing(str(tmp_path)), path.name, 1 << 20, skip_bad=True)
