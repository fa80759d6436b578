"""Real photographs, and files made of them."""

from __future__ import annotations

import io
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import sklearn
from PIL import Image


@cache
def photograph(name: str = "china") -> bytes:
    """A JPEG file as it came from a camera; there are "china" and "flower"."""
    return (Path(sklearn.__file__).parent / "datasets" / "images" / f"{name}.jpg").read_bytes()


def encoded(kind: str, size: tuple[int, int] = (160, 107), mode: str = "RGB", **options: Any) -> bytes:
    """The photograph in another format."""
    sink = io.BytesIO()
    picture().resize(size).convert(mode).save(sink, kind, **options)
    return sink.getvalue()


def picture() -> Image.Image:
    return Image.open(io.BytesIO(photograph()))


def animation(kind: str, frames: int = 3) -> bytes:
    sink = io.BytesIO()
    pictures = [picture().resize((80, 53)).rotate(20 * number) for number in range(frames)]
    if kind == "GIF":
        pictures = [each.convert("P") for each in pictures]
    pictures[0].save(sink, kind, save_all=True, append_images=pictures[1:], duration=100)
    return sink.getvalue()


def black_png(side: int) -> bytes:
    """A square PNG of one bit a pixel, whatever its size a small file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes((1 + (side + 7) // 8) * side))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
