"""Transform: the user's functions on one sample, with random numbers that belong to the sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from dataflow.dataset.codec import undecodable
from dataflow.dataset.stages import Decode, Filter, Map, Select, Stage
from dataflow.errors import CorruptDataError
from dataflow.sampling.random import SampleKey, sample_generator, value_key

Sample = dict[str, Any]

# What a transform gives for a sample that a filter drops. Not None: a map() may return that by mistake.
DROPPED: Any = object()


class Transform:
    """A run of stages.

    Args:
        stages: What to do with a sample, in order.
        describe: Names a sample in messages.
        first: Number of the first of these stages in the whole pipeline: each stage has random numbers of its own.
    """

    def __init__(self, stages: Sequence[Stage], describe: Callable[[SampleKey], str], first: int = 0) -> None:
        self._stages = tuple(enumerate(stages, first))
        self._describe = describe

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._stages)

    def __call__(self, sample: Sample, key: SampleKey) -> Any:
        """What the stages make of this sample; DROPPED if a filter drops it.

        An error in a stage goes on as it is, with a note that names the stage and the sample.
        """
        for number, stage in self._stages:
            if isinstance(stage, Select):
                sample = {column: sample[column] for column in stage.columns}
                continue
            if isinstance(stage, Decode):
                sample = {**sample, stage.column: self._decoded(stage, sample[stage.column], key)}
                continue
            try:
                value = stage.fn(sample, sample_generator(key, number)) if stage.takes_rng else stage.fn(sample)
            except Exception as error:
                kind = type(stage).__name__.lower()
                error.add_note(f"in {kind} {stage.name!r}, on row {key.row} of block {key.block} in epoch {key.epoch}")
                raise
            if isinstance(stage, Map):
                sample = value
            elif isinstance(stage, Filter) and not value:
                return DROPPED
        return sample

    def _decoded(self, stage: Decode, value: Any, key: SampleKey) -> NDArray[Any]:
        try:
            return stage.decode(value, value_key(key, stage.column))
        except CorruptDataError as error:
            raise undecodable(self._describe(key), stage.column, str(error)) from error


def split_at_last_filter(
    stages: Sequence[Stage], describe: Callable[[SampleKey], str], first: int
) -> tuple[Transform, Transform]:
    """The stages that decide which samples there are, and those after them, which can run out of a lane's turn."""
    cut = max((number + 1 for number, stage in enumerate(stages) if isinstance(stage, Filter)), default=0)
    return Transform(stages[:cut], describe, first), Transform(stages[cut:], describe, first + cut)
