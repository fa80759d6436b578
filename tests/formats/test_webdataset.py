from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import CorruptDataError, DatasetError
from dataflow.formats import Skipped
from dataflow.formats.webdataset import split_name
from tests.formats.archives import WEBDATASET, header, index_bytes, pack, padded, rows_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/some/path/22.0/1.1.png", ("/some/path/22.0/1", "1.png")),
        ("train.v1/0001.jpg", ("train.v1/0001", "jpg")),
        ("./235342 Track 2.0 (Clean Version).mp3", ("./235342 Track 2", "0 (clean version).mp3")),
        ("S_02/x_VE1.wav.data", ("S_02/x_VE1", "wav.data")),
        ("myfile.patch.JPEG", ("myfile", "patch.jpeg")),
        ("0911032.jpg", ("0911032", "jpg")),
        ("no_extension", None),
        ("folder.v1/no_extension", None),
        ("trailing.", None),
        ("._0001.jpg", None),
        ("dir/._0001.jpg", None),
        ("d/.DS_Store", None),
    ],
)
def test_sh03_names_are_split_at_the_first_dot_of_the_base_name(name: str, expected: tuple[str, str] | None) -> None:
    assert split_name(name) == expected


# What the reference implementation matches names with.
REFERENCE = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")


@given(st.text(alphabet="aB./_0 ", min_size=1, max_size=12))
def test_sh03_agrees_with_the_reference_except_for_hidden_files(name: str) -> None:
    base = name[name.rfind("/") + 1 :]
    match = REFERENCE.match(name)
    if base.startswith(".") or (base.endswith(".") and base.count(".") == 1):
        assert split_name(name) is None
    else:
        assert split_name(name) == (None if match is None else (match[1], match[2].lower()))


def test_sh04_rows_have_a_key_and_a_column_for_each_extension(tmp_path: Path) -> None:
    data = pack([("a.jpg", b"1"), ("a.patch.jpeg", b"2"), ("b.jpg", b"3"), ("c.json", b"{}"), ("c.JPG", b"4")])
    index = index_bytes(tmp_path, data)
    assert index.schema.names == ["key", "jpg", "json", "patch.jpeg"]
    assert rows_of(data, index) == [
        {"key": "a", "jpg": b"1", "json": None, "patch.jpeg": b"2"},
        {"key": "b", "jpg": b"3", "json": None, "patch.jpeg": None},
        {"key": "c", "jpg": b"4", "json": b"{}", "patch.jpeg": None},
    ]


def test_sh22_keys_stay_text(tmp_path: Path) -> None:
    data = pack([("0911032.cls", b"1"), ("911032.cls", b"2")])
    assert [row["key"] for row in rows_of(data, index_bytes(tmp_path, data))] == ["0911032", "911032"]


def test_a_block_is_a_run_of_whole_samples_near_the_wanted_size(tmp_path: Path) -> None:
    members = [(f"{i:04d}.{kind}", bytes([i % 256]) * (900 + i)) for i in range(300) for kind in ("a", "b")]
    data = pack(members)
    index = index_bytes(tmp_path, data, block_bytes=20_000)
    assert len(index.blocks) > 20
    assert sum(block.rows for block in index.blocks) == 300
    end = 0
    for block in index.blocks:
        assert block.start == end
        end = block.start + block.length
        assert block.checksum == xxhash.xxh3_128_digest(data[block.start : end])
    assert all(17_000 <= block.length <= 23_000 for block in index.blocks[:-1])
    assert [row["key"] for row in rows_of(data, index)] == [f"{i:04d}" for i in range(300)]


def test_members_larger_than_the_window_are_hashed_in_pieces(tmp_path: Path) -> None:
    members = [("a.bin", b"a" * (9 << 20)), ("b.bin", b"b" * (20 << 20)), ("c.bin", b"c")]
    data = pack(members)
    index = index_bytes(tmp_path, data)
    assert [block.rows for block in index.blocks] == [1, 1, 1]
    for block in index.blocks:
        assert block.checksum == xxhash.xxh3_128_digest(data[block.start : block.start + block.length])
    assert rows_of(data, index)[1]["bin"] == b"b" * (20 << 20)


