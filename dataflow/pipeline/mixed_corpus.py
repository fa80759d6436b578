"""The rows of a mixture: sources with lanes of their own, and weights that may change, also at a resume."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dataflow.dataset.blocks import MixedBlocks, Sizes
from dataflow.dataset.mixture import Mixture
from dataflow.errors import OptionError, StateError
from dataflow.pipeline.plan import BatchRules
from dataflow.pipeline.working_set import usual_block_bytes
from dataflow.sampling.keys import key
from dataflow.sampling.lanes import default_lanes
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.mixed_stream import MixedRules
from dataflow.sampling.mixture import Schedule, Segment, source_lanes
from dataflow.sampling.ranks import lanes_held
from dataflow.sampling.state import StreamState
from dataflow.sampling.stream import StreamRules

logger = logging.getLogger(__name__)

Weights = dict[str, Fraction]


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a source.

    Attributes:
        fingerprint: Of its data.
        lanes: Its lanes.
    """

    fingerprint: str
    lanes: int


class MixedCorpus:
    """The rows of a mixture.

    Args:
        mixture: The mixture.
        lanes: Number of lanes; None leaves it to the sources.
        shuffle: Whether the order is shuffled.
        seed: Seed of the order.
        global_batch: Slots of a step over all ranks, which weights change at.
    """

    def __init__(self, mixture: Mixture, lanes: int | None, shuffle: bool, seed: int, global_batch: int) -> None:
        self._mixture = mixture
        self._global_batch = global_batch
        self._shuffle = shuffle
        self._seed = seed
        self._blocks = mixture.blocks()
        chosen = lanes or default_lanes(mixture.num_blocks, usual_block_bytes(self._blocks))
        self.lanes = chosen if shuffle else 1
        # What was asked for; a state adds what was before it.
        self._planned = [(change.step * global_batch, change.weights) for change in mixture.changes]
        self._segments = self._planned
        self._known: dict[str, _Known] = {}
        self._learn(self.lanes)

    @property
    def sizes(self) -> Sizes:
        return self._blocks

    def blocks(self) -> MixedBlocks:
        return self._mixture.blocks()

    def rules(self) -> MixedRules:
        names, given = list(self._known), self._mixture.sources
        return MixedRules(
            self.schedule(),
            own=[known.lanes for known in self._known.values()],
            sources=[self._source(name) if name in given else None for name in names],
            given=[names.index(name) for name in given],
            firsts=self._blocks.firsts[:-1],
            seed=self._seed,
        )

    def _source(self, name: str) -> StreamRules:
        layout = BlockLayout.of(self._mixture.sources[name].manifest.rows)
        return StreamRules(layout, self._seed, name, self._known[name].lanes, self._shuffle)

    def schedule(self) -> Schedule:
        """Which source each slot draws from; sources are numbered as they became known."""
        segments = [
            Segment(slot, tuple(weights.get(name, Fraction(0)) for name in self._known))
            for slot, weights in self._segments
        ]
        return Schedule(self.lanes, segments, key(self._seed, "mixture"))

    def steps(self, given: int | None) -> int | None:
        if given is not None:
            return given
        slots = self._epoch_slots()
        if slots is None:
            raise OptionError(
                "a mixture has no end: give steps_per_epoch= for training, or until='all' or 'first' to dataflow.mix()"
            )
        if slots < self._global_batch:
            raise OptionError(
                f"an epoch of the mixture has {slots} samples, and a step takes {self._global_batch}: give a smaller "
                "batch_size=, or steps_per_epoch="
            )
        return slots // self._global_batch

    def _epoch_slots(self) -> int | None:
        """Slots until each source, or the first, has given as many samples as it has rows; None if nothing was said."""
        mixture, schedule, names = self._mixture, self.schedule(), list(self._known)
        rows = {names.index(name): dataset.num_rows for name, dataset in mixture.sources.items()}
        if mixture.until == "first":
            reached = [number for number in rows if schedule.segments[-1].weights[number]]
            return min(schedule.first_beyond(number, rows[number]) for number in reached)
        if mixture.until == "all":
            return max(schedule.first_beyond(number, count - 1) + 1 for number, count in rows.items())
        return None

    def lanes_held(self, batches: BatchRules) -> int:
        """Lanes of all sources that a rank has a block of."""
        # Where ranks do not divide the lanes of a source, other lanes of the mixture draw from the same one.
        ranks, rank, batch = batches.ranks, batches.rank, batches.global_batch
        of_mixture = lanes_held(self.lanes, ranks, rank, batch)
        return sum(min(known.lanes, of_mixture) for known in self._known.values())

    def identity(self, slots: int) -> tuple[str, dict[str, Any] | None]:
        passed = [(slot, weights) for slot, weights in self._segments if slot == 0 or slot < slots]
        sources = {name: [known.fingerprint, known.lanes] for name, known in self._known.items()}
        segments = [[slot, {name: str(weight) for name, weight in weights.items()}] for slot, weights in passed]
        return "mixture", {"sources": sources, "segments": segments}

    def load(self, state: StreamState) -> None:
        if state.mixture is None:
            raise StateError(f"the state is of dataset {state.dataset}, not of a mixture: open that dataset")
        known, passed = _read(state.mixture)
        for name, dataset in self._mixture.sources.items():
            if name in known and known[name].fingerprint != dataset.fingerprint:
                raise StateError(
                    f"the state is of source {name!r} with data {known[name].fingerprint}, {dataset.url} is "
                    f"{dataset.fingerprint}: open the dataset that it had, or give this one another name"
                )
        self.lanes = state.lanes
        _, weights = [one for one in self._planned if one[0] <= state.slots][-1]
        if _shares(weights) != _shares(passed[-1][1]):
            _tell_change(passed[-1][1], weights, state.slots)
            # Weights that no slot was drawn with are not passed.
            passed = [*(one for one in passed if one[0] < state.slots), (state.slots, weights)]
        self._segments = passed + [one for one in self._planned if one[0] > state.slots]
        self._known = known
        self._learn(state.lanes)

    def renew(self, epoch: int) -> bool:
        return False

    def _learn(self, lanes: int) -> None:
        """Give lanes to the sources that have none yet, by the greatest share that they ever have."""
        for name, dataset in self._mixture.sources.items():
            if name in self._known:
                continue
            shares = [_shares(weights).get(name, Fraction(0)) for _, weights in self._segments]
            own = source_lanes(lanes, max(shares), dataset.num_blocks) if self._shuffle else 1
            self._known[name] = _Known(dataset.fingerprint, own)


