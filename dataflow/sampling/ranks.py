"""Ranks: which slots of a global batch each data-parallel rank takes. The stream never depends on their number."""

from __future__ import annotations

from functools import cache
from math import gcd

import numpy as np

from dataflow.sampling.layout import Integers

_GOLDEN_RATIO = (1 + 5**0.5) / 2


@cache
def _multiplier(lanes: int) -> int:
    """The integer coprime to `lanes` next to lanes / golden ratio: spreads neighbouring lanes over all ranks."""
    ideal = lanes / _GOLDEN_RATIO
    coprime = (a for a in range(1, lanes + 1) if gcd(a, lanes) == 1)
    return min(coprime, key=lambda a: (abs(a - ideal), a))


def share(first: int, count: int, lanes: int, ranks: int, rank: int) -> Integers:
    """Slots of the global batch [first, first + count) that a rank takes, int64, ascending.

    Where the ranks divide the lanes, every lane has one reader. Otherwise the slots are sorted by lane (spread by a
    golden multiplier) and cut into equal runs, so that only lanes at a border are read by two ranks.
    """
    if lanes % ranks == 0:
        return np.arange(first + (rank - first) % ranks, first + count, ranks, dtype=np.int64)
    slots = np.arange(first, first + count, dtype=np.int64)
    by_lane = np.argsort(slots % lanes * _multiplier(lanes) % lanes, kind="stable")
    return np.sort(slots[by_lane[rank * count // ranks : (rank + 1) * count // ranks]])


def lanes_of_rank(lanes: int, ranks: int) -> int:
    """About how many lanes a rank reads: where ranks do not divide them, those at its two borders as well."""
    return lanes // ranks if lanes % ranks == 0 else min(lanes, -(-lanes // ranks) + 2)


def lanes_read(lanes: int, ranks: int, rank: int, global_batch: int) -> int:
    """How many lanes a rank reads. Batches that cover only some lanes each share them out differently."""
    if lanes % ranks == 0 or global_batch >= lanes:
        return lanes_of_rank(lanes, ranks)
    seen: set[int] = set()
    first = 0
    while True:
        seen.update((share(first, global_batch, lanes, ranks, rank) % lanes).tolist())
        first = (first + global_batch) % lanes
        if first == 0:
            return len(seen)


def lanes_held(lanes: int, ranks: int, rank: int, global_batch: int) -> int:
    """Of how many lanes a rank has a block: a last batch may be filled up with a row of another rank's lane."""
    return min(lanes, lanes_read(lanes, ranks, rank, global_batch) + (ranks > 1))


def padded_share(first: int, count: int, lanes: int, ranks: int, rank: int) -> tuple[Integers, int]:
    """The share of a last batch, filled up so that all ranks get ceil(count / ranks) rows.

    A rank misses at most one row; the ranks that do, in order, repeat the first slots of the batch.

    Returns:
        (slots, how many of them are the rank's own; those after them repeat others).
    """
    own = share(first, count, lanes, ranks, rank)
    wanted = -(-count // ranks)
    if len(own) == wanted:
        return own, wanted
    short_before = sum(len(share(first, count, lanes, ranks, other)) < wanted for other in range(rank))
    return np.append(own, first + short_before % count), len(own)
