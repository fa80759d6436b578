"""Decode: what comes last in a pipeline is done with a batch at once, each column straight into one piece of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from dataflow.dataset.block import describe_row
from dataflow.dataset.block_source import BlockSource
from dataflow.dataset.codec import Encoded, undecodable
from dataflow.dataset.columns import BytesView
from dataflow.dataset.manifest import Manifest
from dataflow.dataset.stages import Decode, Select, Stage
from dataflow.errors import DataflowError
from dataflow.pipeline.collate import Batch, check_alike, collate
from dataflow.pipeline.slabs import Slabs
from dataflow.pipeline.transform import Sample
from dataflow.sampling.layout import Integers
from dataflow.sampling.random import SampleKey, value_key

RowNames = Callable[[SampleKey], str]


def row_names(manifest: Manifest, source: BlockSource) -> RowNames:
    """What names samples in messages, with their keys where the dataset has a column `key`."""

    def describe(sample: SampleKey) -> str:
        key = None
        if "key" in manifest.schema.names:
            with suppress(DataflowError):  # the row's number has to do then
                key = source.read(manifest, sample.block).column("key")[sample.row].as_py()
        return describe_row(manifest, sample.block, sample.row, key)

    return describe


def split_at_last_call(stages: tuple[Stage, ...]) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """The stages up to the last that calls a function of the user, and those after it, which a batch can go through."""
    cut = max((n + 1 for n, stage in enumerate(stages) if not isinstance(stage, (Decode, Select))), default=0)
    return stages[:cut], stages[cut:]


class BatchDecoder:
    """The stages of a pipeline that select and decode columns of whole batches; used by many threads at once.

    Args:
        stages: Only `Select` and `Decode`.
        rows: Most rows of a batch.
        waiting: Most batches that wait for the consumer.
        pin: Whether decoded columns are page-locked.
        describe: Names a sample in messages.
    """

    def __init__(self, stages: Sequence[Stage], rows: int, waiting: int, pin: bool, describe: RowNames) -> None:
        selected = [stage.columns for stage in stages if isinstance(stage, Select)]
        self._selected = selected[-1] if selected else None
        self.stages = {
            stage.column: stage
            for stage in stages
            if isinstance(stage, Decode) and (self._selected is None or stage.column in self._selected)
        }
        # One is the consumer's, and one is being made while it looks for the next.
        self.slabs = {
            column: Slabs(rows, stage.codec.shape, stage.codec.dtype, waiting + 2, pin)
            for column, stage in self.stages.items()
        }
        self._describe = describe

    def selected(self, columns: Sequence[str]) -> Sequence[str]:
        """Which of these columns remain."""
        return columns if self._selected is None else self._selected

    def collate(self, samples: Sequence[Sample], keys: Sequence[SampleKey]) -> Batch:
        """A batch of samples, decoded."""
        check_alike(samples)
        if self._selected is not None:
            samples = [{column: sample[column] for column in self._selected} for sample in samples]
        if not self.stages:
            return collate(samples)
        others = [{name: sample[name] for name in sample if name not in self.stages} for sample in samples]
        batch = collate(others)
        for column in self.stages:
            batch[column] = self._decode_values(column, [sample[column] for sample in samples], keys)
        return {name: batch[name] for name in samples[0]}

    def decode_views(
        self, column: str, views: Sequence[BytesView], row: Integers, keys: Sequence[SampleKey]
    ) -> torch.Tensor:
        """A column of a batch: row i comes from views[i], without a copy on the way."""
        for view, stored, key in zip(views, row.tolist(), keys, strict=True):
            if view.valid is not None and not view.valid[stored]:
                raise undecodable(self._describe(key), column, "is null")
        values, offsets = [view.held_values for view in views], [view.held_offsets for view in views]
        return self._decode(column, Encoded(values, offsets, np.arange(len(row), dtype=np.int32), row), keys)

    def _decode_values(self, column: str, values: Sequence[Any], keys: Sequence[SampleKey]) -> torch.Tensor:
        for value, key in zip(values, keys, strict=True):
            if problem := self.stages[column].check_value(value):
                raise undecodable(self._describe(key), column, problem)
        return self._decode(column, Encoded.of_values(values), keys)

    def _decode(self, column: str, encoded: Encoded, keys: Sequence[SampleKey]) -> torch.Tensor:
        out = self.slabs[column].take(len(keys))
        value_keys = [value_key(key, column) for key in keys]
        failures = self.stages[column].codec.decode_batch(encoded, value_keys, out.numpy())
        if failures:
            position, reason = failures[0]
            raise undecodable(self._describe(keys[position]), column, reason)
        return out
