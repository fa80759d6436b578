"""EXIF orientation: where a window of the upright picture lies among the stored pixels, and how to turn it."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from dataflow.codecs.crop import Window


class Turn(NamedTuple):
    """How stored pixels become upright: rows and columns are swapped first, then mirrored.

    Attributes:
        swap: Whether rows become columns.
        mirror: Whether left and right are exchanged then.
        flip: Whether top and bottom are.
    """

    swap: bool
    mirror: bool
    flip: bool

    def upright_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the upright picture, from those that are stored."""
        return (width, height) if self.swap else (height, width)

    def stored_window(self, height: int, width: int, window: Window) -> Window:
        """Where a window of the upright picture lies among the stored pixels.

        Args:
            height: Rows of the upright picture.
            width: Columns of the upright picture.
            window: The window, upright.
        """
        top = height - window.top - window.height if self.flip else window.top
        left = width - window.left - window.width if self.mirror else window.left
        if self.swap:
            return Window(left, top, window.width, window.height)
        return Window(top, left, window.height, window.width)

    def mirrored(self) -> Turn:
        """The same, with left and right of the upright picture exchanged."""
        return self._replace(mirror=not self.mirror)

    def apply(self, pixels: NDArray[Any], rows: int, columns: int) -> NDArray[Any]:
        """A view of stored pixels, turned.

        Args:
            pixels: Of any shape.
            rows: The axis of the rows.
            columns: The axis of the columns.
        """
        if self.swap:
            pixels = pixels.swapaxes(rows, columns)
        index: list[slice] = [slice(None)] * pixels.ndim
        if self.flip:
            index[rows] = slice(None, None, -1)
        if self.mirror:
            index[columns] = slice(None, None, -1)
        return pixels[tuple(index)]


UPRIGHT = Turn(False, False, False)

_TURNS = {
    2: Turn(False, True, False),
    3: Turn(False, True, True),
    4: Turn(False, False, True),
    5: Turn(True, False, False),
    6: Turn(True, True, False),
    7: Turn(True, True, True),
    8: Turn(True, False, True),
}


def turn_for(orientation: int) -> Turn:
    """The turn that an EXIF orientation asks for; values that do not exist ask for none."""
    return _TURNS.get(orientation, UPRIGHT)
