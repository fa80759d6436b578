"""Images of every kind through Pillow, which is an extra: any of its formats to 8-bit RGB."""

from __future__ import annotations

import io
import re
import threading
from contextlib import nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataflow.codecs.orientation import turn_for
from dataflow.errors import OptionError

if TYPE_CHECKING:
    import PIL.Image

    from dataflow.codecs.image import Image

# What Pillow may take the bytes for. Not EPS, for which it starts other programs.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "JPEG2000")
_ORIENTATION_TAG = 0x0112
# Images of more pixels than this are decoded one at a time: the largest that are let through take half a gigabyte.
_LARGE_PIXELS = 32 << 20
_large_images = threading.Lock()
# Messages are the same for every run: addresses in memory are taken out.
_ADDRESS = re.compile(r" ?<[^<>]* object at 0x[0-9a-f]+>")


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
    pillow = _pillow()
    try:
        return _decode(pillow, image, data, key)
    except (BadImageError, MemoryError):
        raise
    except pillow.DecompressionBombError as error:
        raise BadImageError(f"is too large ({error}): PIL.Image.MAX_IMAGE_PIXELS is the limit") from error
    except pillow.UnidentifiedImageError as error:
        raise BadImageError(_what_else(data)) from error
    except Exception as error:  # Pillow's decoders raise all sorts of errors on damaged files
        raise BadImageError(
            f"cannot be decoded ({type(error).__name__}: {_ADDRESS.sub('', str(error)).rstrip('.')})"
        ) from error


def check_pixels(image: Image, height: int, width: int) -> str:
    """What is wrong with an image of this size, "" if nothing."""
    if height * width <= image.max_pixels:
        return ""
    return (
        f"has {height * width:,} pixels ({width} x {height}), more than max_pixels={image.max_pixels:,}: "
        "raise max_pixels= of dataflow.Image"
    )


def _pillow() -> ModuleType:
    try:
        import PIL.Image
        import PIL.ImageFile
    except ImportError as error:
        raise OptionError(
            "this image is decoded with Pillow, which is not installed: pip install 'dataflow-loader[images]'"
        ) from error
    if PIL.ImageFile.LOAD_TRUNCATED_IMAGES:
        raise OptionError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so that truncated images would pass for whole ones, with grey "
            "where they end: leave it False"
        )
    return PIL.Image


def _decode(pillow: ModuleType, image: Image, data: bytes, key: int) -> NDArray[np.uint8]:
    if not data:
        raise BadImageError("is empty")
    with pillow.open(io.BytesIO(data), formats=_FORMATS) as picture:
        if problem := check_pixels(image, picture.height, picture.width):
            raise BadImageError(problem)
        with _large_images if picture.width * picture.height > _LARGE_PIXELS else nullcontext():
            orientation = _orientation(picture)
            picture.load()
            if picture.format == "TIFF":
                # Pillow has turned it already; all others are as stored.
                picture = _turned_back(pillow, picture, orientation)
            (top, left, rows, columns), turn = image.cut(picture.height, picture.width, orientation, key)
            size = (image.height, image.width) if turn.swap else (image.width, image.height)
            box = (left, top, left + columns, top + rows)
            resized = _rgb(pillow, picture).resize(size, pillow.Resampling.BILINEAR, box)
    return turn.apply(np.asarray(resized), 0, 1)


def _orientation(picture: PIL.Image.Image) -> int:
    try:
        return int(picture.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # damaged metadata, of a picture that may be whole
        return 1


def _turned_back(pillow: ModuleType, picture: Any, orientation: int) -> Any:
    turn = turn_for(orientation)
    if turn.mirror:
        picture = picture.transpose(pillow.Transpose.FLIP_LEFT_RIGHT)
    if turn.flip:
        picture = picture.transpose(pillow.Transpose.FLIP_TOP_BOTTOM)
    return picture.transpose(pillow.Transpose.TRANSPOSE) if turn.swap else picture


def _rgb(pillow: ModuleType, picture: Any) -> Any:
    mode = picture.mode
    if mode == "RGB":
        return picture
    if mode.startswith("I;16"):
        # Pillow's own conversion cuts off at 255 instead.
        return pillow.fromarray((np.asarray(picture) >> 8).astype(np.uint8)).convert("RGB")
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
