"""Random numbers for one sample: the same whoever processes it, wherever it stands in the stream."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dataflow import _native
from dataflow.sampling.keys import key

# 2**64 over the golden ratio, the increment of SplitMix64.
_STEP = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class SampleKey(NamedTuple):
    """What a sample's random numbers are keyed by.

    Attributes:
        seed: Seed of the stream.
        source: Name of the source within a mixture.
        epoch: Epoch of the row.
        block: Block of the row.
        row: Row within the block.
        parts: Which part of the row it is, a number for each stage that made several of one.
    """

    seed: int
    source: str
    epoch: int
    block: int
    row: int
    parts: tuple[int, ...] = ()

    def part(self, number: int) -> SampleKey:
        """The key of a part of this sample."""
        seed, source, epoch, block, row, parts = self  # `_replace` would take four times as long
        return SampleKey(seed, source, epoch, block, row, (*parts, number))


def sample_generator(sample: SampleKey, stage: int) -> np.random.Generator:
    """The counter-based generator (Philox) of one stage for one sample; global generators are never touched."""
    seed, source, epoch, block, row, parts = sample
    place: tuple[int | str, ...] = (block, row, "parts", *parts) if parts else (block, row)
    words = [key(seed, source, epoch, "augment", *place, stage, word) for word in (0, 1)]
    return np.random.Generator(np.random.Philox(key=np.array(words, np.uint64)))


def value_key(sample: SampleKey, column: str) -> int:
    """The 64-bit key of one column's value in one sample: what its `Draws` are made from.

    A tenth of the price of a generator, for stages that need few numbers for each of very many samples.
    """
    seed, source, epoch, block, row, parts = sample
    value = _column_key(seed, source, epoch, column)
    for number in (block, row, *parts):
        value = _native.mix64((value + (number + 1) * _STEP) & _MASK)
    return value


@lru_cache(maxsize=64)
def _column_key(seed: int, source: str, epoch: int, column: str) -> int:
    return key(seed, source, epoch, "value", column)


class Draws:
    """SplitMix64 read by counter: draw `number` of a key is a pure function of both.

    Args:
        key: 64 bits, from `value_key`.
    """

    __slots__ = ("_key",)

    def __init__(self, key: int) -> None:
        self._key = key

    def uniform(self, number: int) -> float:
        """Draw `number`, from 0 on, as a float in [0, 1): the upper 53 bits."""
        return (_native.mix64((self._key + (number + 1) * _STEP) & _MASK) >> 11) * 2.0**-53

    def between(self, number: int, low: float, high: float) -> float:
        """Draw `number` as a float in [low, high)."""
        return low + (high - low) * self.uniform(number)

    def below(self, number: int, count: int) -> int:
        """Draw `number` as an integer in 0..count-1."""
        return int(self.uniform(number) * count)
