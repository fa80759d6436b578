"""Which part of a picture is taken: a window of whole pixels, from its size and random numbers alone."""

from __future__ import annotations

import math
from typing import NamedTuple

from dataflow.sampling.random import Draws

_TRIES = 10
# Each try has draws of its own, so that no try depends on how many there were before.
_DRAWS_PER_TRY = 4


class Window(NamedTuple):
    """A rectangle of whole pixels."""

    top: int
    left: int
    height: int
    width: int


def random_resized_window(
    height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float], draws: Draws, first: int
) -> Window:
    """A window as torchvision's RandomResizedCrop draws it.

    Up to ten times a share of the area, uniform in `scale`, and an aspect ratio, uniform in its logarithm, are drawn.
    The first window that fits is placed uniformly. If none does, the largest one in the middle is taken whose ratio is
    in bounds.

    Args:
        height: Rows of the picture.
        width: Columns of the picture.
        scale: Bounds of the window's share of the area.
        ratio: Bounds of its width over its height.
        draws: Random numbers of the sample.
        first: Number of the first of them that may be used.
    """
    area = height * width
    lowest, highest = math.log(ratio[0]), math.log(ratio[1])
    for number in range(first, first + _TRIES * _DRAWS_PER_TRY, _DRAWS_PER_TRY):
        target = area * draws.between(number, *scale)
        aspect = math.exp(draws.between(number + 1, lowest, highest))
        cut_width, cut_height = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < cut_width <= width and 0 < cut_height <= height:
            top = draws.below(number + 2, height - cut_height + 1)
            left = draws.below(number + 3, width - cut_width + 1)
            return Window(top, left, cut_height, cut_width)
    if width < ratio[0] * height:
        return _centred(height, width, width / ratio[0], width)
    if width > ratio[1] * height:
        return _centred(height, width, height, height * ratio[1])
    return Window(0, 0, height, width)


def center_window(height: int, width: int, size: tuple[int, int], resize: int | None) -> Window:
    """The window in the middle that has the aspect ratio of `size`.

    Args:
        height: Rows of the picture.
        width: Columns of the picture.
        size: Height and width that the window will be resized to.
        resize: What the picture's shorter side would be resized to before `size` is cut out; None takes the largest
            window there is, as does what would not fit.
    """
    factor = min(height / size[0], width / size[1])
    if resize is not None:
        factor = min(factor, min(height, width) / resize)
    return _centred(height, width, size[0] * factor, size[1] * factor)


def _centred(height: int, width: int, cut_height: float, cut_width: float) -> Window:
    rows, columns = min(height, max(1, round(cut_height))), min(width, max(1, round(cut_width)))
    return Window((height - rows) // 2, (width - columns) // 2, rows, columns)
