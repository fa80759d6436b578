"""Packing: which documents share a row, from their lengths alone."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from dataflow import _native
from dataflow.sampling.cursor import Cursor, flat
from dataflow.sampling.keys import key

__all__ = ["best_fit", "bin_order", "first_fit", "window_size"]


def best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Bins of items by best fit decreasing: the longest first, each into the fullest bin that has room for it.

    At most 11/9 of the best number of bins and 6/9 of one more (Dósa, "The tight bound of first fit decreasing
    bin-packing algorithm", 2007, holds for best fit as well); for lengths of texts and some hundred items all but full.

    Args:
        lengths: Of each item, 1 to `capacity`.
        capacity: Of each bin.

    Returns:
        The items of each bin, the longest first.
    """
    bins: list[list[int]] = []
    # Room that is left, ascending, and the bins that have it: of those with the same room the latest comes first.
    room: list[int] = []
    open_bins: list[int] = []
    for item in np.argsort(-np.asarray(lengths, np.int64), kind="stable").tolist():
        length = lengths[item]
        place = bisect_left(room, length)
        if place == len(room):
            number, left = len(bins), capacity - length
            bins.append([item])
        else:
            left = room.pop(place) - length
            number = open_bins.pop(place)
            bins[number].append(item)
        if left:
            place = bisect_left(room, left)
            room.insert(place, left)
            open_bins.insert(place, number)
    return bins


def first_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Bins of items by first fit: each in its turn into the first bin with room; arguments as for `best_fit`."""
    bins: list[list[int]] = []
    room = np.empty(len(lengths), np.int64)
    for item, length in enumerate(lengths):
        fits = room[: len(bins)] >= length
        number = int(fits.argmax()) if len(bins) else 0
        if not len(bins) or not fits[number]:
            number = len(bins)
            bins.append([])
            room[number] = capacity
        bins[number].append(item)
        room[number] -= length
    return bins


def window_size(window: int, lane: int, lanes: int, before: Cursor) -> int:
    """Items of the window that begins at a cursor: a lane's first one is shorter, so that lanes are out of phase."""
    first = lane > 0 and not any(flat(before))
    return 1 + window * lane // lanes if first else window


def bin_order(bins: int, seed: int, source: str, lane: int, before: Cursor) -> list[int]:
    """The order in which the bins of a window are given.

    Best fit makes them from full to half empty, in all lanes alike: in that order loss and load of a whole job would
    swing.

    Args:
        bins: How many there are.
        seed: Seed of the stream.
        source: Name of the source.
        lane: Number of the lane.
        before: Where its window begins.
    """
    order: list[int] = _native.row_permutation(bins, key(seed, source, "bins", lane, *flat(before))).tolist()
    return order
