"""The frames of a video by their number, in the order in which they are shown, decoded from keyframes on."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.codecs.frame_places import find_places
from dataflow.codecs.media_file import MAX_PIXELS, BadMediaError, load_av, open_media

__all__ = ["VideoFrames", "open_video"]

# Nine hours at 30 frames a second: a value of a dataset is no archive.
_MAX_PACKETS = 1 << 20
# Containers that have no times, or only those of decoding.
_TIMELESS = ("avi", "h264", "hevc", "m4v", "mpegvideo", "obu")
# Whose packets may hold frames that are never shown.
_HIDING = ("vp8",)
# Decoders that look before each packet whether frames that no other needs are wanted.
_SKIPPING = ("h264", "hevc")


@contextmanager
def open_video(data: bytes, max_pixels: int = MAX_PIXELS) -> Iterator[VideoFrames]:
    """The frames of a video's best stream.

    Raises:
        BadMediaError: There is no such stream, it is too large, or no frame can be decoded.
        av.FFmpegError: It is damaged.
    """
    with open_media(data, "video", max_pixels) as (container, stream):
        height, width = stream.codec_context.height, stream.codec_context.width
        if height * width > max_pixels:
            raise BadMediaError(
                f"has {height * width:,} pixels a frame ({width} x {height}), more than max_pixels={max_pixels:,}: "
                "raise max_pixels="
            )
        yield VideoFrames(container, stream)


class VideoFrames:
    """Frames of one video, numbered as they are shown. What metadata say of their number and times is not believed.

    All packets are read once and kept. A value lies in memory anyway, and a seek then is to go on with another packet:
    no demuxer can land elsewhere. Frames that an edit list hides do not count, nor do those before the first keyframe.

    Attributes:
        seconds: float64 [frames], when each begins to be shown.
        end: When the last one ceases to be, in seconds.
    """

    def __init__(self, container: Any, stream: Any) -> None:
        self._decoder = stream.codec_context
        self._reorder_depth = self._decoder.reorder_depth
        self._at: int | None = None  # the packet that is decoded next; None at the end
        self._began = 0
        self._packets = _read(container, stream)
        timeless = container.format.name in _TIMELESS
        # Without a keyframe at the start, what is in front of the first one cannot be decoded.
        first = next((at for at, packet in enumerate(self._packets) if packet.is_keyframe), 0)
        del self._packets[:first]
        told = not (timeless or self._decoder.name in _HIDING or first)
        self._places = find_places(self._packets) if told else None
        if self._places is not None:
            pts: list[Any] = [place.pts for place in self._places]
        else:
            pts = [frame.pts for frame in self._decoded()]
            timeless |= None in pts or any(one > other for one, other in pairwise(pts))
        if not pts:
            raise BadMediaError("has no frame that can be decoded")
        base = _frame_duration(stream, self._packets) if timeless else stream.time_base
        units = range(len(pts)) if timeless else pts
        self.seconds: NDArray[np.float64] = np.array([float(unit * base) for unit in units])
        self.end = float((units[-1] + _last_duration(self._packets, units, timeless)) * base)

    def pick(self, indices: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """Decodes some frames, each once, about in the order in which they are shown.

        Args:
            indices: Their numbers, from 0 to len(seconds) - 1.

        Yields:
            A number, and PyAV's frame.

        Raises:
            BadMediaError: A frame is damaged.
            av.FFmpegError: The same, seen by the decoder.
        """
        wanted = sorted(set(indices))
        frames = self._by_count(wanted) if self._places is None else self._by_time(wanted)
        for index, frame in frames:
            if frame.is_corrupt:
                raise BadMediaError(f"is damaged: frame {index}, at {self.seconds[index]:.6f} s, is not whole")
            yield index, frame

    def _by_count(self, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
        awaited = set(wanted)
        for index, frame in enumerate(self._decoded()):
            if index in awaited:
                awaited.remove(index)
                yield index, frame
            if not awaited:
                return

    def _decoded(self) -> Iterator[Any]:
        """All frames."""
        self._seek(0)
        while self._at is not None:
            yield from self._next()

    def _by_time(self, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
        assert self._places is not None
        wanted_places = [self._places[index] for index in wanted]
        awaited = {place.pts: index for place, index in zip(wanted_places, wanted, strict=True)}
        groups = [(start, list(group)) for start, group in groupby(wanted_places, lambda place: place.start)]
        starts = [start for start, _ in groups] + [len(self._packets)]
        for (start, group), following in zip(groups, starts[1:], strict=True):
            missing = {place.pts for place in group} & awaited.keys()
            last = max(place.packet for place in group)
            for begin in (start, 0):
                # What is not far ahead is reached by going on.
                if missing and (self._at is None or begin > self._at or begin < start):
                    self._seek(begin)
                try:
                    while missing and self._at is not None:
                        # The next group is decoded from elsewhere: what is in the decoder need not wait for its turn.
                        drain = last < self._at < following
                        for frame in self._next(awaited, drain):
                            missing.discard(frame.pts)
                            if frame.pts in awaited:
                                yield awaited.pop(frame.pts), frame
                except load_av().FFmpegError:
                    # Some keyframes do not do to begin with, as H.264 has them without an IDR; the first packet does.
                    if not begin or self._began == 0:
                        raise
            if missing:
                raise BadMediaError(f"is damaged: frame {awaited[min(missing)]} does not come out of the decoder")

    def _seek(self, packet: int) -> None:
        self._decoder.flush_buffers()
        # FFmpeg forgets what it has learned of the order, and would drop frames.
        self._decoder.reorder_depth = self._reorder_depth
        self._at = self._began = packet

    def _next(self, awaited: Container[int] | None = None, drain: bool = False) -> list[Any]:
        """Decodes the next packet; after the last one, what is left in the decoder.

        Args:
            awaited: Times of frames that are wanted: others that no frame needs are passed over. None wants all.
            drain: Whether this is as if after the last packet.
        """
        assert self._at is not None
        if drain or self._at == len(self._packets):
            self._at = None
            return self._decoder.decode(None)  # type: ignore[no-any-return]
        packet = self._packets[self._at]
        self._at += 1
        # Frames that come after a keyframe but are shown before it may need some in front of it.
        if self._began and packet.pts < self._packets[self._began].pts:
            return []
        if awaited is not None and self._decoder.name in _SKIPPING:
            self._decoder.skip_frame = "DEFAULT" if packet.pts in awaited else "NONREF"
        return self._decoder.decode(packet)  # type: ignore[no-any-return]


def _read(container: Any, stream: Any) -> list[Any]:
    packets = []
    for packet in container.demux(stream):
        if packet.size:
            packets.append(packet)
        if len(packets) > _MAX_PACKETS:
            raise BadMediaError(f"has more than {_MAX_PACKETS:,} frames")
    return packets


def _frame_duration(stream: Any, packets: Sequence[Any]) -> Fraction:
    """How long each frame is shown where nothing says when, in seconds."""
    said = (packets[0].duration or 0) * stream.time_base
    return said or 1 / (stream.average_rate or Fraction(25))


def _last_duration(packets: Sequence[Any], units: Sequence[int], timeless: bool) -> int:
    """How long the last frame is shown: as its packet says, else as long as the one before it."""
    if timeless:
        return 1
    said = next((packet.duration for packet in packets if packet.pts == units[-1]), None)
    return said or (units[-1] - units[-2] if len(units) > 1 else 0)
