"""Transform: the user's functions on one sample, with random numbers that belong to the sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dataflow.dataset.codec import undecodable
from dataflow.dataset.expanding import FlatMap, Pack, Window
from dataflow.dataset.stages import Decode, Filter, Map, Select, Stage
from dataflow.errors import CorruptDataError
from dataflow.sampling.random import SampleKey, sample_generator, value_key

if TYPE_CHECKING:
    from dataflow.pipeline.processes import Processes

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
        self._processes = dict(_make_processes(self._stages))

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._stages)

    @property
    def filters(self) -> str:
        """Its filters, for messages."""
        names = [repr(stage.name) for _, stage in self._stages if isinstance(stage, Filter)]
        return f"filter {' and '.join(names)}"

    @property
    def processes(self) -> Sequence[Processes]:
        """Those that run stages; they start when they are first needed, and have to be stopped."""
        return tuple(self._processes.values())

    def __call__(self, sample: Sample, key: SampleKey) -> Any:
        """What the stages make of this sample; DROPPED if a filter drops it.

        An error in a stage goes on as it is, with a note that names the stage and the sample.
        """
        for number, stage in self._stages:
            sample = self._step(number, stage, sample, key)
            if sample is DROPPED:
                break
        return sample

    def batch(self, samples: Sequence[Sample], keys: Sequence[SampleKey]) -> list[Any]:
        """What the stages make of several samples, of which no filter drops any.

        Of several errors, that of the first sample is raised.
        """
        if not self._processes:
            return [self(sample, key) for sample, key in zip(samples, keys, strict=True)]
        made = list(samples)
        failure: BaseException | None = None
        for number, stage in self._stages:
            made, error = self._steps(number, stage, made, keys[: len(made)])
            # What fails in a later stage is a sample before those that failed so far: others are not there any more.
            failure = error or failure
        if failure is not None:
            raise failure
        return made

    def _steps(
        self, number: int, stage: Stage, samples: list[Sample], keys: Sequence[SampleKey]
    ) -> tuple[list[Any], BaseException | None]:
        """What one stage makes of several samples, up to the first error."""
        processes = self._processes.get(number)
        if processes is not None:
            made, failure = processes.run(samples, keys)
            if failure is None:
                return made, None
            assert isinstance(stage, Map)
            _note(failure.error, stage, keys[failure.at])
            return made, failure.error
        made = []
        for sample, key in zip(samples, keys, strict=True):
            try:
                made.append(self._step(number, stage, sample, key))
            except Exception as error:
                return made, error
        return made, None

    def _step(self, number: int, stage: Stage, sample: Sample, key: SampleKey) -> Any:
        """What one stage makes of a sample; DROPPED if it is a filter and drops it."""
        assert not isinstance(stage, (FlatMap, Window, Pack))
        if isinstance(stage, Select):
            return {column: sample[column] for column in stage.columns}
        if isinstance(stage, Decode):
            return {**sample, **self._decoded(stage, sample[stage.column], key)}
        if number in self._processes:
            made, error = self._steps(number, stage, [sample], [key])
            if error is not None:
                raise error
            return made[0]
        with noted(stage, key):
            value = stage.fn(sample, sample_generator(key, number)) if stage.takes_rng else stage.fn(sample)
        if isinstance(stage, Filter):
            return sample if value else DROPPED
        return value

    def _decoded(self, stage: Decode, value: Any, key: SampleKey) -> dict[str, NDArray[Any]]:
        try:
            return stage.decode(value, value_key(key, stage.column))
        except CorruptDataError as error:
            raise undecodable(self._describe(key), stage.column, str(error)) from error


@contextmanager
def noted(stage: Map | Filter | FlatMap, key: SampleKey) -> Iterator[None]:
    """An error inside goes on as it is, with a note that names the stage and the sample."""
    try:
        yield
    except Exception as error:
        _note(error, stage, key)
        raise


def _note(error: BaseException, stage: Map | Filter | FlatMap, key: SampleKey) -> None:
    part = f"part {'.'.join(map(str, key.parts))} of " if key.parts else ""
    error.add_note(
        f"in {stage.describe()[0]} {stage.name!r}, on {part}row {key.row} of block {key.block} in epoch {key.epoch}"
    )


def _make_processes(stages: Sequence[tuple[int, Stage]]) -> Iterator[tuple[int, Processes]]:
    for number, stage in stages:
        if isinstance(stage, Map) and stage.processes is not None:
            # What they need is not there in every installation, and is nothing that other loaders should wait for.
            from dataflow.pipeline.processes import Processes

            yield number, Processes(stage, number)
