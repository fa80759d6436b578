"""Compressed files as runs of members (gzip) or frames (zstd), of which each can be decoded without those before it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from dataflow.errors import CorruptDataError, DatasetError

if TYPE_CHECKING:
    from dataflow.storage import Buffer

__all__ = [
    "COMPRESSIONS",
    "MAX_DECODED_BYTES",
    "MAX_MEMBER_BYTES",
    "Member",
    "Piece",
    "compression_of",
    "decode",
    "members",
    "pieces",
]

#: What one member may decode to. A file that has larger ones cannot be read in parts.
MAX_MEMBER_BYTES = 64 << 20
#: What the members of one block may decode to together.
MAX_DECODED_BYTES = 2 * MAX_MEMBER_BYTES
#: File name endings, and the compression that each means.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}

# Small enough that what is left of a piece behind the end of a member costs little to copy.
FEED_BYTES = 32 << 10
OUTPUT_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE_MAGIC = b"\x2a\x4d\x18"  # after a byte 0x50 to 0x5f
ZSTD_HEADER_BYTES = 18
# What the `zstd` command takes without being asked; --long=31 would want 2 GiB for every reader.
MAX_WINDOW_BYTES = 128 << 20

Read = Callable[[int, int], memoryview]


class Piece(NamedTuple):
    """A part of a member.

    Attributes:
        stored: Its bytes as they are in the file.
        data: What they decode to, a few MiB at most.
        last: Whether it ends the member.
    """

    stored: bytes
    data: bytes
    last: bool


class Member(NamedTuple):
    """A whole member: offset and bytes in the file, and what they decode to."""

    start: int
    stored: bytes
    data: bytes


def compression_of(path: str) -> str:
    """The compression that a file's name tells of: "gzip", "zstd", or "" for none."""
    lowered = path.lower()
    return next((name for suffix, name in COMPRESSIONS.items() if lowered.endswith(suffix)), "")


def pieces(compression: str, read: Read, size: int) -> Iterator[Piece]:
    """Decodes a file from front to back in bounded memory.

    Args:
        compression: "gzip" or "zstd".
        read: Returns bytes of the file by offset and length.
        size: Bytes of the file.

    Raises:
        CorruptDataError: The file is damaged, cut off, or followed by something else; names the offset.
        DatasetError: It needs a dictionary, or a window that is too large.
    """
    return _gzip_pieces(read, size) if compression == "gzip" else _zstd_pieces(read, size)


def members(compression: str, read: Read, size: int) -> Iterator[Member]:
    """The members of a file, each decoded as a whole.

    Raises:
        CorruptDataError: As for `pieces`.
        DatasetError: As for `pieces`; or a member decodes to more than MAX_MEMBER_BYTES.
    """
    start = total = 0
    stored: list[bytes] = []
    data: list[bytes] = []
    for piece in pieces(compression, read, size):
        stored.append(piece.stored)
        data.append(piece.data)
        total += len(piece.data)
        if total > MAX_MEMBER_BYTES:
            raise DatasetError(
                f"what is compressed in one piece at offset {start} has more than {MAX_MEMBER_BYTES >> 20} MiB, so "
                "that no part of it can be read alone. Convert the file (`dataflow shard`), or compress it again in "
                "pieces (`bgzip`; or split it and join what `gzip` or `zstd` make of the parts)"
            )
        if piece.last:
            member = Member(start, b"".join(stored), b"".join(data))
            stored, data, total = [], [], 0
            start += len(member.stored)
            yield member


def decode(compression: str, data: Buffer) -> bytes:
    """What a run of whole members decodes to.

    Raises:
        CorruptDataError: They are damaged, or decode to more than MAX_DECODED_BYTES.
    """
    view = memoryview(data)
    decoded: list[bytes] = []
    total = 0
    for piece in pieces(compression, lambda start, length: view[start : start + length], len(view)):
        total += len(piece.data)
        if total > MAX_DECODED_BYTES:
            raise CorruptDataError(f"decodes to more than {MAX_DECODED_BYTES} bytes")
        decoded.append(piece.data)
    return b"".join(decoded)


