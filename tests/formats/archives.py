"""Tar archives for tests, written by Python's own tarfile."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from dataflow.formats import Place, ShardIndex, format_named
from dataflow.storage import open_store

WEBDATASET = format_named("webdataset")
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def pack(members: Iterable[tuple[str, bytes]], format: int = tarfile.GNU_FORMAT, **options: object) -> bytes:
    """An archive of regular files."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=format, **options) as archive:  # type: ignore[call-overload]
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def index_bytes(folder: Path, data: bytes, block_bytes: int = 1 << 20, name: str = "a.tar") -> ShardIndex:
    """Indexes an archive as a file of a real store."""
    (folder / name).write_bytes(data)
    return WEBDATASET.index(open_store(str(folder)), name, block_bytes)


def rows_of(data: bytes, index: ShardIndex, schema: pa.Schema | None = None) -> list[dict[str, object]]:
    """All rows, each block read from its own bytes alone."""
    rows: list[dict[str, object]] = []
    for block in index.blocks:
        batch = WEBDATASET.read(
            data[block.start : block.start + block.length], schema or index.schema, Place(block.start, block.rows)
        )
        batch.validate(full=True)
        assert batch.num_rows == block.rows
        rows += batch.to_pylist()
    return rows


def header(name: bytes, size: bytes, kind: bytes = b"0") -> bytes:
    """A header by hand, with its checksum."""
    block = bytearray(512)
    block[: len(name)] = name
    block[124 : 124 + len(size)] = size
    block[148:156] = b" " * 8
    block[156:157] = kind
    block[257:265] = b"ustar\00000"
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    """Data as it lies in an archive."""
    return data + bytes(-len(data) % 512)
