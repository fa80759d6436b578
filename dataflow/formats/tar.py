"""Reads tar headers: ustar, GNU long names and base-256 sizes, pax records. No path from an archive is ever opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dataflow.errors import CorruptDataError

__all__ = ["RECORD_BYTES", "Member", "read_member"]

#: Headers and data come in records of this size.
RECORD_BYTES = 512

ZEROS = bytes(RECORD_BYTES)
REGULAR = (b"0", b"\0", b"7")
# Links, devices, directories and pipes have no data, whatever their size field says.
WITHOUT_DATA = frozenset((b"1", b"2", b"3", b"4", b"5", b"6"))
# Headers that describe the next member, and are no members themselves.
PREFIXES = frozenset((b"L", b"K", b"x", b"X", b"g"))
NAMES_OF_TYPES = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a device",
    b"4": "a device",
    b"5": "a directory",
    b"6": "a pipe",
    b"V": "a volume label",
}
# Longest name or set of pax records that is taken into memory.
MAX_PREFIX_BYTES = 1 << 20


class Member(NamedTuple):
    """One member of an archive.

    Attributes:
        name: Its path in the archive, as stored.
        start: Offset of its first header, with the long names and pax records that belong to it.
        data: Offset of its first byte.
        size: Number of bytes.
        end: Offset behind its padding, where the next header starts.
        special: What it is if not a regular file, e.g. "a directory"; "" for files.
    """

    name: bytes
    start: int
    data: int
    size: int
    end: int
    special: str


def read_member(
    read: Callable[[int, int], bytes | memoryview], offset: int, end: int, verify: bool = True
) -> Member | None:
    """Reads the member whose first header is at `offset`.

    Args:
        read: Returns `length` bytes from an offset: `read(offset, length)`.
        offset: Where the header starts.
        end: Where the archive, or the part of it at hand, ends.
        verify: Check the headers' own checksums. Not needed where the bytes have been checked already.

    Returns:
        The member, or None at the mark that ends an archive.

    Raises:
        CorruptDataError: This is no tar header, or the member reaches past `end`; names the offset.
    """
    start = offset
    long_name: bytes | None = None
    records: dict[bytes, bytes] = {}
    while True:
        if offset + RECORD_BYTES > end:
            raise CorruptDataError(f"cut off at offset {offset}: no room for a tar header before {end}")
        header = bytes(read(offset, RECORD_BYTES))
        if header[0] == 0 and header == ZEROS:
            if offset != start:
                raise CorruptDataError(f"extended tar header at offset {start} has no member")
            return None
        if verify:
            _verify(header, offset)
        kind = header[156:157]
        data = offset + RECORD_BYTES
        size = _number(header[124:136], offset)
        if kind in PREFIXES:
            if size > MAX_PREFIX_BYTES:
                raise CorruptDataError(f"extended tar header at offset {offset} claims {size} bytes")
        elif kind in WITHOUT_DATA:
            size = 0
        elif b"size" in records:
            size = _decimal(records[b"size"], offset)
        following = data + (size + RECORD_BYTES - 1) // RECORD_BYTES * RECORD_BYTES
        if following > end:
            raise CorruptDataError(
                f"cut off: the tar member at offset {offset} has {size} bytes and reaches past {end}"
            )
        if kind not in PREFIXES:
            break
        if kind == b"L":
            long_name = bytes(read(data, size)).rstrip(b"\0")
        elif kind in b"xX":
            records.update(_records(bytes(read(data, size)), offset))
        # K (a long link target) and g (records for the whole archive) say nothing that a sample needs.
        offset = following
    if kind in b"SM" or any(key.startswith(b"GNU.sparse") for key in records):
        raise CorruptDataError(
            f"the member at offset {offset} is sparse or continued from another volume. Pack the tar again without that"
        )
    name = records.get(b"path") or long_name or _name(header)
    special = ""
    if kind not in REGULAR:
        special = NAMES_OF_TYPES.get(kind, f"of the unknown type {kind!r}")
    elif name.endswith(b"/"):
        special = "a directory"
    return Member(name, start, data, size, following, special)


def _verify(header: bytes, offset: int) -> None:
    expected = _number(header[148:156], offset)
    actual = sum(header) - sum(header[148:156]) + 8 * 0x20
    if actual != expected:
        # Some old writers summed signed characters.
        high = sum(1 for byte in header[:148] + header[156:] if byte >= 0x80)
        if actual - 256 * high != expected:
            hint = " (it starts like gzip: unpack it first)" if header[:2] == b"\x1f\x8b" else ""
            raise CorruptDataError(f"not a tar header at offset {offset}: checksum {actual}, stored {expected}{hint}")


def _number(field: bytes, offset: int) -> int:
    """Octal digits, or base 256 where the first bit is set."""
    if field[0] & 0x80:
        value = int.from_bytes(bytes((field[0] & 0x7F,)) + field[1:], "big")
        if field[0] & 0x40:
            raise CorruptDataError(f"negative number in the tar header at offset {offset}")
        return value
    digits = field.split(b"\0", 1)[0].strip()
    if digits.strip(b"01234567"):
        raise CorruptDataError(f"not a tar header at offset {offset}: {field!r} is not an octal number")
    return int(digits or b"0", 8)


def _decimal(text: bytes, offset: int) -> int:
    if not text.isdigit() or len(text) > 20:
        raise CorruptDataError(f"pax record of the tar header at offset {offset} has no number: {text[:40]!r}")
    return int(text)


def _name(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0":  # GNU headers keep other things where POSIX ones keep the prefix
        prefix = header[345:500].split(b"\0", 1)[0]
        if prefix:
            return prefix + b"/" + name
    return name


def _records(data: bytes, offset: int) -> dict[bytes, bytes]:
    """Pax records: `length key=value` with a line feed, the length counting the whole record."""
    records: dict[bytes, bytes] = {}
    position = 0
    while position < len(data):
        space = data.find(b" ", position, position + 20)
        length = _decimal(data[position:space], offset) if space > 0 else 0
        record = data[space + 1 : position + length]
        key, equals, value = record.partition(b"=")
        if position + length > len(data) or not equals or not value.endswith(b"\n"):
            raise CorruptDataError(f"damaged pax records in the tar header at offset {offset}")
        records[key] = value[:-1]
        position += length
    return records
