"""A decoded frame to RGB pixels of one size: cut, converted and resized by FFmpeg in one go."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.codecs.crop import Window
from dataflow.codecs.media_file import BadMediaError, load_av

__all__ = ["FrameScaler", "orientation_of"]

# Bilinear and, where it makes smaller, antialiased; the same on every processor.
_FLAGS = "bilinear+accurate_rnd+full_chroma_int+full_chroma_inp+bitexact"
# Signs of the four numbers that turn a frame's columns and rows into those of the screen, as EXIF numbers them.
_ORIENTATIONS = {
    (1, 0, 0, 1): 1,
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}


def orientation_of(frame: Any) -> int:
    """How a frame has to be turned for the screen, as EXIF's orientation, from 1 (not at all) to 8.

    Raises:
        BadMediaError: It is to be turned by less than a quarter.
    """
    side = frame.side_data.get("DISPLAYMATRIX")
    if side is None:
        return 1
    a, b, _, c, d, *_ = struct.unpack("=9i", bytes(side)[:36])
    found = _ORIENTATIONS.get(tuple((value > 0) - (value < 0) for value in (a, b, c, d)))
    if found is None:
        raise BadMediaError(f"has a display matrix ({a}, {b}, {c}, {d}) that is no quarter turn")
    return found


class FrameScaler:
    """Makes RGB of frames; keeps what it needs for frames that are alike. For one thread."""

    def __init__(self) -> None:
        self._kind: tuple[Any, ...] = ()
        self._graph: Any = None

    def __call__(self, frame: Any, window: Window, height: int, width: int) -> NDArray[np.uint8]:
        """The pixels of a window, resized.

        Args:
            frame: PyAV's frame.
            window: What is taken of it, as stored.
            height: Rows of the result.
            width: Columns of the result.

        Returns:
            [height, width, 3], of memory that is the result's own.
        """
        look = (frame.width, frame.height, frame.format.name, int(frame.colorspace), int(frame.color_range))
        kind = (*look, window, height, width)
        if kind != self._kind:
            whole = _whole_colours(frame.format, window)
            self._graph, self._kind = _graph(look, whole, height, width), kind
        self._graph.vpush(frame)
        plane = self._graph.vpull().planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(height, plane.line_size)
        return rows[:, : 3 * width].reshape(height, width, 3)


def _whole_colours(pixels: Any, window: Window) -> Window:
    """The window, grown to the left and top to where a stored colour begins: many formats have one for 2 x 2 pixels."""
    top, left, height, width = window
    right, bottom = left + width, top + height
    left -= left % (4 // max(1, pixels.chroma_width(4)))
    top -= top % (4 // max(1, pixels.chroma_height(4)))
    return Window(top, left, bottom - top, right - left)


def _graph(look: tuple[Any, ...], window: Window, height: int, width: int) -> Any:
    graph = load_av().filter.Graph()
    graph.threads = 1
    columns, rows, pixels, colours, levels = look
    source = f"video_size={columns}x{rows}:pix_fmt={pixels}:time_base=1/1:colorspace={colours}:range={levels}"
    steps = [graph.add("buffer", source)]
    if (window.height, window.width) != (rows, columns):
        steps.append(graph.add("crop", f"{window.width}:{window.height}:{window.left}:{window.top}:exact=1"))
    steps.append(graph.add("scale", f"{width}:{height}:flags={_FLAGS}"))
    steps.append(graph.add("format", "rgb24"))
    steps.append(graph.add("buffersink"))
    graph.link_nodes(*steps).configure()
    return graph