def _shares(weights: Weights) -> Weights:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items() if weight}


def _tell_change(before: Weights, after: Weights, slots: int) -> None:
    old, new = _shares(before), _shares(after)
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            logger.warning(
                "from slot %d on, source %r has a share of %.4g of the mixture, not of %.4g",
                slots,
                name,
                float(new.get(name, 0)),
                float(old.get(name, 0)),
            )


def _read(mixture: Mapping[str, Any]) -> tuple[dict[str, _Known], list[tuple[int, Weights]]]:
    """The sources and passed segments of a state, which may come from anywhere."""
    try:
        known = {name: _Known(fingerprint, lanes) for name, (fingerprint, lanes) in mixture["sources"].items()}
        segments = [
            (slot, {name: Fraction(weight) for name, weight in weights.items()})
            for slot, weights in mixture["segments"]
        ]
        slots = [slot for slot, _ in segments]
        possible = (
            all(type(one.lanes) is int and one.lanes > 0 and type(one.fingerprint) is str for one in known.values())
            and all(type(slot) is int for slot in slots)
            and slots[0] == 0
            and slots == sorted(set(slots))
            and all(set(weights) <= set(known) and sum(weights.values()) > 0 for _, weights in segments)
            and all(weight >= 0 for _, weights in segments for weight in weights.values())
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        raise StateError(f"the mixture of the state is damaged: {error!r}") from error
    if not possible:
        raise StateError("the mixture of the state is damaged: its sources or weights cannot be")
    return known, segments
