"""The samples of a sound: decoded, mixed and resampled, with exact counts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.codecs.media_file import BadMediaError, load_av, open_media

__all__ = ["decode_samples", "mix", "resample", "resampled_count"]

_MOST_RATE = 1 << 20
_LAYOUT = "mono"
# Samples that are resampled at once: all of a long sound would take several times its memory.
_PIECE = 1 << 16

Samples = NDArray[np.float32]


def decode_samples(data: bytes, channels: int | None, enough: float, most: float) -> tuple[Samples, int]:
    """The samples of a file's best audio stream, from the first on.

    Paddings that encoders put before and after are left out. Where the rate changes on the way, later samples come at
    the rate of the first.

    Args:
        data: The file.
        channels: See `mix`; None takes as many as there are.
        enough: Seconds after which no more are needed.
        most: Seconds that are taken at most: a longer sound is refused.

    Returns:
        [channels, count], and how many make a second.

    Raises:
        BadMediaError: There is no such stream, its channels do not fit, or it is too long.
        av.FFmpegError: It is damaged.
    """
    runs: list[tuple[int, list[Samples]]] = []  # a rate, and what came at it
    count, seconds, found = 0, 0.0, channels
    with open_media(data, "audio") as (container, stream):
        for frame in _frames(container, stream):
            rate = frame.sample_rate
            if not 0 < rate <= _MOST_RATE:
                raise BadMediaError(f"has {rate} samples a second")
            samples = mix(_floats(frame, stream), channels)
            found = found or len(samples)
            if len(samples) != found:
                raise BadMediaError(f"changes from {found} to {len(samples)} channels: give channels=")
            if not runs or runs[-1][0] != rate:
                runs.append((rate, []))
            runs[-1][1].append(samples)
            count += samples.shape[1]
            seconds += samples.shape[1] / rate
            if seconds >= enough:
                break
            if seconds > most:
                raise BadMediaError(f"lasts longer than max_seconds={most:g}: raise max_seconds=, or give seconds=")
        else:
            if container.format.name == "flac" and (stream.duration or 0) > count:
                raise BadMediaError(f"is cut off: {count:,} of its {stream.duration:,} samples are there")
    if not count:
        raise BadMediaError("has no sample that can be decoded")
    first = runs[0][0]
    joined = []
    while runs:  # which frees the parts of each in turn
        rate, parts = runs.pop(0)
        joined.append(resample(np.concatenate(parts, axis=1), rate, first))
    return joined[0] if len(joined) == 1 else np.concatenate(joined, axis=1), first


def mix(samples: Samples, channels: int | None) -> Samples:
    """Other numbers of channels: their mean makes one, and one is repeated to make many.

    Args:
        samples: [channels, count].
        channels: How many there are to be; None leaves them.

    Raises:
        BadMediaError: They are more than one, and others are wanted, also more than one.
    """
    if channels is None or len(samples) == channels:
        return samples
    if channels == 1:
        mean: Samples = np.mean(samples, axis=0, keepdims=True, dtype=np.float32)
        return mean
    if len(samples) == 1:
        return samples.repeat(channels, axis=0)
    raise BadMediaError(f"has {len(samples)} channels, of which none of {channels} can be made: give channels=1")


def resampled_count(count: int, rate: int, target: int) -> int:
    """How many samples `count` of them become at another rate: all that begin before they have ended."""
    return -(-count * target // rate)


def resample(samples: Samples, rate: int, target: int, start: int = 0, count: int | None = None) -> Samples:
    """Samples at another rate, or a part of them, with the same values as if all were made.

    Args:
        samples: [channels, count].
        rate: Samples a second.
        target: Wanted samples a second.
        start: The first wanted one: a multiple of `target / gcd(rate, target)`.
        count: How many are wanted; None takes all to the end.

    Returns:
        [channels, count], fewer where the sound ends before.
    """
    every = resampled_count(samples.shape[1], rate, target)
    count = every - start if count is None else max(0, min(count, every - start))
    if rate == target:
        return samples[:, start : start + count]
    step, made = rate // math.gcd(rate, target), target // math.gcd(rate, target)
    # The filter looks at this many samples to either side.
    around = 64 * max(1, -(-rate // target))
    before = min(start // made, -(-around // step))
    first = (start // made - before) * step
    last = first + (before + -(-count // made)) * step + around
    out = np.zeros((len(samples), before * made + count), np.float32)
    for channel, row in zip(samples[:, first:last], out, strict=True):
        _resample_one(channel, rate, target, row)
    return out[:, before * made :]


def _frames(container: Any, stream: Any) -> Iterator[Any]:
    """All frames; demuxing ends with a packet that brings what is left in the decoder."""
    for packet in container.demux(stream):
        yield from packet.decode()


def _floats(frame: Any, stream: Any) -> Samples:
    """A frame's samples [channels, count], from -1 to 1 where they are whole numbers."""
    values: NDArray[Any] = frame.to_ndarray()
    if not frame.format.is_planar:
        values = values.reshape(-1, frame.layout.nb_channels).T
    # Only where times count samples does a last frame say how many of its own are no padding.
    if frame.duration and stream.time_base == Fraction(1, frame.sample_rate):
        values = values[:, : frame.duration]
    if values.dtype == np.uint8:
        return (values.astype(np.float32) - 128) / np.float32(128)
    if values.dtype.kind == "i":
        values = values / -float(np.iinfo(values.dtype).min)
    return values.astype(np.float32)


def _resample_one(channel: Samples, rate: int, target: int, out: Samples) -> None:
    """One channel into `out`, which is as long as is wanted; the rest is left as it is."""
    av = load_av()
    resampler = av.AudioResampler(format="fltp", layout=_LAYOUT, rate=target)
    at = 0
    for start in range(0, len(channel) + _PIECE, _PIECE):
        piece = channel[None, start : start + _PIECE]
        frame = None  # after the last piece: what is left in the filter
        if piece.size:
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(piece), format="fltp", layout=_LAYOUT)
            frame.sample_rate = rate
        for made in resampler.resample(frame):
            values = made.to_ndarray()[0, : len(out) - at]
            out[at : at + len(values)] = values
            at += len(values)
