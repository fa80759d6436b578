"""Which frames of a video are taken: by rules, or by the times at which they are shown. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dataflow.sampling.random import Draws

__all__ = ["at_indices", "at_random", "at_start", "at_times", "uniform"]

# Times in seconds are products of whole numbers and a time base: what is closer than this is the same.
_SLACK = 1e-6

Indices = NDArray[np.int64]


def uniform(count: int, frames: int) -> Indices:
    """The frames in the middle of `frames` equal parts of a clip; some more than once if it has fewer."""
    return (2 * np.arange(frames, dtype=np.int64) + 1) * count // (2 * frames)


def at_start(count: int, frames: int, every: int, first: int = 0) -> Indices:
    """Every so many frames from the first on; the last frame again where the clip has ended."""
    return np.minimum(first + every * np.arange(frames, dtype=np.int64), count - 1)


def at_random(count: int, frames: int, every: int, draws: Draws, number: int) -> Indices:
    """As `at_start`, but from any frame on from which they fit into the clip: draw `number` of a sample chooses it."""
    span = (frames - 1) * every + 1
    return at_start(count, frames, every, draws.below(number, max(1, count - span + 1)))


def at_indices(count: int, indices: Sequence[int]) -> tuple[Indices, str]:
    """The frames with these numbers, where -1 is the last; and what is wrong with them, "" if nothing."""
    found = np.array(indices, np.int64).reshape(-1)
    for index in found.tolist():
        if not -count <= index < count:
            return found, f"has {count} frames, no frame {index}"
    return found % max(1, count), ""


def at_times(
    seconds: NDArray[np.float64], end: float, wanted: Sequence[float], tolerance: float | None
) -> tuple[Indices, str]:
    """The frames of some times.

    Args:
        seconds: When each frame begins to be shown, ascending.
        end: When the last one ceases to be.
        wanted: The times.
        tolerance: None takes the frame that is shown at a time. A number takes the one that begins nearest to it,
            which must be no farther away than this; of two that are equally near, the earlier one.

    Returns:
        The frames, and what is wrong with the times, "" if nothing.
    """
    times = np.array(wanted, np.float64).reshape(-1)
    for time in times.tolist():
        if not np.isfinite(time):
            return np.zeros(0, np.int64), f"has no frame at {time} s"
    if tolerance is None:
        found = np.searchsorted(seconds, times + _SLACK, side="right") - 1
        wrong = (found < 0) | (times > end - _SLACK)
        asked = "no frame is shown at {:.6f} s"
    else:
        after = np.searchsorted(seconds, times).clip(0, len(seconds) - 1)
        before = (after - 1).clip(0)
        found = np.where(times - seconds[before] <= seconds[after] - times + _SLACK, before, after)
        wrong = np.abs(seconds[found] - times) > tolerance + _SLACK
        asked = f"no frame begins within {tolerance:g} s of {{:.6f}} s"
    if wrong.any():
        which = int(wrong.argmax())
        nearest = int(found[which].clip(0))
        return found, (
            f"has frames from {seconds[0]:.6f} to {end:.6f} s, and {asked.format(times[which])} "
            f"(the nearest, frame {nearest}, begins at {seconds[nearest]:.6f} s)"
        )
    return found.astype(np.int64), ""
