"""Decode: what comes last in a pipeline is done with a batch at once, each column straight into one piece of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dataflow.dataset.codec import Encoded, Failure, undecodable
from dataflow.dataset.columns import BytesView
from dataflow.dataset.stages import Decode, Select, Stage
from dataflow.pipeline.bad_rows import BadRows
from dataflow.pipeline.collate import Batch, check_alike, collate
from dataflow.pipeline.slabs import Slabs
from dataflow.pipeline.transform import Sample
from dataflow.sampling.random import SampleKey, value_key


class BatchDecoder:
    """The stages of a pipeline that select and decode columns of whole batches; used by many threads at once.

    Args:
        stages: Only `Select` and `Decode`.
        rows: Most rows of a batch.
        waiting: Most batches that wait for the consumer.
        pin: Whether decoded columns are page-locked.
        bad_rows: What is done with rows that do not decode.
    """

    def __init__(self, stages: Sequence[Stage], rows: int, waiting: int, pin: bool, bad_rows: BadRows) -> None:
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
        self._bad_rows = bad_rows

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

    def decode_rows(
        self, views: Mapping[str, Sequence[BytesView]], wanted: Sequence[SampleKey]
    ) -> tuple[dict[str, torch.Tensor], list[SampleKey]]:
        """The decoded columns of a batch of stored rows, without a copy on the way.

        Args:
            views: For each column its views, one for each row of the batch.
            wanted: The rows.

        Returns:
            The columns, and the rows that they are of: others where wanted ones do not decode.

        Raises:
            CorruptDataError: A row does not decode, and is not to be replaced.
        """
        out = {column: self.slabs[column].take(len(wanted)) for column in self.stages}
        keys = list(wanted)
        left: Sequence[int] = range(len(keys))
        while left:
            bad: dict[int, tuple[str, str]] = {}
            for column in self.stages:
                for position, reason in self._decode_views(column, views[column], keys, left, out[column].numpy()):
                    bad.setdefault(position, (column, reason))
            left = sorted(bad)
            for position in left:
                keys[position] = self._bad_rows.replace(wanted[position], keys[position], *bad[position])
        return out, keys

    def _decode_views(
        self,
        column: str,
        views: Sequence[BytesView],
        keys: Sequence[SampleKey],
        positions: Sequence[int],
        out: NDArray[Any],
    ) -> list[Failure]:
        """Decode the rows at some positions of a batch."""
        chosen = [views[position] for position in positions]
        rows = np.array([keys[position].row for position in positions], np.int64)
        number = np.arange(len(rows), dtype=np.int32)
        encoded = Encoded([view.held_values for view in chosen], [view.held_offsets for view in chosen], number, rows)
        whole = len(positions) == len(keys)
        target = out if whole else np.empty((len(rows), *out.shape[1:]), out.dtype)
        value_keys = [value_key(keys[position], column) for position in positions]
        failures = dict(self.stages[column].codec.decode_batch(encoded, value_keys, target))
        for at, (view, row) in enumerate(zip(chosen, rows.tolist(), strict=True)):
            if view.valid is not None and not view.valid[row]:
                failures[at] = "is null"
        if not whole:
            out[list(positions)] = target
        return [Failure(positions[at], reason) for at, reason in failures.items()]

    def _decode_values(self, column: str, values: Sequence[Any], keys: Sequence[SampleKey]) -> torch.Tensor:
        stage, describe = self.stages[column], self._bad_rows.describe
        for value, key in zip(values, keys, strict=True):
            if problem := stage.check_value(value):
                raise undecodable(describe(key), column, problem)
        out = self.slabs[column].take(len(keys))
        value_keys = [value_key(key, column) for key in keys]
        for position, reason in stage.codec.decode_batch(Encoded.of_values(values), value_keys, out.numpy()):
            raise undecodable(describe(keys[position]), column, reason)
        return out
