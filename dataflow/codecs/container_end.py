"""Where a container says that it ends: FFmpeg takes a file that is cut off for a shorter one."""

from __future__ import annotations

__all__ = ["cut_off"]

_SEGMENT = b"\x18\x53\x80\x67"
# Sizes that writers give which do not know yet how much will come.
_UNKNOWN_SIZES = (0, 0xFFFFFFFF)


def cut_off(data: bytes) -> str:
    """What is missing of a file, "" if nothing or if its kind does not say.

    MP4 and its kin, Matroska and WebM, WAV, AVI, Ogg, GIF, and MP3 with a header say where they end.
    """
    head = data[:4]
    if data[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"styp"):
        end = _boxes_end(data)
    elif head == b"\x1a\x45\xdf\xa3":
        end = _matroska_end(data)
    elif head == b"RIFF":
        end = _riff_end(data)
        if _samples_after(data, end):
            return f"says that it ends at byte {end:,}, but {len(data) - end:,} bytes follow: its header is wrong"
    elif head == b"OggS":
        end = _ogg_end(data)
    elif head == b"GIF8":
        return "" if data.rstrip(b"\0").endswith(b";") else "is cut off: the mark of its end is missing"
    else:
        end = _mp3_end(data)
    return f"is cut off: {len(data):,} of its {end:,} bytes are there" if end > len(data) else ""


def _boxes_end(data: bytes) -> int:
    at = 0
    while at + 8 <= len(data):
        size, name = int.from_bytes(data[at : at + 4]), data[at + 4 : at + 8]
        if size == 1 and at + 16 <= len(data):
            size = int.from_bytes(data[at + 8 : at + 16])
        # Zero means to the end of the file; anything else that is no box was appended.
        if size < 8 or not name.isalnum():
            return len(data)
        at += size
    return at


def _matroska_end(data: bytes) -> int:
    at = data.find(_SEGMENT, 0, 4096)
    if at < 0 or at + 12 > len(data):
        return len(data)
    at += len(_SEGMENT)
    width = 9 - data[at].bit_length()
    size = int.from_bytes(data[at : at + width]) & ((1 << 7 * width) - 1)
    if size == (1 << 7 * width) - 1:  # not known
        return len(data)
    return at + width + size


def _riff_end(data: bytes) -> int:
    """The end of the chunk that holds the samples or frames; what comes after it only describes."""
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"data" or data[at + 8 : at + 12] == b"movi":
            return len(data) if size in _UNKNOWN_SIZES else at + 8 + size
        at += 8 + size + size % 2
    return at


def _samples_after(data: bytes, end: int) -> bool:
    """Whether what follows is neither a chunk, nor a tag of another kind, nor padding."""
    rest = data[end + end % 2 :]
    named = rest[:3].isascii() and rest[:3].decode("ascii").isprintable()
    return len(rest) > 8 and not named and any(rest)


def _ogg_end(data: bytes) -> int:
    at = data.rfind(b"OggS")
    sizes = data[at + 27 : at + 27 + data[at + 26]] if at + 26 < len(data) else b""
    return at + 27 + len(sizes) + sum(sizes)


def _mp3_end(data: bytes) -> int:
    at = 0
    if data[:3] == b"ID3" and len(data) > 10:
        at = 10 + sum((data[6 + place] & 0x7F) << 7 * (3 - place) for place in range(4))
    tag = max(data.find(b"Xing", at, at + 64), data.find(b"Info", at, at + 64))
    if tag < 0 or data[at : at + 1] != b"\xff":
        return len(data)
    flags = int.from_bytes(data[tag + 4 : tag + 8])
    size = tag + 8 + (4 if flags & 1 else 0)
    return at + int.from_bytes(data[size : size + 4]) if flags & 2 else len(data)
