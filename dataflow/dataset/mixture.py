"""A mixture of datasets: each sample is drawn from one of them, by weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa

from dataflow.dataset.blocks import MixedBlocks, StoredBlocks
from dataflow.dataset.dataset import Dataset
from dataflow.dataset.stages import Select, Stage
from dataflow.errors import OptionError

__all__ = ["Mixture", "mix"]

_UNTIL = ("all", "first", None)
Weights = Mapping[str, float | Fraction]


class Change(NamedTuple):
    """Weights from a step on, by the names of the sources."""

    step: int
    weights: dict[str, Fraction]


def mix(
    sources: Mapping[str, Dataset | tuple[Dataset, float]],
    *,
    temperature: float | None = None,
    until: str | None = None,
    schedule: Sequence[tuple[int, Weights]] = (),
) -> Mixture:
    """Draws each sample from one of several datasets.

    The shares of the sources stay near their weights at every length: within 12 samples of any 10,000. Each source has
    its own order and its own epochs, which do not depend on the others. Batches have `source_id`, the number of each
    sample's source in the order given here; `sample_id` counts within that source.

    Args:
        sources: By name, each a dataset with its weight, or all of them datasets alone, with `temperature`. They may
            `select` columns; the columns that all have are those of the mixture. A mixture among them brings its
            sources, as "name/source", with their shares of its weight.
        temperature: Weights are sizes in rows to the power of 1 / temperature: 1 for shares by size, larger ones for
            shares that are more alike. Default: 1.
        until: What an epoch is: "all" goes on until each source has given as many samples as it has rows, "first" until
            one has. None has no end: give `steps_per_epoch=` to the loader.
        schedule: Weights from certain steps on, as in [(10_000, {"web": 0.5, "code": 0.5})]; sources that are not named
            have weight 0 then.

    Raises:
        OptionError: An argument makes no sense, or the sources have no column in common.
    """
    if not sources:
        raise OptionError("mix() has no sources: give at least one, as in mix({'web': (dataset, 0.7), ...})")
    if until not in _UNTIL:
        raise OptionError(f"mix(until={until!r}): choose 'all', 'first' or None")
    datasets: dict[str, Dataset] = {}
    given: dict[str, float | Fraction] = {}
    for name, source in _flattened(sources):
        dataset, weight = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
        if not isinstance(name, str) or not name or not isinstance(dataset, Dataset):
            raise OptionError(f"source {name!r} is {source!r}: give datasets from dataflow.open(), by names")
        if any(not isinstance(stage, Select) for stage in dataset.stages):
            raise OptionError(
                f"source {name!r} has other stages than select(): put map() and decode() upon the mixture, which has "
                "`source_id` to tell sources apart"
            )
        if dataset.num_rows == 0:
            raise OptionError(f"source {name!r} has no rows: leave it out")
        datasets[name] = dataset
        if weight is not None:
            given[name] = weight
    if given and (len(given) < len(datasets) or temperature is not None):
        raise OptionError("mix() takes a weight for each source, or temperature=, not some of both")
    if not given:
        power = _positive("temperature", 1.0 if temperature is None else temperature)
        given = {name: float(dataset.num_rows) ** (1 / power) for name, dataset in datasets.items()}
    changes = [Change(0, _fractions(given, datasets))]
    for step, weights in schedule:
        if type(step) is not int or step <= changes[-1].step:
            raise OptionError(f"mix(schedule=): step {step!r} does not come after {changes[-1].step}")
        changes.append(Change(step, _fractions(weights, datasets)))
    return Mixture(datasets, tuple(changes), until)


def _flattened(sources: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The sources, with those of a mixture in its place."""
    for name, source in sources.items():
        inner, weight = source if isinstance(source, tuple) and len(source) == 2 else (source, None)
        if not isinstance(inner, Mixture):
            yield name, source
            continue
        if inner.stages or inner.until is not None or len(inner.changes) > 1:
            raise OptionError(
                f"the mixture {name!r} has stages, until= or schedule= of its own: give them to the outer one"
            )
        if weight is None:
            raise OptionError(f"the mixture {name!r} has no size: give it a weight")
        whole = _fractions({name: weight}, {name: inner})[name]
        shares = inner.changes[0].weights
        total = sum(shares.values())
        for part, dataset in inner.sources.items():
            yield f"{name}/{part}", (dataset, whole * shares.get(part, Fraction(0)) / total)


