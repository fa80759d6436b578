"""Images of any kind to JPEGs of a bounded size, which are smaller to read and faster to decode."""

from __future__ import annotations

import io
from typing import Any

from dataflow.codecs.decode import check_plain_jpeg
from dataflow.codecs.orientation import UPRIGHT, turn_for
from dataflow.codecs.pillow import BadImageError, opened, orientation_of, to_rgb
from dataflow.codecs.pillow_guard import load_pillow, room_for

__all__ = ["MOST_SIDE", "to_jpeg"]

#: What libjpeg allows.
MOST_SIDE = 65_500
# What fits into a JPEG's APP2 segments.
_MOST_PROFILE_BYTES = 255 * 65_519
_GREY_MODES = ("1", "L", "LA", "La")
_PROFILE_SPACES = {"RGB": b"RGB ", "L": b"GRAY"}


def to_jpeg(data: bytes, quality: int, subsampling: str, max_side: int | None) -> bytes:
    """An image as an upright JPEG, grey or RGB, of what `dataflow.Image` would decode.

    A colour profile stays where it is one of the colours that are written; all other metadata goes, with the
    orientation.

    Args:
        data: An image of any kind.
        quality: 1 to 100, as libjpeg counts.
        subsampling: Of colours: "4:2:0", "4:2:2" or "4:4:4".
        max_side: The longer side in pixels is at most this; None for any.

    Returns:
        The JPEG; `data` itself if that is a JPEG that is upright and small enough already, and has no more bytes.

    Raises:
        BadImageError: The image cannot be decoded, or has too many pixels a side for a JPEG.
        OptionError: Pillow is missing, or set to pass over the end that a truncated image lacks.
    """
    # The end of what is read here is a file that looks sound, so that damage has to be seen now.
    orientation = check_plain_jpeg(data)
    with opened(data) as picture, room_for(picture):
        kind, mode, stored = picture.format, picture.mode, picture.size
        size = _size_within(stored, max_side)
        # libjpeg reduces large pictures while it decodes them: to no less than twice of what is wanted.
        reduced = picture.draft(mode, (2 * size[0], 2 * size[1])) if size != stored else None
        if orientation is None:
            orientation = orientation_of(picture)
        picture.load()
        if kind == "TIFF":  # Pillow has turned it
            orientation, stored = 1, picture.size
            size = _size_within(stored, max_side)
        grey = mode in _GREY_MODES or mode.startswith("I;16")
        pixels = to_rgb(picture).getchannel(0) if grey else to_rgb(picture)
        if size != stored:
            pixels = pixels.resize(size, load_pillow().Resampling.BICUBIC, reduced[1] if reduced else None)
        made = _encode(_upright(pixels, orientation), quality, subsampling, _profile(picture, pixels.mode))
    as_it_is = kind in ("JPEG", "MPO") and mode in _PROFILE_SPACES and turn_for(orientation) == UPRIGHT
    return data if as_it_is and size == stored and len(made) >= len(data) else made


def _size_within(size: tuple[int, int], max_side: int | None) -> tuple[int, int]:
    longest = max(size)
    if max_side is not None and longest > max_side:
        return max(1, round(size[0] * max_side / longest)), max(1, round(size[1] * max_side / longest))
    if longest > MOST_SIDE:
        raise BadImageError(
            f"has {size[0]} x {size[1]} pixels, more than the {MOST_SIDE} a side of a JPEG: set max_side"
        )
    return size


def _upright(pixels: Any, orientation: int) -> Any:
    turns = load_pillow().Transpose
    turn = turn_for(orientation)
    if turn.swap:
        pixels = pixels.transpose(turns.TRANSPOSE)
    if turn.mirror:
        pixels = pixels.transpose(turns.FLIP_LEFT_RIGHT)
    if turn.flip:
        pixels = pixels.transpose(turns.FLIP_TOP_BOTTOM)
    return pixels


def _profile(picture: Any, mode: str) -> bytes:
    """The image's colour profile, b"" if it has none or one of other colours, such as those of CMYK."""
    profile = picture.info.get("icc_profile") or b""
    fits = profile[16:20] == _PROFILE_SPACES[mode] and len(profile) <= _MOST_PROFILE_BYTES
    return profile if fits else b""


def _encode(pixels: Any, quality: int, subsampling: str, profile: bytes) -> bytes:
    # Pillow would write some of it, such as comments.
    pixels.info = {}
    sink = io.BytesIO()
    # Not optimize=True: Pillow guesses how much memory that needs, and fails for noise.
    pixels.save(sink, "JPEG", quality=quality, subsampling=subsampling, icc_profile=profile)
    return sink.getvalue()
