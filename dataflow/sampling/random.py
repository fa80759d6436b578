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
    """What a sample's random numbers are keyed by."""

    seed: int
    source: str
    epoch: int
    block: int
    row: int


def sample_generator(sample: SampleKey, stage: int) -> np.random.Generator:
    """The counter-based generator (Philox) of one stage for one sample; global generators are never touched."""
    seed, source, epoch, block, row = sample
    words = [key(seed, source, epoch, "augment", block, row, stage, word) for word in (0, 1)]
    return np.random.Generator(np.random.Philox(key=np.array(words, np.uint64)))


def value_key(sample: SampleKey, column: str) -> int:
    """The 64-bit key of one column's value in one sample: what its `Draws` are made from.

    A tenth of the price of a generator, for stages that need few numbers for each of very many samples.
    """
    seed, source, epoch, block, row = sample
    base = _column_key(seed, source, epoch, column)
    return _native.mix64((_native.mix64((base + (block + 1) * _STEP) & _MASK) + (row + 1) * _STEP) & _MASK)


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
