"""The order of samples once more, from its description alone, in the plainest Python: what the fast code must equal."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import gcd, sqrt

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15

Sample = tuple[int, int]  # block, row in the block
Placed = tuple[int, int, int]  # epoch, block, row


def key(*parts: int | str) -> int:
    data = b""
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part.to_bytes(16, "little", signed=True)
        data += (b"s" if isinstance(part, str) else b"i") + len(raw).to_bytes(4, "little") + raw
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, person=b"dataflow-order-1").digest(), "little")


def mix64(value: int) -> int:
    value ^= value >> 30
    value = value * 0xBF58476D1CE4E5B9 & WORD
    value ^= value >> 27
    value = value * 0x94D049BB133111EB & WORD
    return value ^ (value >> 31)


def feistel(x: int, n: int, seed: int) -> int:
    half = 0
    while 4**half < n:
        half += 1
    mask = 2**half - 1
    while True:
        left, right = x >> half, x & mask
        for number in range(1, 9):
            round_key = mix64((seed + number * GOLDEN) & WORD)
            left, right = right, left ^ (mix64((right + round_key) & WORD) >> 17 & mask)
        x = left << half | right
        if x < n:
            return x


def row_order(rows: int, seed: int) -> list[int]:
    return sorted(range(rows), key=lambda row: mix64((seed + (row + 1) * GOLDEN) & WORD))


def virtual_order(
    rows: Sequence[int], seed: int, epoch: int, *, source: str = "", shuffle: bool = True
) -> list[Sample]:
    """The sample at every position of an epoch."""
    epoch_key = key(seed, source, epoch)
    order = []
    for place in range(len(rows)):
        block = feistel(place, len(rows), key(epoch_key, "blocks")) if shuffle else place
        inside = row_order(rows[block], key(epoch_key, "rows", block)) if shuffle else range(rows[block])
        order += [(block, row) for row in inside]
    return order


def spans(num_rows: int, lanes: int) -> list[range]:
    """The positions of every lane: contiguous, the first num_rows % lanes of them longer by one."""
    out = []
    start = 0
    for lane in range(lanes):
        stop = start + num_rows // lanes + (1 if lane < num_rows % lanes else 0)
        out.append(range(start, stop))
        start = stop
    return out


def lane_samples(
    rows: Sequence[int],
    seed: int,
    lanes: int,
    lane: int,
    first_epoch: int = 0,
    *,
    source: str = "",
    shuffle: bool = True,
) -> Iterator[Placed]:
    """All that a lane of an endless stream passes, epoch after epoch.

    Slots count on through epochs, so that a lane takes the span of label (g mod N) % L in the epoch of its slot g.
    """
    num_rows = sum(rows)
    orders: dict[int, list[Sample]] = {}
    cut = spans(num_rows, lanes)
    slot = lane
    while True:
        epoch, inside = divmod(slot, num_rows)
        if epoch not in orders:
            orders = {epoch: virtual_order(rows, seed, first_epoch + epoch, source=source, shuffle=shuffle)}
        yield (first_epoch + epoch, *orders[epoch][cut[inside % lanes][inside // lanes]])
        slot += lanes


def stream(
    rows: Sequence[int],
    seed: int,
    lanes: int,
    count: int,
    first_epoch: int = 0,
    *,
    source: str = "",
    shuffle: bool = True,
    keep: Callable[[Placed], bool] = lambda _: True,
) -> list[Placed]:
    """The first slots of an endless stream: items of the lanes in turn, each lane dropping what is not kept."""
    turns = [
        filter(keep, lane_samples(rows, seed, lanes, lane, first_epoch, source=source, shuffle=shuffle))
        for lane in range(lanes)
    ]
    return [next(turns[slot % lanes]) for slot in range(count)]


def exact_stream(
    rows: Sequence[int], seed: int, lanes: int, epoch: int, keep: Callable[[Placed], bool]
) -> dict[int, Placed]:
    """Slot to sample in one epoch that drops samples: the slots of a lane that has ended are empty."""
    order = virtual_order(rows, seed, epoch)
    found = {}
    for lane, span in enumerate(spans(len(order), lanes)):
        kept = [placed for position in span if keep(placed := (epoch, *order[position]))]
        found |= {item * lanes + lane: placed for item, placed in enumerate(kept)}
    return dict(sorted(found.items()))


@cache
def multiplier(lanes: int) -> int:
    """The integer coprime to `lanes` next to lanes / golden ratio."""
    coprime = [a for a in range(1, lanes + 1) if gcd(a, lanes) == 1]
    return min(coprime, key=lambda a: abs(a - lanes * 2 / (1 + sqrt(5))))


def share(first: int, count: int, lanes: int, ranks: int, rank: int) -> list[int]:
    """Slots of a global batch that a rank takes."""
    slots = range(first, first + count)
    if lanes % ranks == 0:
        return [slot for slot in slots if slot % ranks == rank]
    spread = sorted(slots, key=lambda slot: (slot % lanes * multiplier(lanes) % lanes, slot))
    return sorted(spread[rank * count // ranks : (rank + 1) * count // ranks])
