"""A hundred JPEG files that are damaged in every way, and what an image decoder alone makes of them."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator
from typing import NamedTuple

import PIL.Image

from dataflow import _native
from tests.codecs.pictures import saved, smooth
from tests.native.jpegs import decode, headers

MOST_PIXELS = 178_956_970
KINDS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "JPEG2000")


class Damaged(NamedTuple):
    """A file (None for null), what is wrong with it, and whether it has to be refused (None: a decoder has to say)."""

    what: str
    data: bytes | None
    refused: bool | None


def hundred() -> list[Damaged]:
    """All kinds of damage, in turn, so that every tenth is of another kind."""
    makers = (_cuts, _flips, _gaps, _markers, _claims, _no_jpegs, _unsupported, _cmyk, _exif)
    kinds = [list(make()) for make in makers]
    found = [kind[turn] for turn in range(max(map(len, kinds))) for kind in kinds if turn < len(kind)]
    return found[:100]


def decodes(data: bytes | None) -> bool:
    """Whether a value is an image that is decoded, by the contract of `dataflow.Image`, in full and alone.

    Grey and three-colour Huffman-coded JPEGs of 8 bits are decoded by libjpeg-turbo, where any warning is damage; all
    else by Pillow.
    """
    if not data:
        return False
    ((height, width, plain, _),) = headers([data])
    if plain and _native.decode_available():
        if height * width > MOST_PIXELS:
            return False
        _, failed = decode([data], [(0, 0, height, width)], (height, width))
        return not failed
    return pillow_decodes(data)


def pillow_decodes(data: bytes) -> bool:
    try:
        with PIL.Image.open(io.BytesIO(data), formats=KINDS) as image:
            image.load()
    except Exception:
        return False
    return True


def _sources() -> list[bytes]:
    image = smooth(56, 40)
    return [
        saved(image, "JPEG", quality=90, subsampling=0),
        saved(image, "JPEG", quality=80, subsampling=2),
        saved(image, "JPEG", progressive=True),
        saved(image.convert("L"), "JPEG"),
        saved(image, "JPEG", restart_marker_blocks=2),
    ]


def _source(number: int) -> bytes:
    sources = _sources()
    return sources[number % len(sources)]


def _scan(data: bytes) -> int:
    """Where the first scan's data begin."""
    at = data.index(b"\xff\xda")
    return at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def _segment(data: bytes, code: int) -> slice:
    at = data.index(bytes((0xFF, code)))
    return slice(at, at + 2 + int.from_bytes(data[at + 2 : at + 4], "big"))


def _cuts() -> Iterator[Damaged]:
    for number in range(18):
        data = _source(number)
        keep = (len(data) - 3) * (number + 1) // 18
        yield Damaged(f"cut off after {keep} bytes", data[:keep], True)
    for number in range(3):
        yield Damaged("without its last marker", _source(number)[:-2], True)


