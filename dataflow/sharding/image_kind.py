"""Which kind of image some bytes are, by what they begin with; names of files lie."""

from __future__ import annotations

__all__ = ["HEAD_BYTES", "IMAGE_SUFFIXES", "image_kind", "what_else"]

#: How many bytes are enough to tell.
HEAD_BYTES = 32

#: Endings of file names that promise an image, in lower case.
IMAGE_SUFFIXES = frozenset(
    (".avif", ".bmp", ".gif", ".heic", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
)

_SIGNATURES = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00", "tiff"),
    (b"MM\x00+", "tiff"),
    (b"\x00\x00\x00\x0cjP  \r\n\x87\n", "jp2"),
    (b"\xff\x4f\xff\x51", "jp2"),
)
_BRANDS = {b"avif": "avif", b"avis": "avif", b"heic": "heic", b"heix": "heic", b"mif1": "heic"}


def image_kind(head: bytes) -> str:
    """The kind of an image, such as "jpeg", from its first bytes (`HEAD_BYTES` or more); "" if it is none."""
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head[:2] == b"BM" and head[6:10] == bytes(4):  # two letters alone would be any text
        return "bmp"
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "")
    return ""


def what_else(head: bytes) -> tuple[str, str]:
    """What bytes that are no image seem to be, and how that is seen: ("is empty", ""), ("is HTML or XML", ""), ..."""
    if not head:
        return "is empty", ""
    if head.lstrip().startswith(b"<"):
        return "is HTML or XML", ""
    return "is no image", f"it begins with {head[:8]!r}"
