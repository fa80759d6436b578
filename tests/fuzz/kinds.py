"""Small files of every kind, and what another reader says is in them."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import ipc, parquet

from dataflow.formats.webdataset import split_name

Rows = list[dict[str, Any]]


def make_tar() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(12):
            name = f"{'long/' * 30 if number == 5 else ''}é{number:03d}"
            for suffix, data in (("jpg", bytes([number]) * 700), ("cls", str(number).encode())):
                member = tarfile.TarInfo(f"{name}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return sink.getvalue()


def read_tar(data: bytes) -> Rows:
    rows: dict[str, dict[str, Any]] = {}
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as tar:
        for member in tar:
            split = split_name(_escaped(member.name)) if member.isreg() else None
            if split is not None:
                content = tar.extractfile(member)
                assert content is not None
                key, suffix = split
                rows.setdefault(key, {"key": key})[suffix] = content.read()
    return list(rows.values())


def _escaped(name: str) -> str:
    """Bytes that are no UTF-8 as %XX."""
    return re.sub("[\udc80-\udcff]", lambda match: f"%{ord(match[0]) - 0xDC00:02X}", name)


def table() -> pa.Table:
    rows = 60
    return pa.table(
        {
            "number": pa.array(range(rows), pa.int64()),
            "text": [None if row % 7 == 3 else "ü" * (row % 5) for row in range(rows)],
            "image": [bytes([row]) * (row * 3) for row in range(rows)],
            "tokens": [list(range(row % 4)) for row in range(rows)],
            "box": pa.array([[row, 1.5] for row in range(rows)], pa.list_(pa.float32(), 2)),
            "nested": [{"a": row, "b": [str(row)]} for row in range(rows)],
        }
    )


def make_arrow() -> bytes:
    sink = io.BytesIO()
    with ipc.new_file(sink, table().schema) as writer:
        writer.write_table(table(), max_chunksize=20)
    return sink.getvalue()


def make_compressed_arrow() -> bytes:
    sink = io.BytesIO()
    with ipc.new_file(sink, table().schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table(), max_chunksize=20)
    return sink.getvalue()


def read_arrow(data: bytes) -> Rows:
    with ipc.open_file(pa.py_buffer(data)) as reader:
        found = reader.read_all()
    found.validate(full=True)
    return found.to_pylist()  # type: ignore[no-any-return]


def make_parquet() -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table(), sink, row_group_size=20, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def make_plain_parquet() -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table(), sink, row_group_size=20, compression="none", use_dictionary=False)
    return sink.getvalue()


def read_parquet(data: bytes) -> Rows:
    # Nothing of Python in Arrow's threads: one that still reads as the interpreter ends takes the process down.
    table = parquet.read_table(pa.BufferReader(data), use_threads=False, pre_buffer=False)
    return table.to_pylist()  # type: ignore[no-any-return]


def make_json_lines() -> bytes:
    rows = (
        {"id": row, "text": "a\u2028" * (row % 4), "score": row / 3, "tags": ["x"] * (row % 3)} for row in range(60)
    )
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def read_json_lines(data: bytes) -> Rows:
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [json.loads(line) for line in lines if line.strip()]


#: Suffix of the file, how it is made, and how another reader reads it.
KINDS: dict[str, tuple[str, Callable[[], bytes], Callable[[bytes], Rows]]] = {
    "tar": (".tar", make_tar, read_tar),
    "arrow": (".arrow", make_arrow, read_arrow),
    "compressed arrow": (".arrow", make_compressed_arrow, read_arrow),
    "parquet": (".parquet", make_parquet, read_parquet),
    "plain parquet": (".parquet", make_plain_parquet, read_parquet),
    "json lines": (".jsonl", make_json_lines, read_json_lines),
}
