"""Mixtures: which source each slot of a stream draws from, and which of its items that is.

Every lane draws from the sources by a sequence of low discrepancy (Kronecker's: the fractional parts of multiples of an
irrational number, in 64 bits): draw `i` of lane `l` takes the source whose interval of cumulative weights holds
`offset + l * 2**64/phi + i * 2**64/sqrt(6)` modulo 2**64. So the counts stay near the weights at every length, nothing
repeats, and what was drawn up to any slot is a sum of floors, without going there.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataflow.errors import OptionError
from dataflow.sampling.lanes import delivered_items
from dataflow.sampling.layout import Integers

__all__ = ["Drawn", "Draws", "Schedule", "Segment", "source_lanes"]

_LANE_STEP = 0x9E3779B97F4A7C15
_DRAW_STEP = 0x6A09E667F3BCC909
_WORD = 1 << 64
_BLOCKS_PER_LANE = 16
# Slots that are drawn at once where one is searched.
_STRIDE = 1 << 14


class Segment(NamedTuple):
    """Weights from a slot on.

    Attributes:
        slot: The first slot.
        weights: One for each source, in the order of the sources; they need not add up to anything.
    """

    slot: int
    weights: tuple[Fraction, ...]


class Drawn(NamedTuple):
    """What consecutive slots draw.

    Attributes:
        source: int64[n], the number of each slot's source.
        item: int64[n], which slot of the source's own stream that is.
    """

    source: Integers
    item: Integers


def source_lanes(lanes: int, share: Fraction, num_blocks: int) -> int:
    """Lanes of a source: the largest power of two within its share of them, doubled, and a sixteenth of its blocks.

    Lane `l` of the mixture draws from lane `l` modulo this of the source, so that all lanes together hold about twice
    as many blocks as there are lanes, however many sources there are.
    """
    most = min(lanes, int(2 * share * lanes), num_blocks // _BLOCKS_PER_LANE)
    return 1 << (most.bit_length() - 1) if most > 0 else 1


class Schedule:
    """The draws of all lanes.

    Args:
        lanes: Lanes of the stream.
        segments: The first one from slot 0 on.
        offset: Where the sequence begins, an integer of 64 bits.

    Raises:
        OptionError: A weight is negative, or all of a segment are 0.
    """

    def __init__(self, lanes: int, segments: Sequence[Segment], offset: int = 0) -> None:
        self.lanes = lanes
        self.segments = tuple(segments)
        self._offset = offset % _WORD
        self._bounds = [_bounds(segment) for segment in self.segments]

    def sources(self, first: int, count: int) -> Integers:
        """The source of each of `count` slots from one on, int64."""
        slots = np.arange(first, first + count, dtype=np.int64)
        lane, draw = np.divmod(slots, self.lanes)[::-1]
        with np.errstate(over="ignore"):
            place = np.uint64(self._offset) + lane.astype(np.uint64) * np.uint64(_LANE_STEP)
            place += draw.astype(np.uint64) * np.uint64(_DRAW_STEP)
        found = np.empty(count, np.int64)
        for number, segment in enumerate(self.segments):
            stop = self.segments[number + 1].slot if number + 1 < len(self.segments) else first + count
            here = slice(max(0, segment.slot - first), max(0, stop - first))
            # Sources at the end that have no weight begin beyond all numbers.
            inner = np.array([bound for bound in self._bounds[number][1:-1] if bound < _WORD], np.uint64)
            found[here] = np.searchsorted(inner, place[here], side="right")
        return found

    def counts(self, lane: int, slots: int) -> list[int]:
        """How often a lane has drawn from each source within the first `slots` slots of the stream."""
        total = [0] * len(self._bounds[0][1:])
        for number, segment in enumerate(self.segments):
            stop = min(slots, self.segments[number + 1].slot) if number + 1 < len(self.segments) else slots
            if stop <= segment.slot:
                break
            begun, ended = (delivered_items(lane, at, self.lanes) for at in (segment.slot, stop))
            start = self._offset + lane * _LANE_STEP + begun * _DRAW_STEP
            below = [_below(ended - begun, start % _WORD, bound) for bound in self._bounds[number]]
            total = [sum(pair) for pair in zip(total, map(int.__sub__, below[1:], below[:-1]), strict=True)]
        return total

    def delivered(self, slots: int) -> list[int]:
        """How often the first `slots` slots draw from each source."""
        lanes = [self.counts(lane, slots) for lane in range(min(self.lanes, slots))]
        return [sum(counts) for counts in zip(*lanes, strict=True)] if lanes else [0] * len(self.segments[0].weights)

    def first_beyond(self, source: int, items: int) -> int:
        """The first slot that draws from a source after it has given `items` items; the source has to come for ever.

        Raises:
            OptionError: Its last weight is 0, so that it may not get there.
        """
        share = self.segments[-1].weights[source] / sum(self.segments[-1].weights)
        if not share:
            raise OptionError(f"source {source} has weight 0 at the end: it would never end")
        low, high = 0, self.lanes
        while self.delivered(high)[source] <= items:
            low, high = high, 2 * high
        while high - low > _STRIDE:
            middle = (low + high) // 2
            low, high = (middle, high) if self.delivered(middle)[source] <= items else (low, middle)
        drawn = self.delivered(low)[source] + np.cumsum(self.sources(low, high - low) == source)
        return low + int(np.searchsorted(drawn, items, side="right"))


class Draws:
    """What slots draw, from one to the next: closed forms are only needed where it begins.

    Args:
        schedule: Which source each slot draws from.
        own: Lanes of each source.
    """

    def __init__(self, schedule: Schedule, own: Sequence[int]) -> None:
        self._schedule = schedule
        self._own = own
        self._next = 0
        # Items that each lane of each source has given before.
        self._taken = [np.zeros(lanes, np.int64) for lanes in own]

    def take(self, first: int, count: int) -> Drawn:
        """What `count` slots from one on draw."""
        if first != self._next:
            self._go_to(first)
        source = self._schedule.sources(first, count)
        lane = np.arange(first, first + count, dtype=np.int64) % self._schedule.lanes
        item = np.empty(count, np.int64)
        for number, lanes in enumerate(self._own):
            (here,) = np.nonzero(source == number)
            within = lane[here] % lanes
            item[here] = (self._taken[number][within] + _earlier(within)) * lanes + within
            self._taken[number] += np.bincount(within, minlength=lanes)
        self._next = first + count
        return Drawn(source, item)

    def _go_to(self, slot: int) -> None:
        for taken in self._taken:
            taken[:] = 0
        for lane in range(min(self._schedule.lanes, slot)):
            for taken, count in zip(self._taken, self._schedule.counts(lane, slot), strict=True):
                taken[lane % len(taken)] += count
        self._next = slot


def _bounds(segment: Segment) -> list[int]:
    """Where the interval of each source begins, and the end, in 64 bits."""
    if any(weight < 0 for weight in segment.weights) or not sum(segment.weights):
        raise OptionError(f"weights {[float(weight) for weight in segment.weights]}: give some from 0 on, not all 0")
    total, reached, bounds = sum(segment.weights), Fraction(0), [0]
    for weight in segment.weights:
        reached += weight
        bounds.append(int(_WORD * reached / total))
    return bounds


def _earlier(values: Integers) -> Integers:
    """For each value how many equal ones stand before it, int64."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins: NDArray[np.bool_] = np.ones(len(values), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    (starts,) = np.nonzero(begins)
    earlier = np.empty(len(values), np.int64)
    earlier[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    return earlier


def _below(count: int, start: int, bound: int) -> int:
    """How many of the first `count` terms of start + i * step, modulo 2**64, are below a bound."""
    # floor(x / M) - floor((x - bound) / M) is 1 where x mod M is below the bound, else 0.
    return _floor_sum(count, _DRAW_STEP, start) - _floor_sum(count, _DRAW_STEP, start - bound)


def _floor_sum(count: int, step: int, start: int) -> int:
    """The sum of floor((start + i * step) / 2**64) over i in 0 .. count-1, by Euclid's algorithm."""
    total, modulus = 0, _WORD
    while count > 0:
        quotient, step = divmod(step, modulus)
        total += quotient * (count * (count - 1) // 2)
        quotient, start = divmod(start, modulus)
        total += quotient * count
        last = step * count + start
        if last < modulus:
            break
        # The same points counted along the other axis.
        count, start = divmod(last, modulus)
        modulus, step = step, modulus
    return total
