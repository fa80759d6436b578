"""Video: how encoded clips become arrays of so many frames of one size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataflow import _native
from dataflow.codecs.crop import Window
from dataflow.codecs.decode import write_pixels
from dataflow.codecs.frame_choice import at_indices, at_random, at_start, at_times, uniform
from dataflow.codecs.frame_pixels import FrameScaler, orientation_of
from dataflow.codecs.frames import open_video
from dataflow.codecs.image import Image
from dataflow.codecs.media_file import MAX_PIXELS, BadMediaError, decoder_name, reading
from dataflow.codecs.orientation import Turn, turn_for
from dataflow.dataset.codec import Companion, Encoded, Failure
from dataflow.errors import CorruptDataError, OptionError
from dataflow.sampling.random import Draws

__all__ = ["Frames", "Video", "read_frames"]

_CHOICES = ("uniform", "random", "start")
_LAYOUTS = {"TCHW": "NCHW", "THWC": "NHWC"}
_MOST_FRAMES = 1 << 16
# The numbers before it are those of the window.
_START_DRAW = 1 << 10
_MAX_BYTES = 4 << 30


@dataclass(frozen=True)
class Video:
    """How a column of encoded clips is decoded: some frames of each, cut by one window, resized to one size, as RGB.

    MP4, MOV, Matroska, WebM, AVI, MPEG-TS, GIF and more, with what FFmpeg decodes: H.264, HEVC, AV1, VP9 and many
    others. Which frames are taken, which window is cut and whether it is mirrored depend on the seed, the epoch and the
    row alone, and are the same for all frames of a clip. Frames are numbered as they are shown, whatever the order in
    which they are stored; display matrices are applied.

    Beside the column comes `<column>_seconds`, float64 [frames]: when each frame begins to be shown.

    Attributes:
        frames: Frames of the result.
        size: Pixels of the result: a side of the square, or (height, width).
        at: "uniform" takes the frames in the middle of `frames` equal parts of the clip, "random" so many in a row from
            any on from which they fit, "start" those from the first on. Where a clip has too few, "uniform" takes some
            more than once, the others the last one again: its time tells.
        every: Of frames in a row, take each so many-th; with "random" and "start".
        crop: As `Image` has it, as have all parameters up to `flip`.
        scale: Bounds of a random window's share of the area.
        ratio: Bounds of a random window's width over its height.
        resize: Shorter side that frames would have before "center" cuts.
        flip: Probability that left and right are exchanged.
        layout: "TCHW" gives [frames, 3, height, width] a sample, "THWC" [frames, height, width, 3].
        dtype: "uint8", or "float16" or "float32" for (value / 255 - mean) / std.
        mean: Subtracted from each channel; for floats only. None is 0.
        std: What each channel is divided by then; for floats only. None is 1.
        max_pixels: Clips with more pixels a frame are refused; the only parameter that is no part of a loader's state.

    Raises:
        OptionError: A parameter that cannot be; names it.
    """

    frames: int
    size: int | tuple[int, int]
    at: str = "uniform"
    every: int = 1
    crop: str = "center"
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    resize: int | None = None
    flip: float = 0.0
    layout: str = "TCHW"
    dtype: str = "uint8"
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        for name in ("frames", "every"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= _MOST_FRAMES:
                raise OptionError(f"Video({name}={value!r}): give a number from 1 to {_MOST_FRAMES}")
        for name, choices in {"at": _CHOICES, "layout": tuple(_LAYOUTS)}.items():
            if getattr(self, name) not in choices:
                raise OptionError(f"Video({name}={getattr(self, name)!r}): choose from {', '.join(map(repr, choices))}")
        if self.at == "uniform" and self.every != 1:
            raise OptionError("Video(at='uniform') has no use for every=: it goes with at='random' and at='start'")
        for field in fields(Image):
            if field.name in self.__dict__ and field.name != "layout":
                object.__setattr__(self, field.name, getattr(self._image, field.name))

    @cached_property
    def _image(self) -> Image:
        """How each frame becomes an array: clips are cut and resized as images are."""
        names = {field.name for field in fields(Image)} & {field.name for field in fields(self)} - {"layout"}
        try:
            return Image(**{name: getattr(self, name) for name in names}, layout=_LAYOUTS[self.layout])
        except OptionError as error:
            raise OptionError(str(error).replace("Image(", "Video(", 1)) from None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample's array."""
        return (self.frames, *self._image.shape)

    @property
    def companions(self) -> Mapping[str, Companion]:
        """What comes beside it: the time of each frame."""
        return MappingProxyType({"seconds": Companion((self.frames,), "float64")})

    def describe(self) -> tuple[Any, ...]:
        """The kind and all parameters that decide what comes out, JSON-able."""
        names = [field.name for field in fields(self) if field.name != "max_pixels"]
        return ("video", *([name, getattr(self, name)] for name in names))

    def decode(self, value: bytes, key: int) -> NDArray[Any]:
        """Decode one clip.

        Raises:
            CorruptDataError: It cannot be decoded; says why.
        """
        out: NDArray[Any] = np.empty(self.shape, self.dtype)
        self._decode(value, key, out, np.empty(self.frames))
        return out

    def decode_batch(
        self, encoded: Encoded, keys: Sequence[int], out: NDArray[Any], seconds: NDArray[np.float64]
    ) -> list[Failure]:
        """Decode many clips in place.

        Args:
            encoded: Where their bytes are.
            keys: For each clip what its random numbers are keyed by.
            out: [clips, *shape] of `dtype`, written.
            seconds: [clips, frames], written.

        Returns:
            The clips that cannot be decoded, and why, by position; their part of what is written is undefined.
        """
        failures = []
        for position, key in enumerate(keys):
            (data,) = _native.gather_bytes(
                encoded.values, encoded.offsets, encoded.block[[position]], encoded.row[[position]]
            )
            try:
                self._decode(data, key, out[position], seconds[position])
            except CorruptDataError as error:
                failures.append(Failure(position, str(error)))
        return failures

    def decoder(self) -> str:
        """What decodes: a library and its version."""
        return decoder_name()

    def _decode(self, data: bytes, key: int, out: NDArray[Any], seconds: NDArray[np.float64]) -> None:
        with reading(), open_video(data, self.max_pixels) as frames:
            chosen = self._choose(len(frames.seconds), key)
            seconds[:] = frames.seconds[chosen]
            scale, cuts = FrameScaler(), {}
            for index, frame in frames.pick(chosen.tolist()):
                look = (frame.height, frame.width, orientation_of(frame))
                if look not in cuts:
                    cuts[look] = self._image.cut(*look, key)
                window, turn = cuts[look]
                pixels = _upright(scale, frame, window, turn, self._image.height, self._image.width)
                # The rules choose in ascending order.
                first, end = np.searchsorted(chosen, (index, index + 1))
                write_pixels(self._image, pixels, out[first])
                out[first + 1 : end] = out[first]

    def _choose(self, count: int, key: int) -> NDArray[np.int64]:
        if self.at == "uniform":
            return uniform(count, self.frames)
        if self.at == "start":
            return at_start(count, self.frames, self.every)
        return at_random(count, self.frames, self.every, Draws(key), _START_DRAW)


