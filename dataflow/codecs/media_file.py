"""Media files through PyAV, which is an extra: what bytes may be taken for, and within which limits they are read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from dataflow.codecs.container_end import cut_off
from dataflow.errors import CorruptDataError, OptionError

__all__ = ["MAX_PIXELS", "BadMediaError", "decoder_name", "load_av", "open_media", "reading"]

# Those of 8K. A decoder keeps up to 17 frames.
MAX_PIXELS = 8192 * 4320

# What FFmpeg may take the bytes for. Not playlists and the like, which make it open other files and addresses.
_FORMATS = (
    "aac,ac3,aiff,amr,asf,au,avi,caf,eac3,flac,flv,gif,h264,hevc,ivf,m4v,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,"
    "mp3,mpeg,mpegts,mpegvideo,obu,ogg,w64,wav,wv"
)


class BadMediaError(Exception):
    """A file that cannot be decoded, and why."""


def load_av() -> ModuleType:
    """The module av.

    Raises:
        OptionError: PyAV is missing.
    """
    try:
        import av
    except ImportError as error:
        raise OptionError(
            "video and audio are decoded with PyAV, which is not installed: pip install 'dataflow-loader[media]'"
        ) from error
    return av


def decoder_name() -> str:
    """What decodes: PyAV and the FFmpeg that it brings."""
    av = load_av()
    return f"PyAV {av.__version__} (FFmpeg {av.ffmpeg_version_info})"


@contextmanager
def reading() -> Iterator[None]:
    """Makes what FFmpeg raises on damaged files into an error of the data, to be read after "column 'clip' ".

    Raises:
        CorruptDataError: The file cannot be decoded; says why, not where.
    """
    av = load_av()
    try:
        yield
    except BadMediaError as error:
        raise CorruptDataError(str(error)) from error
    except av.FFmpegError as error:
        raise CorruptDataError(f"cannot be decoded ({type(error).__name__}: {error.strerror})") from error


@contextmanager
def open_media(data: bytes, kind: str, max_pixels: int = MAX_PIXELS) -> Iterator[tuple[Any, Any]]:
    """Opens the best stream of one kind.

    Args:
        data: The file.
        kind: "video" or "audio".
        max_pixels: Pictures with more than about twice as many are not decoded, not even to look at the file.

    Yields:
        PyAV's container and stream. Its decoder works in the thread that calls it, and takes damage for an error.

    Raises:
        BadMediaError: There is no such stream, or the file is cut off.
        av.FFmpegError: It is damaged.
    """
    av = load_av()
    if not data:
        raise BadMediaError("is empty")
    if problem := cut_off(data):
        raise BadMediaError(problem)
    # Here pixels count that are only there to fill up rows.
    limits = {"max_pixels": str(2 * max_pixels + (1 << 16))}
    try:
        # Tags need not be in the encoding that they should have.
        container = av.open(
            io.BytesIO(data),
            metadata_errors="replace",
            options={**limits, "threads": "1"},
            container_options={"format_whitelist": _FORMATS, "protocol_whitelist": "none"},
        )
    except (av.InvalidDataError, av.ArgumentError) as error:
        raise BadMediaError(_what_else(data)) from error
    with container:
        stream: Any = container.streams.best(kind)
        if stream is None or stream.disposition & av.stream.Disposition.attached_pic:
            raise BadMediaError(f"has no {kind} stream")
        decoder = stream.codec_context
        if decoder is None:
            raise BadMediaError(f"has {kind} of a kind that FFmpeg {av.ffmpeg_version_info} cannot decode")
        decoder.options = {**limits, "err_detect": "explode"}
        # Batches are made by many threads at once, so that one is enough for each decoder.
        decoder.thread_count = 1
        yield container, stream


def _what_else(data: bytes) -> str:
    if data.lstrip().startswith(b"<"):
        return "is no video or audio but HTML or XML"
    return f"is no video or audio that can be read (it begins with {data[:8]!r})"
