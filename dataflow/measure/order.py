"""The ranges of a store in the order in which a loader first needs them."""

from __future__ import annotations

import numpy as np

from dataflow.dataset import Manifest
from dataflow.sampling.stream import Stream, StreamRules

__all__ = ["Ranges", "ranges_in_order"]

Ranges = list[tuple[str, int, int]]

_MOST_SLOTS = 1 << 21


def ranges_in_order(manifest: Manifest, rules: StreamRules, epoch: int = 0, slots: int = _MOST_SLOTS) -> Ranges:
    """Shard, start and length of the blocks of an epoch, for its first slots; those that two lanes cut come twice."""
    stream = Stream(rules, epoch)
    blocks, _ = stream.samples(0, min(slots, manifest.num_rows))
    lanes = min(rules.lanes, len(blocks))
    entered = np.concatenate((np.ones(lanes, bool), blocks[lanes:] != blocks[: len(blocks) - lanes]))
    return [
        (manifest.shard_path(manifest.shard_of(block)), int(manifest.starts[block]), int(manifest.lengths[block]))
        for block in blocks[entered].tolist()
    ]
