"""Corpus: what a loader reads, in which lanes, and what its state says of that."""

from __future__ import annotations

from typing import Any, Protocol

from dataflow.dataset import Dataset
from dataflow.dataset.blocks import Blocks, Sizes, StoredBlocks
from dataflow.dataset.mixture import Mixture
from dataflow.errors import StateError
from dataflow.pipeline.mixed_corpus import MixedCorpus
from dataflow.pipeline.plan import BatchRules
from dataflow.pipeline.working_set import usual_block_bytes
from dataflow.sampling.lanes import default_lanes
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.mixed_stream import MixedRules
from dataflow.sampling.ranks import lanes_held
from dataflow.sampling.state import StreamState
from dataflow.sampling.stream import StreamRules


class Corpus(Protocol):
    """The rows of a loader.

    Attributes:
        lanes: Number of lanes of the stream.
    """

    lanes: int

    @property
    def sizes(self) -> Sizes:
        """How large it is."""
        ...

    def blocks(self) -> Blocks:
        """What brings its blocks in one iteration."""
        ...

    def rules(self) -> StreamRules | MixedRules:
        """Its order."""
        ...

    def steps(self, given: int | None) -> int | None:
        """Steps that an epoch has, where a number was given, or has to be; else None: the epoch ends with the data.

        Raises:
            OptionError: There has to be one, and it is not known.
        """
        ...

    def lanes_held(self, batches: BatchRules) -> int:
        """Lanes that a rank has a block of."""
        ...

    def identity(self, slots: int) -> tuple[str, dict[str, Any] | None]:
        """The dataset, and the mixture, that a state is of that has delivered some slots."""
        ...

    def load(self, state: StreamState) -> None:
        """Become what a state is of.

        Raises:
            StateError: The state is of something else.
        """
        ...

    def renew(self, epoch: int) -> bool:
        """Take in what came later, where an epoch allows that; whether there was any."""
        ...


class StoredCorpus:
    """The rows of one dataset.

    Args:
        dataset: The dataset.
        lanes: Number of lanes; None leaves it to the dataset.
        shuffle: Whether the order is shuffled.
        seed: Seed of the order.
        grows: Whether epochs end with the data, so that shards which were added later join at the next one.
    """

    def __init__(self, dataset: Dataset, lanes: int | None, shuffle: bool, seed: int, *, grows: bool) -> None:
        self._dataset = dataset
        self._shuffle = shuffle
        self._seed = seed
        self._grows = grows
        # The shards that the current epoch has: fewer than the dataset's, where some were added since.
        self._manifest = dataset.manifest
        self._prefix_epoch = 0
        chosen = lanes or default_lanes(dataset.num_blocks, usual_block_bytes(self.sizes))
        self.lanes = chosen if shuffle else 1

    @property
    def sizes(self) -> Sizes:
        return self._manifest

    def blocks(self) -> Blocks:
        return StoredBlocks(self._manifest, self._dataset.source.uncounted())

    def rules(self) -> StreamRules:
        return StreamRules(BlockLayout.of(self._manifest.rows), self._seed, "", self.lanes, self._shuffle)

    def steps(self, given: int | None) -> int | None:
        return given

    def lanes_held(self, batches: BatchRules) -> int:
        return lanes_held(self.lanes, batches.ranks, batches.rank, batches.global_batch)

    def identity(self, slots: int) -> tuple[str, dict[str, Any] | None]:
        return self._manifest.fingerprint, None

    def load(self, state: StreamState) -> None:
        whole = self._dataset.manifest
        manifest = whole.prefix(state.dataset) if state.mixture is None else None
        if manifest is None:
            excluded = whole.num_excluded
            note = f" ({excluded:,} rows are excluded from it, perhaps since then)" if excluded else ""
            of = "a mixture" if state.mixture is not None else f"dataset {state.dataset}"
            raise StateError(
                f"the state is of {of}, {whole.url} is {self._manifest.fingerprint}{note}: open the dataset that the "
                "state was taken from"
            )
        self._manifest, self.lanes = manifest, state.lanes
        self._prefix_epoch = state.epoch

    def renew(self, epoch: int) -> bool:
        grown = self._manifest.num_shards < self._dataset.manifest.num_shards
        if not (grown and self._grows and epoch != self._prefix_epoch):
            return False
        self._manifest = self._dataset.manifest
        return True


def make_corpus(
    dataset: Dataset, lanes: int | None, shuffle: bool, seed: int, global_batch: int, *, grows: bool
) -> Corpus:
    """The rows of a dataset, which may be a mixture; arguments as those of the classes."""
    if isinstance(dataset, Mixture):
        return MixedCorpus(dataset, lanes, shuffle, seed, global_batch)
    return StoredCorpus(dataset, lanes, shuffle, seed, grows=grows)
