"""The stream of a mixture: each slot is an item of the stream of one of its sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataflow.sampling.layout import Integers
from dataflow.sampling.mixture import Draws, Schedule
from dataflow.sampling.random import SampleKey
from dataflow.sampling.stream import Located, Stream, StreamRules


@dataclass(frozen=True, slots=True, eq=False)
class MixedRules:
    """What the stream of a mixture depends on, and nothing else.

    Attributes:
        schedule: Which source each slot draws from.
        own: Lanes of each source.
        sources: The stream of each source; None for those that are drawn no more.
        given: The numbers of those that are, in the order in which their blocks are numbered.
        firsts: int64, where the blocks of each of these begin among all blocks.
        seed: Seed of the order.
    """

    schedule: Schedule
    own: Sequence[int]
    sources: Sequence[StreamRules | None]
    given: Sequence[int]
    firsts: Integers
    seed: int

    @property
    def lanes(self) -> int:
        """Lanes of the mixture."""
        return self.schedule.lanes

    def open(self, epoch: int) -> MixedStream:
        """The stream; it has no epochs of its own, so that `epoch` is 0."""
        assert epoch == 0
        return MixedStream(self)


class MixedStream:
    """The slots of a mixture; `Stream` has the meaning of what it does."""

    def __init__(self, rules: MixedRules) -> None:
        self.rules = rules
        self._streams = [None if source is None else Stream(source, 0) for source in rules.sources]
        self._draws = Draws(rules.schedule, rules.own)
        # Lanes that read are those of sources: lane l of the mixture draws from lane l modulo theirs.
        self._first_lane = np.cumsum([0, *rules.own])
        self._first_block = {number: int(first) for number, first in zip(rules.given, rules.firsts, strict=True)}

    def locate(self, slots: Integers) -> Located:
        """The samples of ascending slots (int64[n]), with blocks numbered through all sources."""
        first = int(slots[0])
        drawn = self._draws.take(first, int(slots[-1]) + 1 - first)
        source, item = drawn.source[slots - first], drawn.item[slots - first]
        found = Located(*(np.empty(len(slots), np.int64) for _ in Located._fields))
        for number in np.unique(source).tolist():
            (here,) = np.nonzero(source == number)
            stream = self._streams[number]
            assert stream is not None, "what is drawn no more is drawn"
            located = stream.locate(item[here])
            for name, values in located._asdict().items():
                getattr(found, name)[here] = values
            found.block[here] += self._first_block[number]
            found.lane[here] += self._first_lane[number]
        return found

    def row_permutation(self, epoch: int, block: int) -> NDArray[np.int32]:
        """Stored row at each offset of a block in an epoch of its source, int32."""
        number, block = self._at(block)
        stream = self._streams[number]
        assert stream is not None
        return stream.row_permutation(epoch, block)

    def key(self, epoch: int, block: int, row: int) -> SampleKey:
        """What a sample's random numbers are keyed by: its place within its own source."""
        number, block = self._at(block)
        source = self.rules.sources[number]
        assert source is not None
        return SampleKey(self.rules.seed, source.source, epoch, block, row)

    def source_ids(self, blocks: Integers) -> Integers:
        """The number of each block's source, as they were given, int64."""
        return np.searchsorted(self.rules.firsts, blocks, side="right") - 1

    def _at(self, block: int) -> tuple[int, int]:
        place = int(np.searchsorted(self.rules.firsts, block, side="right")) - 1
        return self.rules.given[place], block - int(self.rules.firsts[place])
