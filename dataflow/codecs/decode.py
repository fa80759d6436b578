"""Decode: a batch of encoded images into one array, the plain JPEGs natively and all else through Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataflow import _native
from dataflow.codecs.orientation import Turn
from dataflow.codecs.pillow import BadImageError, check_pixels, decode_with_pillow
from dataflow.dataset.codec import Encoded, Failure

if TYPE_CHECKING:
    from dataflow.codecs.crop import Window
    from dataflow.codecs.image import Image

_PLAIN_JPEG = 1


def decoder_name() -> str:
    """What decodes plain JPEGs, and why if it is not the fast way."""
    native = _native.decode_available()
    return native or "Pillow (slower: install libjpeg-dev and build dataflow again)"


def decode_images(image: Image, encoded: Encoded, keys: Sequence[int], out: NDArray[Any]) -> list[Failure]:
    """Decode images in place; arguments and result as those of `Image.decode_batch`."""
    if not _native.decode_available():
        return _through_pillow(image, encoded, range(len(keys)), keys, out)
    failures: list[Failure] = []
    upright, turned, others = _Natively(), _Natively(), []
    for position, (height, width, kind, orientation) in enumerate(_native.jpeg_headers(*encoded).tolist()):
        if kind != _PLAIN_JPEG:
            others.append(position)
        elif problem := check_pixels(image, height, width):
            failures.append(Failure(position, problem))
        else:
            window, turn = image.cut(height, width, orientation, keys[position])
            (turned if turn.swap or turn.flip else upright).add(position, turn, window)
    failures += upright.decode(image, encoded, out)
    failures += turned.decode_turned(image, encoded, out)
    failures += _through_pillow(image, encoded, others, keys, out)
    return sorted(failures)


def check_plain_jpeg(data: bytes) -> int | None:
    """Decodes a JPEG to see that it is whole, as strictly as the native decoder is and Pillow is not.

    Returns:
        Its EXIF orientation; None for images that only Pillow decodes, which are not looked at.

    Raises:
        BadImageError: It is damaged.
    """
    if not _native.decode_available():
        return None
    encoded = Encoded.of_values([data])
    ((height, width, kind, orientation),) = _native.jpeg_headers(*encoded).tolist()
    if kind != _PLAIN_JPEG:
        return None
    windows, pixel = np.array([[0, 0, height, width]], np.int32), np.empty((1, 1, 1, 3), np.uint8)
    found = _native.decode_jpegs(
        *encoded, np.zeros(1, np.int64), windows, np.zeros(1, np.bool_), pixel, None, None, True, threads=1
    )
    if found:
        raise BadImageError(found[0][1])
    return int(orientation)


class _Natively:
    """Images that the native decoder takes, with their windows of stored pixels."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._turns: list[Turn] = []
        self._windows: list[Window] = []

    def add(self, position: int, turn: Turn, window: Window) -> None:
        self._positions.append(position)
        self._turns.append(turn)
        self._windows.append(window)

    def decode(self, image: Image, encoded: Encoded, out: NDArray[Any]) -> list[Failure]:
        """Straight into the batch: the decoder mirrors by itself."""
        if not self._positions:
            return []
        windows = np.array(self._windows, np.int32)
        mirrored = np.array([turn.mirror for turn in self._turns], np.bool_)
        return _decode(image, encoded, np.array(self._positions, np.int64), windows, mirrored, out)

    def decode_turned(self, image: Image, encoded: Encoded, out: NDArray[Any]) -> list[Failure]:
        """One by one, as stored, then turned into the batch: few images are not upright."""
        rows, columns = (0, 1) if image.channels_last else (1, 2)
        failures = []
        for position, turn, window in zip(self._positions, self._turns, self._windows, strict=True):
            one = Encoded(encoded.values, encoded.offsets, encoded.block[[position]], encoded.row[[position]])
            shape = list(image.shape)
            if turn.swap:
                shape[rows], shape[columns] = shape[columns], shape[rows]
            stored = np.empty((1, *shape), out.dtype)
            failed = _decode(
                image, one, np.zeros(1, np.int64), np.array([window], np.int32), np.zeros(1, np.bool_), stored
            )
            failures += [Failure(position, reason) for _, reason in failed]
            out[position] = turn.apply(stored[0], rows, columns)
        return failures


def _decode(
    image: Image,
    encoded: Encoded,
    positions: NDArray[np.int64],
    windows: NDArray[np.int32],
    mirrored: NDArray[np.bool_],
    out: NDArray[Any],
) -> list[Failure]:
    # Batches are made by many threads at once, so that one thread is enough for each.
    found = _native.decode_jpegs(
        *encoded, positions, windows, mirrored, out, *_mean_and_std(image), image.channels_last, threads=1
    )
    return [Failure(position, reason) for position, reason in found]


def _through_pillow(
    image: Image, encoded: Encoded, positions: Sequence[int], keys: Sequence[int], out: NDArray[Any]
) -> list[Failure]:
    failures = []
    for position in positions:
        (data,) = _native.gather_bytes(
            encoded.values, encoded.offsets, encoded.block[[position]], encoded.row[[position]]
        )
        try:
            pixels = decode_with_pillow(image, data, keys[position])
        except BadImageError as error:
            failures.append(Failure(position, str(error)))
        else:
            write_pixels(image, pixels, out[position])
    return failures


def write_pixels(image: Image, pixels: NDArray[np.uint8], out: NDArray[Any]) -> None:
    """Write [height, width, 3] in the layout and type that are asked for."""
    values: NDArray[Any] = pixels
    if image.dtype != "uint8":
        mean, std = _mean_and_std(image)
        values = pixels.astype(np.float32) / np.float32(255)
        if mean is not None:
            values -= mean
        if std is not None:
            values /= std
    out[:] = values if image.channels_last else values.transpose(2, 0, 1)


def _mean_and_std(image: Image) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
    mean = None if image.mean is None else np.array(image.mean, np.float32)
    std = None if image.std is None else np.array(image.std, np.float32)
    return mean, std
