"""Where a stream stands: a small JSON-able value that says how much was delivered, never by whom."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dataflow.errors import StateError
from dataflow.sampling.cursor import depth
from dataflow.sampling.cursor_table import LaneCursor, from_table, to_table
from dataflow.sampling.lanes import delivered_items

_VERSION = 2
_NAMED_LANES = 8
# Bounds on what a state may ask for, before loops and memory follow it.
_MOST_LANES = 1 << 20
_MOST_COUNT = (1 << 62) + 1


@dataclass(frozen=True, slots=True)
class StreamState:
    """Position of a global stream, the same whatever ranks, batches and threads led to it.

    Attributes:
        dataset: Fingerprint of the dataset.
        pipeline: Fingerprint of lanes, shuffle and stages.
        seed: Seed of the order.
        lanes: Number of lanes.
        epoch: Epoch of slot 0.
        slots: Slots delivered since then, over all ranks.
        cursors: Lane -> cursor for a pipeline that drops samples, for the lanes that this rank knows; None where one
            row is one item, and `slots` says all.
        mixture: The sources of a mixture and the weights that they had, JSON-able; None for one dataset.
    """

    dataset: str
    pipeline: str
    seed: int
    lanes: int
    epoch: int
    slots: int
    cursors: Mapping[int, LaneCursor] | None = None
    mixture: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON-able form, in one canonical order."""
        state: dict[str, Any] = {
            "version": _VERSION,
            "dataset": self.dataset,
            "pipeline": self.pipeline,
            "seed": self.seed,
            "lanes": self.lanes,
            "epoch": self.epoch,
            "slots": self.slots,
        }
        if self.mixture is not None:
            state["mixture"] = dict(self.mixture)
        if self.cursors is not None:
            state["cursors"] = to_table(self.cursors, self.lanes, self.slots)
        return state

    @classmethod
    def from_dict(cls, state: Any) -> StreamState:
        """Read a state that may come from anywhere.

        Raises:
            StateError: it is not a state of this version, or its values cannot be.
        """
        if not isinstance(state, Mapping) or "version" not in state:
            raise StateError("this is not a state of a dataflow loader: pass what state_dict() returned")
        if state["version"] != _VERSION:
            raise StateError(f"the state has version {state['version']!r}, this release reads version {_VERSION}")
        try:
            texts = {name: state[name] for name in ("dataset", "pipeline")}
            numbers = {name: state[name] for name in ("seed", "lanes", "epoch", "slots")}
        except KeyError as error:
            raise StateError(f"the state is damaged ({error!r}): load one that state_dict() returned") from error
        if not all(isinstance(text, str) for text in texts.values()) or not all(
            type(number) is int for number in numbers.values()
        ):
            raise StateError("the state is damaged: a fingerprint is not text, or a count is not an integer")
        loaded = cls(**texts, **numbers)
        possible = (
            1 <= loaded.lanes <= _MOST_LANES and 0 <= loaded.slots < _MOST_COUNT and 0 <= loaded.epoch < _MOST_COUNT
        )
        if not possible:
            raise StateError(
                f"the state is damaged: {loaded.lanes} lanes, {loaded.slots} slots and epoch {loaded.epoch} cannot be"
            )
        if "mixture" in state:
            if not isinstance(state["mixture"], Mapping):
                raise StateError("the mixture of the state is damaged")
            loaded = replace(loaded, mixture=state["mixture"])
        if "cursors" not in state:
            return loaded
        try:
            return replace(loaded, cursors=from_table(state["cursors"], loaded.lanes, loaded.slots))
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"the cursors of the state are damaged: {error}") from error

    def check_belongs(self, *, lanes: int | None, pipeline: str, seed: int, described: str) -> None:
        """Raise unless the state is of this stream.

        Args:
            lanes: Number of lanes that was asked for; None takes that of the state.
            pipeline: Fingerprint of the pipeline with the lanes of the state.
            seed: Seed of the order.
            described: The pipeline in words.

        Raises:
            StateError: Names what differs.
        """
        if lanes is not None and self.lanes != lanes:
            raise StateError(f"the state has lanes={self.lanes}, this loader lanes={lanes}: leave out lanes=")
        if self.pipeline != pipeline:
            raise StateError(
                f"the state is of another pipeline than {described}: give the loader the shuffle=, end= and the stages "
                "(kinds, names, parameters, order) that it had"
            )
        if self.seed != seed:
            raise StateError(f"the state has seed={self.seed}, this loader seed={seed}: give the same")

    def check_complete(self, nesting: int | None = None) -> None:
        """Raise unless every lane's cursor is known and stands where the slots say.

        Args:
            nesting: How many stages nest in each cursor; None where that is not known.

        Raises:
            StateError: names the lanes; says to merge.
        """
        if self.cursors is None:
            return
        for lane, cursor in self.cursors.items():
            if nesting is not None and depth(cursor.upstream) != nesting:
                raise StateError(f"the state is damaged: the cursor of lane {lane} is not that of this pipeline")
        unknown = []
        for lane in range(self.lanes):
            delivered = delivered_items(lane, self.slots, self.lanes)
            cursor = self.cursors.get(lane, LaneCursor(0, 0))
            if cursor.items > delivered:
                raise StateError(
                    f"the state is damaged: lane {lane} gave {cursor.items} items, {self.slots} slots need {delivered}"
                )
            if cursor.items < delivered:
                unknown.append(lane)
        if unknown:
            shown = ", ".join(map(str, unknown[:_NAMED_LANES])) + (", ..." if len(unknown) > _NAMED_LANES else "")
            raise StateError(
                f"the state knows nothing of {len(unknown)} of {self.lanes} lanes ({shown}): it is that of one rank; "
                "pass the states of all ranks to dataflow.merge_states() and load what it returns"
            )


