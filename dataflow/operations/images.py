"""Encoded images as Pillow sees them: whether one is whole, and how large it is. Pillow is an extra."""

from __future__ import annotations

import io
import re
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from dataflow.errors import OptionError
from dataflow.sharding.image_kind import HEAD_BYTES, IMAGE_SUFFIXES, image_kind, what_else

if TYPE_CHECKING:
    from PIL.Image import Image

    from dataflow.storage import Buffer

__all__ = ["ImageSize", "check_pillow", "image_problem", "image_size", "names_images"]

# Images of more pixels than this are decoded one at a time: the largest that Pillow takes has half a gigabyte.
_LARGE_PIXELS = 32 << 20
_large_images = threading.Lock()
# Reports are the same for every run: addresses in memory are taken out.
_ADDRESS = re.compile(r" ?<[^<>]* object at 0x[0-9a-f]+>")


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


def check_pillow() -> None:
    """Makes sure that images can be decoded, and that damage is seen.

    Raises:
        OptionError: Pillow is missing, or set to pass over the end that a truncated file lacks.
    """
    try:
        import PIL.ImageFile
    except ImportError as error:
        raise OptionError(
            "images are decoded with Pillow, which is not installed: pip install 'dataflow-loader[images]'"
        ) from error
    if PIL.ImageFile.LOAD_TRUNCATED_IMAGES:
        raise OptionError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so that truncated images would pass for whole ones: leave it "
            "False in the process that checks images"
        )


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
    return _decoding_problem(data) if decode else ""


def image_size(data: Buffer) -> ImageSize | None:
    """Size and mode from the header alone; None if Pillow finds none."""
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(data)) as image:
            return ImageSize(image.width, image.height, image.mode)
    except Exception:  # Pillow's parsers raise all sorts of errors on damaged files
        return None


def _decoding_problem(data: Buffer) -> str:
    import PIL.Image

    try:
        with (
            PIL.Image.open(io.BytesIO(data)) as image,
            _large_images if image.width * image.height > _LARGE_PIXELS else nullcontext(),
        ):
            _decode(image)
    except PIL.Image.DecompressionBombError as error:
        return f"is too large to decode ({error}). PIL.Image.MAX_IMAGE_PIXELS is the limit"
    except Exception as error:  # Pillow's decoders raise all sorts of errors on damaged files
        return f"cannot be decoded ({type(error).__name__}: {_ADDRESS.sub('', str(error))})"
    return ""


def _decode(image: Image) -> None:
    image.load()
    # The further pictures of a JPEG are thumbnails and the like, often cut off, and never delivered.
    if image.format != "MPO":
        for frame in range(1, getattr(image, "n_frames", 1)):
            image.seek(frame)
            image.load()
