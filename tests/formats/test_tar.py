"""Tar headers, as written by Python's own tarfile and by hand."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import CorruptDataError
from dataflow.formats import Place
from tests.formats.archives import FORMATS, WEBDATASET, header, index_bytes, pack, padded, rows_of

NAMES = {
    "short": "a/b.jpg",
    "101 bytes": "x" * 97 + ".jpg",
    "150 bytes in folders": "d" * 80 + "/" + "y" * 65 + ".jpg",
    "300 bytes": "d" * 120 + "/" + "e" * 120 + "/" + "z" * 55 + ".jpg",
    "not ASCII": "größe/日本語.jpg",
}


@pytest.mark.parametrize("format", FORMATS)
def test_sh11_the_same_samples_from_every_tar_format(tmp_path: Path, format: str) -> None:
    for name in NAMES.values():
        if format == "ustar" and (len(name) > 255 or len(name.rpartition("/")[2]) > 100):
            continue
        members = [(name, b"x" * 700), (name[:-4] + ".cls", b"1"), ("next.jpg", b"y")]
        data = pack(members, FORMATS[format])
        index = index_bytes(tmp_path, data, block_bytes=1)
        assert not index.skipped
        assert rows_of(data, index) == [
            {"key": name[:-4], "cls": b"1", "jpg": b"x" * 700},
            {"key": "next", "cls": None, "jpg": b"y"},
        ]


def test_sh11_pax_records_for_one_member_and_for_the_whole_archive(tmp_path: Path) -> None:
    sink = io.BytesIO()
    headers = {"comment": "everything", "mtime": "1.5"}
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
        for name in ("a.jpg", "b.jpg"):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = 5, 1700000000.25
            info.pax_headers = {"comment": "one = two\nthree"}
            archive.addfile(info, io.BytesIO(b"12345"))
    index = index_bytes(tmp_path, sink.getvalue(), block_bytes=1)
    assert not index.skipped
    assert [row["key"] for row in rows_of(sink.getvalue(), index)] == ["a", "b"]


def test_sh11_a_pax_size_record_overrides_the_header(tmp_path: Path) -> None:
    record = b"12 size=600\n"
    assert len(record) == 12
    data = header(b"pax", b"%011o\0" % len(record), b"x") + padded(record)
    data += header(b"a.jpg", b"%011o\0" % 0) + padded(b"z" * 600)
    data += header(b"b.jpg", b"%011o\0" % 1) + padded(b"y") + bytes(1024)
    assert rows_of(data, index_bytes(tmp_path, data)) == [{"key": "a", "jpg": b"z" * 600}, {"key": "b", "jpg": b"y"}]


def test_gnu_sizes_in_base_256(tmp_path: Path) -> None:
    data = header(b"a.jpg", b"\x80" + (700).to_bytes(11, "big")) + padded(b"z" * 700) + bytes(1024)
    assert rows_of(data, index_bytes(tmp_path, data)) == [{"key": "a", "jpg": b"z" * 700}]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (b"\xff" * 12, "negative number"),
        (b"\x80" + b"\xff" * 11, "reaches past"),
        (b"77777777777\0", "reaches past"),
        (b"-0000000001\0", "not an octal number"),
        (b"1_0\0", "not an octal number"),
    ],
)
def test_absurd_sizes_are_named_before_memory_is_taken(tmp_path: Path, size: bytes, message: str) -> None:
    with pytest.raises(CorruptDataError, match=rf"a\.tar: .*{message}"):
        index_bytes(tmp_path, header(b"a.jpg", size) + bytes(1024))


@pytest.mark.parametrize("kind", [b"L", b"x"])
def test_absurd_extended_headers_are_named_before_memory_is_taken(tmp_path: Path, kind: bytes) -> None:
    data = header(b"long", b"%011o\0" % (2 << 20), kind) + bytes(4 << 20)
    with pytest.raises(CorruptDataError, match="extended tar header at offset 0 claims 2097152 bytes"):
        index_bytes(tmp_path, data)


@pytest.mark.parametrize("record", [b"99 path=a\n", b"x path=a\n", b"10 path=ab", b"0 \n", b"-5 a=b\n", b"9 noequal\n"])
def test_damaged_pax_records(tmp_path: Path, record: bytes) -> None:
    data = header(b"pax", b"%011o\0" % len(record), b"x") + padded(record) + header(b"a.jpg", b"1\0") + padded(b"y")
    with pytest.raises(CorruptDataError, match="pax record"):
        index_bytes(tmp_path, data + bytes(1024))


def test_every_cut_of_an_archive_is_noticed(tmp_path: Path) -> None:
    data = pack([("a.jpg", b"1" * 600), ("b.jpg", b"2" * 600)])
    end = len(data.rstrip(b"\0"))
    whole = (end + 511) // 512 * 512
    for cut in [*range(1, whole, 97), whole, whole + 100]:
        with pytest.raises(CorruptDataError, match=r"a\.tar: .*(cut off|not a tar header).*"):
            index_bytes(tmp_path, data[:cut])
    assert index_bytes(tmp_path, data[: whole + 512]).blocks  # one of the two zero records is enough


def test_an_empty_file_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match="no end-of-archive mark after 0 bytes"):
        index_bytes(tmp_path, b"")


def test_archives_glued_together(tmp_path: Path) -> None:
    data = pack([("a.jpg", b"1")])
    with pytest.raises(CorruptDataError, match="data follows the end-of-archive mark, after offset 1024"):
        index_bytes(tmp_path, data + pack([("b.jpg", b"2")]))


def test_a_compressed_archive_says_so(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match="gzip: unpack it first"):
        index_bytes(tmp_path, gzip.compress(bytes(range(256)) * 8, compresslevel=0))


def test_sparse_members_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match="is sparse"):
        index_bytes(tmp_path, header(b"a.jpg", b"1\0", b"S") + padded(b"x") + bytes(1024))
    record = b"22 GNU.sparse.major=1\n"
    data = header(b"pax", b"%011o\0" % len(record), b"x") + padded(record) + header(b"a.jpg", b"1\0") + padded(b"y")
    with pytest.raises(CorruptDataError, match="is sparse"):
        index_bytes(tmp_path, data + bytes(1024))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_damaged_blocks_raise_and_nothing_else(data: st.DataObject) -> None:
    archive = bytearray(pack([(f"{'n' * 120}{i}.jpg", b"x" * 300) for i in range(4)], tarfile.PAX_FORMAT).rstrip(b"\0"))
    for _ in range(data.draw(st.integers(1, 4))):
        archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    try:
        batch = WEBDATASET.read(
            bytes(archive), pa.schema([pa.field("key", pa.string()), pa.field("jpg", pa.binary())]), Place(0, 1)
        )
    except CorruptDataError:
        return
    batch.validate(full=True)
