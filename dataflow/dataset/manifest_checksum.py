"""The checksum of a manifest over all its bytes, kept within them.

It stands in the metadata of the Arrow schema, which a file has twice: at its start and in its footer. It is computed
over the file with zeros in both places, so that the file stays an ordinary Arrow file and every byte of it counts.
"""

from __future__ import annotations

import os
from pathlib import Path

import xxhash

from dataflow.errors import DatasetError

__all__ = ["UNSEALED", "check_seal", "seal"]

_KEY = b"dataflow.checksum"
_MARK = b"dataflow-xxh3-128:"
_HEX = 32
_MAGIC = b"ARROW1"
_PIECE_BYTES = 1 << 20
# Of each of the two places where a schema is stored: properties of a dataset are in it.
_MOST_SCHEMA_BYTES = 256 << 20

#: Metadata of a file that is about to be sealed.
UNSEALED = {_KEY: _MARK + b"0" * _HEX}


def seal(file: bytearray) -> None:
    """Writes the checksum into a file that has `UNSEALED` among the metadata of its schema."""
    first, last = file.index(_MARK) + len(_MARK), file.rindex(_MARK) + len(_MARK)
    digest = xxhash.xxh3_128_hexdigest(file).encode()
    for place in (first, last):
        file[place : place + _HEX] = digest


def check_seal(path: Path) -> None:
    """Compares the checksum of a file with its content. Read in pieces, so that nothing of it stays in memory.

    Raises:
        DatasetError: They differ, or there is none; says both.
    """
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        head_end = 8 + _schema_bytes(file.read(16)[8:])
        file.seek(max(0, size - 10))
        tail_start = size - 10 - _footer_bytes(file.read(10))
        if not 16 <= head_end <= tail_start:
            raise DatasetError(f"it is damaged or cut off (its parts do not fit into its {size} bytes)")
        file.seek(0)
        head = bytearray(file.read(head_end))
        file.seek(tail_start)
        tail = bytearray(file.read(size - tail_start))
        said = {_take(head, first=True), _take(tail, first=False)}
        if said == {None}:
            raise DatasetError("it is an Arrow file, but not a manifest")
        digest = xxhash.xxh3_128(head)
        file.seek(head_end)
        piece = memoryview(bytearray(_PIECE_BYTES))
        left = tail_start - head_end
        while left:
            count = file.readinto(piece[: min(left, len(piece))])
            if not count:
                raise DatasetError("it became shorter while it was read")
            digest.update(piece[:count])
            left -= count
        digest.update(tail)
    if said != {digest.hexdigest()}:
        raise DatasetError(
            f"it is damaged (its xxh3-128 is {digest.hexdigest()}, it says {' and '.join(map(str, said))})"
        )


def _schema_bytes(prefix: bytes) -> int:
    """Length of the first message with its prefix: four bytes of ones, then the length of what follows."""
    length = int.from_bytes(prefix[4:8], "little", signed=True)
    if prefix[:4] != b"\xff\xff\xff\xff" or not 0 < length < _MOST_SCHEMA_BYTES:
        raise DatasetError("it is damaged (it does not begin as an Arrow file)")
    return 8 + length


def _footer_bytes(suffix: bytes) -> int:
    length = int.from_bytes(suffix[:4], "little", signed=True)
    if suffix[4:] != _MAGIC or not 0 < length < _MOST_SCHEMA_BYTES:
        raise DatasetError("it is damaged or cut off (it does not end as an Arrow file)")
    return length


def _take(part: bytearray, first: bool) -> str | None:
    """Returns the checksum that is written in a part of the file, None if there is none, and puts zeros there."""
    at = part.find(_MARK) if first else part.rfind(_MARK)
    place = at + len(_MARK)
    if at < 0 or place + _HEX > len(part):
        return None
    text = bytes(part[place : place + _HEX])
    part[place : place + _HEX] = b"0" * _HEX
    return text.decode("latin-1")
