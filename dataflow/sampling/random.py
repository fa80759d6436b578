"""Random numbers for one sample: the same whoever processes it, wherever it stands in the stream."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dataflow.sampling.keys import key


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
