"""What every use of Pillow needs, which is an extra: that it is there, that it sees damage, and stays within memory."""

from __future__ import annotations

import io
import re
import threading
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dataflow.errors import OptionError

if TYPE_CHECKING:
    from dataflow.storage import Buffer

__all__ = ["decoding_problem", "load_pillow", "room_for", "words_of"]

# Images of more pixels than this are decoded one at a time: the largest that are let through take half a gigabyte.
_LARGE_PIXELS = 32 << 20
_large_images = threading.Lock()
# Messages are the same for every run: addresses in memory are taken out.
_ADDRESS = re.compile(r" ?<[^<>]* object at 0x[0-9a-f]+>")


def load_pillow() -> ModuleType:
    """The module PIL.Image.

    Raises:
        OptionError: Pillow is missing, or set to pass over the end that a truncated image lacks.
    """
    try:
        import PIL.Image
        import PIL.ImageFile
    except ImportError as error:
        raise OptionError(
            "images are decoded with Pillow, which is not installed: pip install 'dataflow-loader[images]'"
        ) from error
    if PIL.ImageFile.LOAD_TRUNCATED_IMAGES:
        raise OptionError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so that truncated images would pass for whole ones, with grey "
            "where they end: leave it False"
        )
    return PIL.Image


def room_for(picture: Any) -> AbstractContextManager[Any]:
    """To be held while a picture is decoded."""
    return _large_images if picture.width * picture.height > _LARGE_PIXELS else nullcontext()


def words_of(error: Exception) -> str:
    """An error of one of Pillow's decoders, which raise all sorts of them on damaged files."""
    return f"{type(error).__name__}: {_ADDRESS.sub('', str(error))}"


def decoding_problem(data: Buffer) -> tuple[str, str]:
    """What is wrong with an image and how that was seen, both "" if it can be decoded whole, with all of its frames."""
    pillow = load_pillow()
    try:
        with pillow.open(io.BytesIO(data)) as picture, room_for(picture):
            picture.load()
            # The further pictures of a JPEG are thumbnails and the like, often cut off, and never delivered.
            if picture.format != "MPO":
                for frame in range(1, getattr(picture, "n_frames", 1)):
                    picture.seek(frame)
                    picture.load()
    except pillow.DecompressionBombError as error:
        return "is too large to decode", f"{error}: PIL.Image.MAX_IMAGE_PIXELS is the limit"
    except Exception as error:
        return "cannot be decoded", words_of(error)
    return "", ""
