"""Replay: which samples a run that goes on from a state would see next, without running it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dataflow.dataset import Manifest
from dataflow.errors import StateError
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.state import StreamState
from dataflow.sampling.stream import Stream, StreamRules
from dataflow.storage import join_url

__all__ = ["Replayed", "replay"]

# Slots that are located at once.
_SLOTS = 4096


class Replayed(NamedTuple):
    """One sample.

    Attributes:
        step: Steps before it, from the state on.
        slot: Its place in the stream, as batches have it.
        epoch: Its epoch.
        sample_id: Its row in the dataset.
        shard: URL of the shard that holds it.
        block: Its block.
        row: Its row within the block.
    """

    step: int
    slot: int
    epoch: int
    sample_id: int
    shard: str
    block: int
    row: int


def replay(
    url: str, state: Mapping[str, Any], steps: int, global_batch: int, *, shuffle: bool = True
) -> Iterator[Replayed]:
    """The samples of the steps after a state, in the order of the stream.

    Args:
        url: The dataset that the state is of.
        state: What `state_dict()` has returned.
        steps: How many steps.
        global_batch: Samples of a step over all ranks.
        shuffle: Whether the run shuffles, which a state does not say.

    Raises:
        DatasetError: There is no dataset.
        StateError: It is no state, or of another dataset, or of a pipeline where only reading tells what comes.
    """
    loaded = StreamState.from_dict(state)
    if loaded.mixture is not None or loaded.cursors is not None:
        what = "a mixture" if loaded.mixture is not None else "a pipeline with filter(), flat_map(), window() or pack()"
        raise StateError(
            f"the state is of {what}: what comes next is seen by loading it into a loader of the same kind"
        )
    whole = Manifest.open(url)
    manifest = whole.prefix(loaded.dataset)
    if manifest is None:
        raise StateError(
            f"the state is of dataset {loaded.dataset}, {url} is {whole.fingerprint}: give the one it is of"
        )
    rules = StreamRules(BlockLayout.of(manifest.rows), loaded.seed, "", loaded.lanes, shuffle)
    stream = rules.open(loaded.epoch)
    stop = loaded.slots + steps * global_batch if manifest.num_rows else loaded.slots
    for first in range(loaded.slots, stop, _SLOTS):
        yield from _located(manifest, stream, loaded.slots, range(first, min(stop, first + _SLOTS)), global_batch)


def _located(manifest: Manifest, stream: Stream, begun: int, slots: range, global_batch: int) -> Iterator[Replayed]:
    located = stream.locate(np.arange(slots.start, slots.stop, dtype=np.int64))
    for slot, epoch, block, offset, *_ in zip(slots, *(values.tolist() for values in located), strict=True):
        row = int(stream.row_permutation(epoch, block)[offset])
        shard = join_url(manifest.base_url, manifest.shard_path(manifest.shard_of(block)))
        sample_id = int(manifest.first_rows[block]) + row
        yield Replayed((slot - begun) // global_batch, slot, epoch, sample_id, shard, block, row)