def test_sh12_what_is_no_sample_is_skipped_with_a_reason(tmp_path: Path) -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:

        def add(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE) -> None:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            info.size = len(data) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(data))

        add("d.v1", kind=tarfile.DIRTYPE)
        add("d.v1/._0001.jpg")
        add("d.v1/0001.jpg", b"image")
        add("d.v1/.DS_Store")
        add("link.jpg", kind=tarfile.SYMTYPE)
        add("d.v1/0001.cls", b"7")  # still the same sample: what lies between belongs to none
        add("hard.jpg", kind=tarfile.LNKTYPE)
        add("pipe.jpg", kind=tarfile.FIFOTYPE)
        add("README")
        add("d.v1/0002.jpg", b"other")
    index = index_bytes(tmp_path, sink.getvalue())
    assert rows_of(sink.getvalue(), index) == [
        {"key": "d.v1/0001", "cls": b"7", "jpg": b"image"},
        {"key": "d.v1/0002", "cls": None, "jpg": b"other"},
    ]
    assert index.skipped == [
        Skipped("d.v1/", "a directory"),
        Skipped("d.v1/._0001.jpg", "metadata of macOS (AppleDouble)"),
        Skipped("d.v1/.DS_Store", "a hidden file"),
        Skipped("link.jpg", "a symbolic link"),
        Skipped("hard.jpg", "a hard link"),
        Skipped("pipe.jpg", "a pipe"),
        Skipped("README", "a name without an extension"),
    ]


def test_sh20_bytes_that_are_not_utf8_become_percent_forms(tmp_path: Path) -> None:
    data = b"".join(
        header(name, b"%011o\0" % 1) + padded(b"x") for name in (b"caf\xe9.jpg", b"it\x92s.txt", b"50%.jpg")
    )
    data += bytes(1024)
    index = index_bytes(tmp_path, data)
    assert [row["key"] for row in rows_of(data, index)] == ["caf%E9", "it%92s", "50%"]


def test_a_member_twice_in_a_sample_names_both_offsets(tmp_path: Path) -> None:
    data = pack([("a.jpg", b"1"), ("a.JPG", b"2")])
    with pytest.raises(CorruptDataError, match=r"a\.tar: sample 'a' has 'jpg' twice, at offsets 0 and 1024 .*Pack"):
        index_bytes(tmp_path, data)


def test_a_key_that_comes_back_names_both_offsets(tmp_path: Path) -> None:
    data = pack([("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3")])
    with pytest.raises(
        CorruptDataError, match=r"sample 'a' starts at offset 0 and again, after others, at 2048.*--sort"
    ):
        index_bytes(tmp_path, data)


def test_a_member_without_bytes_is_named(tmp_path: Path) -> None:
    data = pack([("a.jpg", b"1"), ("b.jpg", b"")])
    with pytest.raises(CorruptDataError, match=r"a\.tar: member 'b\.jpg' at offset 1024 has no bytes\. Pack"):
        index_bytes(tmp_path, data)


def test_an_extension_that_is_the_key_column(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"a\.tar: member 'a\.key' .*Rename"):
        index_bytes(tmp_path, pack([("a.key", b"1")]))


def test_dots_in_keys_do_not_make_thousands_of_columns(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="more than 256 different extensions"):
        index_bytes(tmp_path, pack([(f"photo.{i}.jpg", b"1") for i in range(300)]))


def test_columns_that_are_not_asked_for_are_left_out(tmp_path: Path) -> None:
    data = pack([("a.jpg", b"1"), ("a.cls", b"2"), ("b.jpg", b"3")])
    index = index_bytes(tmp_path, data)
    schema = pa.schema([pa.field("other", pa.binary()), pa.field("jpg", pa.binary())])
    assert rows_of(data, index, schema) == [{"other": None, "jpg": b"1"}, {"other": None, "jpg": b"3"}]


def test_merge_is_the_union(tmp_path: Path) -> None:
    first = index_bytes(tmp_path, pack([("a.jpg", b"1")])).schema
    second = index_bytes(tmp_path, pack([("b.cls", b"1"), ("b.txt", b"2")])).schema
    assert WEBDATASET.merge(first, second).names == ["key", "cls", "jpg", "txt"]
    assert WEBDATASET.merge(first, second) == WEBDATASET.merge(second, first)