class Frames(NamedTuple):
    """Frames of a video.

    Attributes:
        pixels: uint8 [frames, height, width, 3], upright, as large as they are.
        seconds: float64 [frames], when each begins to be shown, as the file has it.
        indices: int64 [frames], their numbers in the order in which the video shows them.
    """

    pixels: NDArray[np.uint8]
    seconds: NDArray[np.float64]
    indices: NDArray[np.int64]


def read_frames(
    data: bytes,
    *,
    indices: Sequence[int] | None = None,
    timestamps: Sequence[float] | None = None,
    tolerance: float | None = None,
    max_pixels: int = MAX_PIXELS,
    max_bytes: int = _MAX_BYTES,
) -> Frames:
    """Reads frames of a video by their numbers or their times; all of them where neither is given.

    Args:
        data: The file.
        indices: Numbers of frames in the order in which they are shown; -1 is the last. In any order, also repeated.
        timestamps: Times in seconds, as the file has them.
        tolerance: With `timestamps`. None takes the frame that is shown at a time, from its own time up to that of the
            next. A number takes the one whose own time is nearest, which must be no farther away.
        max_pixels: Videos with more pixels a frame are refused.
        max_bytes: What the pixels may take.

    Raises:
        CorruptDataError: The video cannot be decoded, or has no such frame; says what it has.
        OptionError: The arguments contradict each other, or PyAV is missing.
    """
    if (indices is not None and timestamps is not None) or (timestamps is None and tolerance is not None):
        raise OptionError("read_frames takes indices=, or timestamps= with or without tolerance=")
    with reading(), open_video(data, max_pixels) as frames:
        count, problem = len(frames.seconds), ""
        if timestamps is not None:
            chosen, problem = at_times(frames.seconds, frames.end, timestamps, tolerance)
        else:
            chosen, problem = at_indices(count, range(count) if indices is None else indices)
        if problem:
            raise BadMediaError(problem)
        return Frames(_full_size(frames, chosen, max_bytes), frames.seconds[chosen], chosen)


def _full_size(frames: Any, chosen: NDArray[np.int64], max_bytes: int) -> NDArray[np.uint8]:
    out: NDArray[np.uint8] = np.zeros((0, 0, 0, 3), np.uint8)
    scale = FrameScaler()
    for index, frame in frames.pick(chosen.tolist()):
        turn = turn_for(orientation_of(frame))
        height, width = turn.upright_size(frame.height, frame.width)
        if not out.size:
            if len(chosen) * height * width * 3 > max_bytes:
                raise BadMediaError(
                    f"has {len(chosen):,} frames of {width} x {height}, which take more than max_bytes={max_bytes:,}"
                )
            out = np.empty((len(chosen), height, width, 3), np.uint8)
        if out.shape[1:3] != (height, width):
            raise BadMediaError(f"changes its size at frame {index}, to {width} x {height}: read frames apart")
        out[chosen == index] = _upright(scale, frame, Window(0, 0, frame.height, frame.width), turn, height, width)
    return out


def _upright(scale: FrameScaler, frame: Any, window: Window, turn: Turn, height: int, width: int) -> NDArray[np.uint8]:
    """The pixels of a window of a frame as stored, [height, width, 3] after the turn."""
    stored = (width, height) if turn.swap else (height, width)
    return turn.apply(scale(frame, window, *stored), 0, 1)
