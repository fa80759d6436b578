"""Image: how encoded images become arrays of one size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.codecs.crop import Window, center_window, random_resized_window
from dataflow.codecs.orientation import UPRIGHT, Turn, turn_for
from dataflow.dataset.codec import Encoded, Failure
from dataflow.errors import CorruptDataError, OptionError
from dataflow.sampling.random import Draws

_CROPS = ("random_resized", "center", "none")
_LAYOUTS = ("NCHW", "NHWC")
_DTYPES = ("uint8", "float16", "float32")
_MOST_SIDE = 1 << 14
# Twice Pillow's MAX_IMAGE_PIXELS, where it refuses as well.
_MAX_PIXELS = 178_956_970


@dataclass(frozen=True, slots=True)
class Image:
    """How a column of encoded images is decoded: cut, resized to one size, mirrored, as RGB.

    JPEG, PNG, WebP, GIF and all else that Pillow reads, told apart by their content. Of animations the first frame is
    taken, of transparent images the colours without the transparency, of 16-bit grey the upper 8 bits. The window that
    is cut, and whether it is mirrored, depend on the seed, the epoch and the row alone. It is resized with an
    antialiased bilinear filter.

    Attributes:
        size: Pixels of the result: a side of the square, or (height, width).
        crop: "random_resized" cuts a random window as torchvision's RandomResizedCrop does, "center" one in the middle,
            "none" takes the whole picture, whatever its aspect ratio.
        scale: Bounds of a random window's share of the area.
        ratio: Bounds of a random window's width over its height.
        resize: Shorter side that the picture would have before "center" cuts: `size=224, resize=256` is the usual
            evaluation. None takes the largest window that has the shape of `size`.
        flip: Probability that left and right are exchanged.
        layout: "NCHW" gives [3, height, width] a sample, "NHWC" [height, width, 3].
        dtype: "uint8", or "float16" or "float32" for (value / 255 - mean) / std.
        mean: Subtracted from each channel; for floats only. None is 0.
        std: What each channel is divided by then; for floats only. None is 1.
        orientation: Whether the EXIF orientation is applied: windows are cut from the upright picture.
        max_pixels: Images with more are refused; the only parameter that is no part of a loader's state.

    Raises:
        OptionError: A parameter that cannot be; names it.
    """

    size: int | tuple[int, int]
    crop: str = "center"
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    resize: int | None = None
    flip: float = 0.0
    layout: str = "NCHW"
    dtype: str = "uint8"
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    orientation: bool = True
    max_pixels: int = _MAX_PIXELS

    def __post_init__(self) -> None:
        sides = (self.size, self.size) if isinstance(self.size, int) else self.size
        self._set("size", tuple(_numbers("size", sides, 2, int)))
        if not all(1 <= side <= _MOST_SIDE for side in self.size):  # type: ignore[union-attr]
            raise OptionError(f"Image(size={self.size}): sides are 1 to {_MOST_SIDE} pixels")
        for name, choices in {"crop": _CROPS, "layout": _LAYOUTS, "dtype": _DTYPES}.items():
            if getattr(self, name) not in choices:
                raise OptionError(f"Image({name}={getattr(self, name)!r}): choose from {', '.join(map(repr, choices))}")
        for name, most in {"scale": 1.0, "ratio": math.inf}.items():
            low, high = _numbers(name, getattr(self, name), 2, float)
            if not 0 < low <= high <= most or math.isinf(high):
                limits = "0 < low <= high <= 1" if most == 1 else "0 < low <= high"
                raise OptionError(f"Image({name}={getattr(self, name)}): give two numbers (low, high), {limits}")
            self._set(name, (low, high))
        self._check_resize()
        if not isinstance(self.flip, (int, float)) or not 0 <= self.flip <= 1:
            raise OptionError(f"Image(flip={self.flip!r}): give a probability, from 0 to 1")
        self._set("flip", float(self.flip))
        for name in ("mean", "std"):
            if getattr(self, name) is not None:
                self._set(name, tuple(_numbers(name, getattr(self, name), 3, float)))
        if self.dtype == "uint8" and (self.mean or self.std):
            raise OptionError("Image(dtype='uint8') has no use for mean= and std=: choose dtype='float32' or 'float16'")
        if self.std is not None and min(self.std) <= 0:
            raise OptionError(f"Image(std={self.std}): give numbers above 0")
        if type(self.orientation) is not bool:
            raise OptionError(f"Image(orientation={self.orientation!r}): give True or False")
        if type(self.max_pixels) is not int or self.max_pixels < 1:
            raise OptionError(f"Image(max_pixels={self.max_pixels!r}): give a number of pixels")

    @property
    def height(self) -> int:
        """Rows of the result."""
        return self.size[0]  # type: ignore[index]

    @property
    def width(self) -> int:
        """Columns of the result."""
        return self.size[1]  # type: ignore[index]

    @property
    def channels_last(self) -> bool:
        """Whether a pixel's channels lie beside each other."""
        return self.layout == "NHWC"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample's array."""
        return (self.height, self.width, 3) if self.channels_last else (3, self.height, self.width)

    def describe(self) -> tuple[Any, ...]:
        """The kind and all parameters that decide what comes out, JSON-able."""
        names = [field.name for field in fields(self) if field.name != "max_pixels"]
        return ("image", *([name, getattr(self, name)] for name in names))

    def window(self, height: int, width: int, key: int) -> tuple[Window, bool]:
        """The part that is cut from an upright picture, and whether it is mirrored.

        Args:
            height: Rows of the picture.
            width: Columns of the picture.
            key: What the sample's random numbers are keyed by.
        """
        draws = Draws(key)
        mirrored = draws.uniform(0) < self.flip
        if self.crop == "random_resized":
            return random_resized_window(height, width, self.scale, self.ratio, draws, first=1), mirrored
        if self.crop == "center":
            return center_window(height, width, (self.height, self.width), self.resize), mirrored
        return Window(0, 0, height, width), mirrored

    def cut(self, height: int, width: int, orientation: int, key: int) -> tuple[Window, Turn]:
        """The part that is cut from stored pixels, and how it is turned.

        Args:
            height: Rows as stored.
            width: Columns as stored.
            orientation: The EXIF orientation.
            key: What the sample's random numbers are keyed by.
        """
        turn = turn_for(orientation) if self.orientation else UPRIGHT
        height, width = turn.upright_size(height, width)
        window, mirrored = self.window(height, width, key)
        return turn.stored_window(height, width, window), turn.mirrored() if mirrored else turn

    def decode(self, value: bytes, key: int) -> NDArray[Any]:
        """Decode one image.

        Raises:
            CorruptDataError: It cannot be decoded; says why.
        """
        out: NDArray[Any] = np.empty((1, *self.shape), self.dtype)
        failures = self.decode_batch(Encoded.of_values([value]), [key], out)
        if failures:
            raise CorruptDataError(failures[0].reason)
        return out.reshape(self.shape)

    def decode_batch(self, encoded: Encoded, keys: Sequence[int], out: NDArray[Any]) -> list[Failure]:
        """Decode many images in place.

        Args:
            encoded: Where their bytes are.
            keys: For each image what its random numbers are keyed by.
            out: [images, *shape] of `dtype`, written.

        Returns:
            The images that cannot be decoded, and why, by position; their part of `out` is undefined.
        """
        from dataflow.codecs.decode import decode_images

        return decode_images(self, encoded, keys, out)

    def decoder(self) -> str:
        """What decodes: a library and its version, or how to get a faster one."""
        from dataflow.codecs.decode import decoder_name

        return decoder_name()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_resize(self) -> None:
        if self.resize is None:
            return
        if self.crop != "center":
            raise OptionError(f"Image(crop={self.crop!r}) has no use for resize=: it goes with crop='center'")
        if type(self.resize) is not int or self.resize < max(self.size):  # type: ignore[arg-type]
            raise OptionError(
                f"Image(resize={self.resize!r}): give a number of pixels, at least those of size={self.size}"
            )


def _numbers(name: str, values: Any, count: int, kind: type[Any]) -> list[Any]:
    allowed = (int,) if kind is int else (int, float)
    if (
        not isinstance(values, (tuple, list))
        or len(values) != count
        or not all(isinstance(value, allowed) and not isinstance(value, bool) for value in values)
        or not all(math.isfinite(value) for value in values)
    ):
        what = "whole numbers" if kind is int else "numbers"
        raise OptionError(f"Image({name}={values!r}): give {count} {what}")
    return [kind(value) for value in values]