def _flips() -> Iterator[Damaged]:
    draw = random.Random(1)
    for number in range(24):
        data = bytearray(_source(number // 3))
        scan, tables = _scan(bytes(data)), _segment(bytes(data), 0xC4)
        places = {"header": (2, scan), "scan": (scan, len(data) - 2), "tables": (tables.start + 4, tables.stop)}
        name, (first, last) = list(places.items())[number % 3]
        for _ in range(3):
            data[draw.randrange(first, last)] ^= 1 << draw.randrange(8)
        yield Damaged(f"flipped bits in the {name}", bytes(data), None)


def _gaps() -> Iterator[Damaged]:
    for number in range(6):
        data = _source(number)
        middle = (_scan(data) + len(data)) // 2
        length = 20 * (number + 1)
        yield Damaged(f"{length} zero bytes in the scan", data[:middle] + bytes(length) + data[middle + length :], None)
        yield Damaged(f"{length} bytes of the scan are missing", data[:middle] + data[middle + length :], None)
    yield Damaged("all zero bytes", bytes(500), True)
    yield Damaged("zero bytes behind the first marker", _source(0)[:3] + bytes(500), True)


def _markers() -> Iterator[Damaged]:
    data = _source(0)
    for name, code in (("Huffman table", 0xC4), ("quantization table", 0xDB), ("frame", 0xC0), ("scan header", 0xDA)):
        part = _segment(data, code)
        # Some decoders have Huffman tables of their own for files without.
        refused = None if code == 0xC4 else True
        yield Damaged(f"without its first {name}", data[: part.start] + data[part.stop :], refused)
        other = data[: part.start + 1] + b"\x02" + data[part.start + 2 :]
        yield Damaged(f"{name} called something else", other, refused)
    middle = (_scan(data) + len(data)) // 2
    for marker in (b"\xff\xd9", b"\xff\xd5", b"\xff\xc4"):
        yield Damaged(f"the marker {marker.hex()} within the scan", data[:middle] + marker + data[middle:], True)
    frame = _segment(data, 0xC0)
    yield Damaged("two frames", data[: frame.stop] + data[frame] + data[frame.stop :], True)


def _claims() -> Iterator[Damaged]:
    sizes = ((65_500, 65_500), (30_000, 30_000), (13_000, 13_000), (2_000, 3_000), (80, 56), (0, 56), (40, 0))
    for number, (height, width) in enumerate(sizes):
        data = bytearray(_source(number % 2))
        frame = _segment(bytes(data), 0xC0).start
        data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
        # Where the scan ends earlier than the picture, that is damage; no height is told by a marker of its own.
        yield Damaged(f"claims to have {height} x {width} pixels", bytes(data), True)


def _no_jpegs() -> Iterator[Damaged]:
    yield Damaged("null", None, True)
    yield Damaged("empty", b"", True)
    yield Damaged("HTML", b"<!DOCTYPE html><p>404", True)
    yield Damaged("text", b"not an image at all", True)
    yield Damaged("a PDF file", b"%PDF-1.7\n" + bytes(100), True)
    yield Damaged("only the first marker", b"\xff\xd8", True)
    yield Damaged("only the first markers", b"\xff\xd8\xff\xe0", True)
    yield Damaged("first and last marker", b"\xff\xd8\xff\xd9", True)
    yield Damaged("a PNG cut off", saved(smooth())[:-500], True)
    yield Damaged("a whole PNG", saved(smooth(20, 20)), False)


def _unsupported() -> Iterator[Damaged]:
    for code, what in (
        (0xC9, "arithmetic coding"),
        (0xC3, "lossless"),
        (0xC5, "differential"),
        (0xCA, "arithmetic coding, progressive"),
        (0xC7, "lossless, differential"),
    ):
        data = bytearray(_source(0))
        data[_segment(bytes(data), 0xC0).start + 1] = code
        # Read as arithmetic code, Huffman code is a picture of noise, which is no damage to be seen.
        yield Damaged(what, bytes(data), None if "arithmetic" in what else True)
    for bits in (12, 16, 0):
        data = bytearray(_source(1))
        data[_segment(bytes(data), 0xC0).start + 4] = bits
        yield Damaged(f"{bits} bits", bytes(data), True)


def _cmyk() -> Iterator[Damaged]:
    data = saved(smooth(56, 40).convert("CMYK"), "JPEG", quality=90)
    yield Damaged("CMYK cut off", data[: len(data) // 2], True)
    yield Damaged("CMYK, only its header", data[: _scan(data)], True)
    table = _segment(data, 0xDB)
    yield Damaged("CMYK without a table", data[: table.start] + data[table.stop :], True)
    yield Damaged("CMYK", data, False)


def _exif() -> Iterator[Damaged]:
    data = _source(1)
    for what, tags, refused in (
        ("garbage", b"\xfe" * 60, False),
        ("an offset beyond its end", b"II*\x00\xff\xff\xff\x7f", False),
        ("more tags than it has room for", b"MM\x00*\x00\x00\x00\x08\xff\xff" + b"\x01\x12\x00\x03", False),
        ("no such orientation", struct.pack("<2sHIHHHIHH", b"II", 42, 8, 1, 0x0112, 3, 1, 77, 0), False),
        ("nothing", b"", False),
    ):
        payload = b"Exif\0\0" + tags
        segment = b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload
        yield Damaged(f"EXIF with {what}", data[:2] + segment + data[2:], refused)
    beyond = b"\xff\xe1" + struct.pack(">H", 60_000) + b"Exif\0\0"
    yield Damaged("EXIF that is longer than the file", data[:2] + beyond + data[2:], True)
    yield Damaged("bytes behind the end", data + bytes(300), False)