def _gzip_pieces(read: Read, size: int) -> Iterator[Piece]:
    offset = 0
    while offset < size:
        head = bytes(read(offset, 2))
        if head != GZIP_MAGIC:
            if offset and _only_zeros(read, offset, size):
                return
            raise CorruptDataError(f"no gzip member at offset {offset}, but {head!r}")
        start = offset
        decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        while not decoder.eof:
            fed = bytes(read(offset, min(FEED_BYTES, size - offset)))
            if not fed:
                raise CorruptDataError(f"cut off: the gzip member at offset {start} has no end")
            rest = fed
            try:
                while True:
                    data = decoder.decompress(rest, OUTPUT_BYTES)
                    rest = decoder.unconsumed_tail
                    if decoder.eof or not (rest or len(data) == OUTPUT_BYTES):
                        break
                    yield Piece(b"", data, last=False)
            except zlib.error as error:
                raise CorruptDataError(f"damaged gzip member at offset {start}: {error}") from error
            stored = fed[: len(fed) - len(decoder.unused_data)] if decoder.eof else fed
            offset += len(stored)
            yield Piece(stored, data, decoder.eof)


def _only_zeros(read: Read, offset: int, size: int) -> bool:
    """Whether a file goes on with nothing but padding, as on tapes."""
    while offset < size:
        data = bytes(read(offset, min(OUTPUT_BYTES, size - offset)))
        if data.strip(b"\0"):
            return False
        offset += len(data)
    return True


def _zstd_pieces(read: Read, size: int) -> Iterator[Piece]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    offset = 0
    while offset < size:
        head = bytes(read(offset, ZSTD_HEADER_BYTES))
        if head[1:4] == SKIPPABLE_MAGIC and head[0] & 0xF0 == 0x50:
            yield from _skippable_pieces(read, offset, size, head)
            offset += 8 + int.from_bytes(head[4:8], "little")
            continue
        if head[:4] != ZSTD_MAGIC:
            raise CorruptDataError(f"no zstd frame at offset {offset}, but {head[:4]!r}")
        end = offset
        decoder = decompressor.decompressobj()
        try:
            for stored, last in _zstd_blocks(read, offset, size, head):
                # A block decodes to 128 KiB at most, so that no memory is taken on the word of a damaged header.
                yield Piece(stored, decoder.decompress(stored), last)
                end += len(stored)
        except zstandard.ZstdError as error:
            raise CorruptDataError(f"damaged zstd frame at offset {offset}: {error}") from error
        if not decoder.eof:
            raise CorruptDataError(f"damaged zstd frame at offset {offset}: it does not end where its blocks do")
        offset = end


def _zstd_blocks(read: Read, start: int, size: int, head: bytes) -> Iterator[tuple[bytes, bool]]:
    """The header and the blocks of a frame, found by their sizes alone, and whether each is the last."""
    import zstandard

    try:
        parameters = zstandard.get_frame_parameters(head)
        offset = start + zstandard.frame_header_size(head)
    except (zstandard.ZstdError, ValueError) as error:
        raise CorruptDataError(f"damaged zstd frame at offset {start}: {error}") from error
    if parameters.dict_id:
        raise DatasetError(f"the zstd frame at offset {start} needs a dictionary. Compress the file again without")
    if parameters.window_size > MAX_WINDOW_BYTES:
        raise DatasetError(
            f"the zstd frame at offset {start} needs a window of {parameters.window_size} bytes, more than "
            f"{MAX_WINDOW_BYTES}. Compress the file again without --ultra or --long above 27"
        )
    yield head[: offset - start], False
    last = False
    while not last:
        header = int.from_bytes(bytes(read(offset, 3)), "little")
        last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == 3 or length > 128 << 10:
            raise CorruptDataError(f"damaged zstd frame at offset {start}: bad block header at offset {offset}")
        length = 3 + (1 if kind == 1 else length) + (4 if last and parameters.has_checksum else 0)
        stored = bytes(read(offset, length))
        if len(stored) < length or offset + length > size:
            raise CorruptDataError(f"cut off: the zstd frame at offset {start} has no end")
        yield stored, last
        offset += length


def _skippable_pieces(read: Read, start: int, size: int, head: bytes) -> Iterator[Piece]:
    """A frame of something else, such as the table of the seekable format."""
    end = start + 8 + int.from_bytes(head[4:8], "little")
    if len(head) < 8 or end > size:
        raise CorruptDataError(f"cut off: the skippable zstd frame at offset {start} has no end")
    while start < end:
        length = min(OUTPUT_BYTES, end - start)
        yield Piece(bytes(read(start, length)), b"", start + length == end)
        start += length
