"""Images of every kind through Pillow, which is an extra: any of its formats to 8-bit RGB."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataflow.codecs.orientation import turn_for
from dataflow.codecs.pillow_guard import load_pillow, room_for, words_of

if TYPE_CHECKING:
    import PIL.Image

    from dataflow.codecs.image import Image

# What Pillow may take the bytes for. Not EPS, for which it starts other programs.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "JPEG2000")
_ORIENTATION_TAG = 0x0112


class BadImageError(Exception):
    """An image that cannot be decoded, and why."""


def decode_with_pillow(image: Image, data: bytes, key: int) -> NDArray[np.uint8]:
    """Decode, cut, resize, turn and mirror one image.

    Args:
        image: How.
        data: The encoded image.
        key: What the sample's random numbers are keyed by.

    Returns:
        [height, width, 3].

    Raises:
        BadImageError: It is no image, damaged, or too large.
        OptionError: Pillow is missing, or set to pass over the end that a truncated image lacks.
    """
    with opened(data) as picture:
        if problem := check_pixels(image, picture.height, picture.width):
            raise BadImageError(problem)
        with room_for(picture):
            orientation = orientation_of(picture)
            picture.load()
            if picture.format == "TIFF":
                # Pillow has turned it already; all others are as stored.
                picture = _turned_back(picture, orientation)
            (top, left, rows, columns), turn = image.cut(picture.height, picture.width, orientation, key)
            size = (image.height, image.width) if turn.swap else (image.width, image.height)
            box = (left, top, left + columns, top + rows)
            resized = to_rgb(picture).resize(size, load_pillow().Resampling.BILINEAR, box)
    return turn.apply(np.asarray(resized), 0, 1)


@contextmanager
def opened(data: bytes) -> Iterator[Any]:
    """An image, to be decoded within: whatever is found to be wrong with it is a `BadImageError`.

    Raises:
        BadImageError: It is no image, damaged, or too large.
        OptionError: Pillow is missing, or set to pass over the end that a truncated image lacks.
    """
    pillow = load_pillow()
    if not data:
        raise BadImageError("is empty")
    try:
        with pillow.open(io.BytesIO(data), formats=_FORMATS) as picture:
            yield picture
    except (BadImageError, MemoryError):
        raise
    except pillow.DecompressionBombError as error:
        raise BadImageError(f"is too large ({error}): PIL.Image.MAX_IMAGE_PIXELS is the limit") from error
    except pillow.UnidentifiedImageError as error:
        raise BadImageError(_what_else(data)) from error
    except Exception as error:  # Pillow's decoders raise all sorts of errors on damaged files
        raise BadImageError(f"cannot be decoded ({words_of(error).rstrip('.')})") from error


def check_pixels(image: Image, height: int, width: int) -> str:
    """What is wrong with an image of this size, "" if nothing."""
    if height * width <= image.max_pixels:
        return ""
    return (
        f"has {height * width:,} pixels ({width} x {height}), more than max_pixels={image.max_pixels:,}: "
        "raise max_pixels= of dataflow.Image"
    )


def orientation_of(picture: PIL.Image.Image) -> int:
    """The EXIF orientation of an image."""
    try:
        return int(picture.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # damaged metadata, of a picture that may be whole
        return 1


def _turned_back(picture: Any, orientation: int) -> Any:
    pillow = load_pillow()
    turn = turn_for(orientation)
    if turn.mirror:
        picture = picture.transpose(pillow.Transpose.FLIP_LEFT_RIGHT)
    if turn.flip:
        picture = picture.transpose(pillow.Transpose.FLIP_TOP_BOTTOM)
    return picture.transpose(pillow.Transpose.TRANSPOSE) if turn.swap else picture


def to_rgb(picture: Any) -> Any:
    """A decoded image of any kind as RGB of 8 bits.

    Raises:
        BadImageError: Its pixels have no range.
    """
    mode = picture.mode
    if mode == "RGB":
        return picture
    if mode.startswith("I;16"):
        # Pillow's own conversion cuts off at 255 instead.
        return load_pillow().fromarray((np.asarray(picture) >> 8).astype(np.uint8)).convert("RGB")
    if mode in ("I", "F"):
        raise BadImageError(f"has 32-bit pixels (Pillow's mode {mode!r}), which have no range: decode it in a map()")
    if mode in ("La", "RGBa"):
        picture = picture.convert("LA" if mode == "La" else "RGBA")
    # A transparent colour of a palette counts as any other; Pillow warns of it.
    picture.info.pop("transparency", None)
    return picture.convert("RGB")


def _what_else(data: bytes) -> str:
    if data.lstrip().startswith(b"<"):
        return "is no image but HTML or XML"
    return f"is no image that Pillow knows (it begins with {data[:8]!r})"