class Mixture(Dataset):
    """What `mix` returns: a dataset whose order is drawn from those of its sources.

    Args:
        sources: By name.
        changes: Their weights; the first ones from step 0 on.
        until: What an epoch is.
        stages: What is done with each sample.
    """

    def __init__(
        self,
        sources: Mapping[str, Dataset],
        changes: tuple[Change, ...],
        until: str | None,
        stages: tuple[Stage, ...] = (),
    ) -> None:
        self.sources = dict(sources)
        self.changes = changes
        self.until = until
        self.stages = stages
        self._schema = _common_schema(self.sources)

    def __reduce__(self) -> tuple[Any, ...]:
        return Mixture, (self.sources, self.changes, self.until, self.stages)

    @property
    def url(self) -> str:
        """The sources' URLs, for messages."""
        return " + ".join(dataset.url for dataset in self.sources.values())

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns that all sources have."""
        return self._schema

    @property
    def num_rows(self) -> int:
        """Rows of all sources."""
        return sum(dataset.num_rows for dataset in self.sources.values())

    @property
    def num_blocks(self) -> int:
        """Blocks of all sources."""
        return sum(dataset.num_blocks for dataset in self.sources.values())

    @property
    def fingerprint(self) -> str:
        """Those of the sources, by name."""
        return " ".join(f"{name}={dataset.fingerprint}" for name, dataset in self.sources.items())

    @property
    def concurrency(self) -> int:
        """How many reads in flight keep the stores busy."""
        return max(dataset.concurrency for dataset in self.sources.values())

    def blocks(self) -> MixedBlocks:
        """The blocks of all sources, in their order."""
        parts = [
            (name, StoredBlocks(dataset.manifest, dataset.source.uncounted())) for name, dataset in self.sources.items()
        ]
        return MixedBlocks(parts, self._schema)

    def _with(self, stage: Stage) -> Mixture:
        mixture = Mixture(self.sources, self.changes, self.until, (*self.stages, stage))
        if not mixture.one_to_one:
            raise OptionError(f"{mixture.deciding} cannot stand upon a mixture, whose weights count samples")
        return mixture

    def _check_countable(self, problem: str) -> None:
        raise TypeError(f"a mixture {problem}: samples are drawn from its sources; ask those")


def _fractions(weights: Weights, sources: Mapping[str, Dataset]) -> dict[str, Fraction]:
    for name, weight in weights.items():
        if name not in sources:
            raise OptionError(f"weights name the source {name!r}, there are {', '.join(sources)}")
        if isinstance(weight, bool) or not isinstance(weight, (int, float, Fraction)) or not 0 <= weight < float("inf"):
            raise OptionError(f"the weight of source {name!r} is {weight!r}: give a number from 0 on")
    if not any(weights.values()):
        raise OptionError("all weights are 0: give some source more")
    # Through text, so that 0.1 is a tenth.
    return {name: Fraction(repr(weight) if isinstance(weight, float) else weight) for name, weight in weights.items()}


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise OptionError(f"mix({name}={value!r}): give a positive number")
    return float(value)


def _common_schema(sources: Mapping[str, Dataset]) -> pa.Schema:
    schemas = {name: dataset.schema for name, dataset in sources.items()}
    first = next(iter(schemas.values()))
    assert first is not None
    fields = []
    for field in first:
        if all(schema is not None and field.name in schema.names for schema in schemas.values()):
            for name, schema in schemas.items():
                assert schema is not None
                if schema.field(field.name).type != field.type:
                    raise OptionError(
                        f"column {field.name!r} holds {field.type} in source {next(iter(schemas))!r}, and "
                        f"{schema.field(field.name).type} in {name!r}: select() other columns, or store them alike"
                    )
            fields.append(field)
    if not fields:
        raise OptionError(f"the sources {', '.join(sources)} have no column in common")
    return pa.schema(fields)