def merge_states(states: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the states that all ranks took after the same step into the one state of the stream.

    Args:
        states: What `state_dict()` returned on each rank, in any order.

    Returns:
        A state that loads on any number of ranks; byte-equal as JSON whatever ranks and batches produced it.

    Raises:
        StateError: the states are of different steps, datasets or pipelines, or a rank is missing.
    """
    loaded = [StreamState.from_dict(state) for state in states]
    if not loaded:
        raise StateError("there are no states to merge: pass the state_dict() of every rank")
    first = loaded[0]
    for number, other in enumerate(loaded):
        for name in ("dataset", "pipeline", "seed", "lanes", "epoch", "slots", "mixture"):
            ours, theirs = getattr(first, name), getattr(other, name)
            if ours != theirs:
                raise StateError(
                    f"states 0 and {number} differ in {name} ({ours!r} and {theirs!r}): "
                    "take them on all ranks after the same step"
                )
        if (first.cursors is None) != (other.cursors is None):
            raise StateError(f"states 0 and {number} are of different pipelines: only one has cursors")
    if first.cursors is None:
        return first.to_dict()
    cursors: dict[int, LaneCursor] = {}
    for state in loaded:
        for lane, cursor in (state.cursors or {}).items():
            # Two ranks may run the same lane; the one that is further has seen the other's items and more.
            if cursor.items > cursors.get(lane, LaneCursor(-1, 0)).items:
                cursors[lane] = cursor
    merged = replace(first, cursors=cursors)
    merged.check_complete()
    return merged.to_dict()


def pipeline_fingerprint(lanes: int, shuffle: bool, stages: Sequence[Sequence[Any]]) -> str:
    """Fingerprint of all that decides which items a pipeline gives: never of batches, ranks, threads or code.

    Args:
        lanes: Number of lanes.
        shuffle: Whether the order is shuffled.
        stages: For each stage its kind, name and parameters, JSON-able.
    """
    text = json.dumps([lanes, shuffle, stages], separators=(",", ":"), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
