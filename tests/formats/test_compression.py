from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import CorruptDataError, DataflowError, DatasetError
from dataflow.formats import compression
from dataflow.formats.compression import MAX_DECODED_BYTES, decode, members
from tests.formats.shards import PACKERS, PEAK, pack_parts

SKIPPABLE = b"\x53\x2a\x4d\x18\x05\0\0\0abcde"
NAMES = {".gz": "gzip", ".zst": "zstd"}
MIXED = b"".join((os.urandom(70_000), bytes(300_000), b"some text " * 20_000))


def all_members(name: str, data: bytes) -> list[compression.Member]:
    view = memoryview(data)
    return list(members(name, lambda start, length: view[start : start + length], len(view)))


def zstd_frames(data: bytes) -> dict[str, bytes]:
    """The same data as zstd frames of many kinds."""

    def streamed(**options: object) -> bytes:
        stream = zstandard.ZstdCompressor(**options).compressobj()  # type: ignore[arg-type]
        return stream.compress(data) + stream.flush()

    long = zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=True)
    return {
        "one shot": zstandard.ZstdCompressor().compress(data),
        "no size": zstandard.ZstdCompressor(write_content_size=False).compress(data),
        "checksum": zstandard.ZstdCompressor(level=1, write_checksum=True).compress(data),
        "stream": streamed(),
        "level 19": streamed(level=19),
        "long": streamed(compression_params=long),
        "threads": zstandard.ZstdCompressor(threads=2).compress(data),
    }


@pytest.mark.parametrize("kind", list(zstd_frames(b"")))
@pytest.mark.parametrize("data", [b"", b"x", MIXED], ids=["nothing", "one byte", "mixed"])
def test_zstd_frames_of_every_kind(kind: str, data: bytes) -> None:
    frame = zstd_frames(data)[kind]
    whole = frame + SKIPPABLE + zstandard.compress(b"end") + SKIPPABLE
    found = all_members("zstd", whole)
    assert b"".join(member.stored for member in found) == whole
    assert [member.data for member in found] == [data, b"", b"end", b""]
    assert [member.start for member in found] == [0, len(frame), len(frame) + 13, len(whole) - 13]
    assert decode("zstd", whole) == data + b"end"


def test_gzip_members_of_every_kind() -> None:
    named = io.BytesIO()
    with gzip.GzipFile("name.txt", "wb", 6, named, 1) as file:
        file.write(MIXED)
    bgzip_end = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
    parts = [named.getvalue(), gzip.compress(b"", 0), gzip.compress(b"x", 9), bgzip_end]
    whole = b"".join(parts)
    found = all_members("gzip", whole)
    assert [member.stored for member in found] == parts
    assert [member.data for member in found] == [MIXED, b"", b"x", b""]
    assert decode("gzip", whole + bytes(700)) == MIXED + b"x"  # padding


@pytest.mark.parametrize("suffix", PACKERS)
def test_every_cut_and_what_follows(suffix: str) -> None:
    data = pack_parts(suffix, b"some text\n" * 30, [100])
    name = NAMES[suffix]
    whole = {0, len(all_members(name, data)[0].stored), len(data)}
    for cut in range(len(data) + 1):
        if cut in whole:
            assert decode(name, data[:cut]) + decode(name, data[cut:]) == b"some text\n" * 30
        else:
            with pytest.raises(CorruptDataError):
                decode(name, data[:cut])
    for rest in (b"x", b"\0x", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18\x09\0\0\0abc"):
        with pytest.raises(CorruptDataError):
            decode(name, data + rest)


def test_zstd_that_wants_too_much() -> None:
    wide = zstandard.ZstdCompressionParameters.from_level(3, window_log=31, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    with pytest.raises(DatasetError, match="needs a window of 2147483648 bytes"):
        decode("zstd", stream.compress(MIXED) + stream.flush())
    words = zstandard.train_dictionary(2000, [f"some words number {i} of many".encode() for i in range(2000)])
    with pytest.raises(DatasetError, match="needs a dictionary"):
        decode("zstd", zstandard.ZstdCompressor(dict_data=words).compress(b"some words"))


@pytest.mark.parametrize("suffix", PACKERS)
def test_members_that_are_too_large(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack_parts(suffix, bytes(3 << 20), [1 << 20])
    monkeypatch.setattr(compression, "MAX_MEMBER_BYTES", 2 << 20)
    assert len(all_members(NAMES[suffix], data)) == 2
    monkeypatch.setattr(compression, "MAX_MEMBER_BYTES", (2 << 20) - 1)
    with pytest.raises(DatasetError, match=r"in one piece at offset [1-9]\d* has more than .*dataflow shard"):
        all_members(NAMES[suffix], data)


@pytest.mark.parametrize("suffix", PACKERS)
def test_bombs_take_no_memory(suffix: str, tmp_path: Path) -> None:
    """2 GiB in one member, and in members that are small one by one."""
    packed = PACKERS[suffix](bytes(32 << 20))
    (tmp_path / f"many.txt{suffix}").write_bytes(packed * 64)
    if suffix == ".gz":
        with gzip.open(tmp_path / "one.txt.gz", "wb", 1) as file:
            for _ in range(64):
                file.write(bytes(4 << 20))
    else:
        stream = zstandard.ZstdCompressor().compressobj()
        with open(tmp_path / "one.txt.zst", "wb") as file:
            for _ in range(512):
                file.write(stream.compress(bytes(4 << 20)))
            file.write(stream.flush())
    program = (
        PEAK
        + f"""
from dataflow.errors import DataflowError
from dataflow.formats import format_of
from dataflow.formats.compression import decode
from dataflow.storage import open_store
format = format_of("a.txt")
import pyarrow.compute
before = peak_kib()
for action in (
    lambda: format.index(open_store({str(tmp_path)!r}), "one.txt{suffix}", 1 << 20),
    lambda: format.index(open_store({str(tmp_path)!r}), "many.txt{suffix}", 1 << 20),
    lambda: decode({NAMES[suffix]!r}, open({str(tmp_path)!r} + "/many.txt{suffix}", "rb").read()),
):
    try:
        action()
    except DataflowError:
        pass
    else:
        raise AssertionError("no error")
print(peak_kib() - before)
"""
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert int(done.stdout) << 10 < 4 * MAX_DECODED_BYTES


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=2000), st.lists(st.integers(0, 2000), max_size=9), st.sampled_from(list(PACKERS)), st.data())
def test_any_cut_and_any_damage(data: bytes, cuts: list[int], suffix: str, draw: st.DataObject) -> None:
    packed = pack_parts(suffix, data, cuts)
    assert decode(NAMES[suffix], packed) == data
    damaged = bytearray(packed)
    for _ in range(draw.draw(st.integers(1, 4))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    try:
        decode(NAMES[suffix], damaged)
    except DataflowError:
        return
