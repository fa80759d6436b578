"""Clips whose frames tell their own number, so that exactness is seen in the pixels, and sounds without repeats."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import dataflow

SCHEMA = pa.schema([("clip", pa.binary()), ("label", pa.int64()), ("key", pa.string())])
_BITS = 12
_SQUARE = 16

Pixels = NDArray[np.uint8]


def numbered(number: int, width: int = 96, height: int = 64) -> Pixels:
    """A picture [height, width, 3] with something that moves, and the number in squares that are black or white."""
    x, y = np.arange(width)[None, :], np.arange(height)[:, None]
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[..., 0] = 128 + 60 * np.sin((x + 3 * number) / 9)
    pixels[..., 1] = 128 + 60 * np.cos((y + 2 * number) / 7)
    pixels[..., 2] = (x + y + number) % 256 // 2 + 60
    for bit in range(_BITS):
        top, left = bit // 6 * _SQUARE, bit % 6 * _SQUARE
        pixels[top : top + _SQUARE, left : left + _SQUARE] = 235 if number >> bit & 1 else 20
    return pixels


def number_of(pixels: NDArray[Any]) -> int:
    """The number that a frame [height, width, 3] of at least 96 x 32 tells."""
    middles = [
        pixels[bit // 6 * _SQUARE + 8, bit % 6 * _SQUARE + 8].astype(np.float64).mean() > 127 for bit in range(_BITS)
    ]
    return sum(int(white) << bit for bit, white in enumerate(middles))


def clip(
    count: int = 60,
    *,
    codec: str = "libx264",
    container: str = "mp4",
    gop: int = 30,
    rate: int = 30,
    size: tuple[int, int] = (96, 64),
    times: Sequence[int] | None = None,
    pix_fmt: str = "yuv420p",
    options: Mapping[str, str] | None = None,
    container_options: Mapping[str, str] | None = None,
    rotation: int = 0,
    first: int = 0,
    moving: bool = True,
    sound: bool = False,
) -> bytes:
    """A file of numbered frames.

    Args:
        count: Frames.
        codec: FFmpeg's name of the encoder.
        container: FFmpeg's name of the format.
        gop: Frames from one keyframe to the next.
        rate: Frames a second.
        size: Width and height.
        times: When frames are shown, in milliseconds; None for the rate.
        pix_fmt: FFmpeg's name of the pixels.
        options: Of the encoder.
        container_options: Of the muxer.
        rotation: Degrees in the display matrix.
        first: Number of the first frame.
        moving: Whether each frame has the next number.
        sound: Whether there is an audio stream, too.
    """
    quick = {
        "libx264": {"preset": "veryfast", "crf": "20"},
        "libx265": {"preset": "ultrafast", "x265-params": "log-level=none"},
    }
    quick |= {"libsvtav1": {"preset": "12", "crf": "30"}, "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8"}}
    # Not in memory: the muxer reads again what it wrote, to put the table of frames to the front.
    path = Path(tempfile.mkstemp()[1])
    with _usual_priority(), av.open(str(path), "w", format=container, options=dict(container_options or {})) as file:
        stream: Any = file.add_stream(codec, rate=rate, options={**quick.get(codec, {}), **(options or {})})
        stream.width, stream.height = size
        stream.pix_fmt = pix_fmt
        stream.gop_size = gop
        stream.codec_context.thread_count = 1
        if times is not None:
            stream.codec_context.time_base = stream.time_base = Fraction(1, 1000)
        if rotation:
            stream.set_display_rotation(rotation)
        audio: Any = file.add_stream("aac", rate=16000, layout="mono") if sound else None
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(numbered(first + number * moving, *size), format="rgb24")
            frame.pts = number if times is None else times[number]
            frame.time_base = Fraction(1, rate) if times is None else Fraction(1, 1000)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
        if audio is not None:
            for chunk in _frames(tone(count / rate, 16000)[None], 16000):
                file.mux(audio.encode(chunk))
            file.mux(audio.encode())
    data = path.read_bytes()
    path.unlink()
    return data


@contextmanager
def _usual_priority() -> Iterator[None]:
    """SVT-AV1 gives the thread that opens it real-time priority where it may, which all later processes inherit."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def remuxed(data: bytes, container: str = "mp4", *, seconds: float = 0.0, skip: int = 0) -> bytes:
    """The packets of a clip in another file.

    Args:
        data: The clip.
        container: FFmpeg's name of the format.
        seconds: What times are made less by: MP4 hides frames before zero by an edit list.
        skip: Packets to leave out in front.
    """
    sink = io.BytesIO()
    with av.open(io.BytesIO(data)) as source, av.open(sink, "w", format=container) as file:
        stream: Any = source.streams.video[0]
        target = file.add_stream_from_template(stream)
        less = round(seconds / stream.time_base)
        for number, packet in enumerate(source.demux(stream)):
            if packet.size and number >= skip:
                assert packet.pts is not None
                assert packet.dts is not None
                packet.pts, packet.dts, packet.stream = packet.pts - less, packet.dts - less, target
                file.mux(packet)
    return sink.getvalue()


def tone(seconds: float, rate: int, pitch: float = 200.0) -> NDArray[np.float32]:
    """A sine that rises in pitch: no part sounds like another."""
    time = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * (pitch * time + 20 * time**2))).astype(np.float32)


def sound(
    samples: NDArray[np.float32],
    rate: int = 16000,
    *,
    codec: str = "pcm_s16le",
    container: str = "wav",
    options: Mapping[str, str] | None = None,
    muxing: Mapping[str, str] | None = None,
) -> bytes:
    """A file of samples [channels, count] or [count], with options of the encoder and of the muxer."""
    sink = io.BytesIO()
    samples = samples.reshape(-1, samples.shape[-1])
    with av.open(sink, "w", format=container, options=dict(muxing or {})) as file:
        layout = {1: "mono", 2: "stereo", 6: "5.1"}[len(samples)]
        stream: Any = file.add_stream(codec, rate=rate, layout=layout, options=dict(options or {}))
        for frame in _frames(samples, rate):
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return sink.getvalue()


def _frames(samples: NDArray[np.float32], rate: int) -> Iterable[av.AudioFrame]:
    layout = {1: "mono", 2: "stereo", 6: "5.1"}[len(samples)]
    for start in range(0, samples.shape[1], 1024):
        part = np.ascontiguousarray(samples[:, start : start + 1024])
        frame = av.AudioFrame.from_ndarray(part, format="fltp", layout=layout)
        frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
        yield frame


def write(folder: Path, clips: Sequence[bytes | None], rows_per_block: int = 4) -> str:
    """A dataset of clips; labels are row numbers."""
    with dataflow.ShardWriter(str(folder), SCHEMA, rows_per_block=rows_per_block) as writer:
        for number, data in enumerate(clips):
            writer.write({"clip": data, "label": number, "key": f"clip-{number}"})
    return str(folder)
