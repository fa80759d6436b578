"""Encoded images as Pillow sees them: whether one is whole, and how large it is. Pillow is an extra."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, NamedTuple

from dataflow.codecs.pillow_guard import decoding_problem
from dataflow.sharding.image_kind import HEAD_BYTES, IMAGE_SUFFIXES, image_kind, what_else

if TYPE_CHECKING:
    from dataflow.storage import Buffer

__all__ = ["ImageSize", "image_problem", "image_size", "names_images"]


class ImageSize(NamedTuple):
    """What the header of an image says.

    Attributes:
        width: Pixels in a row.
        height: Rows.
        mode: Pillow's name of the pixels' kind, such as "RGB", "L", "I;16" or "CMYK".
    """

    width: int
    height: int
    mode: str


def names_images(column: str) -> bool:
    """Whether a column promises images by its name: `image`, or a file's ending such as `jpg` or `left.png`."""
    ending = column.rpartition(".")[2].lower()
    return ending == "image" or f".{ending}" in IMAGE_SUFFIXES


def image_problem(data: Buffer, decode: bool = True) -> str:
    """What is wrong with an encoded image, "" if nothing.

    Args:
        data: The bytes of the file.
        decode: Decode it whole, with all frames of an animation; else only look at how it begins.
    """
    head = bytes(data[:HEAD_BYTES])
    if not image_kind(head):
        what, note = what_else(head)
        return f"{what} ({note})" if note else what
    what, note = decoding_problem(data) if decode else ("", "")
    return f"{what} ({note})" if note else what


def image_size(data: Buffer) -> ImageSize | None:
    """Size and mode from the header alone; None if Pillow finds none."""
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(data)) as image:
            return ImageSize(image.width, image.height, image.mode)
    except Exception:  # Pillow's parsers raise all sorts of errors on damaged files
        return None
