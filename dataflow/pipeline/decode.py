"""Decode: what comes last in a pipeline is done with a batch at once, each column straight into one piece of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dataflow.dataset.codec import Companion, Encoded, Failure, undecodable
from dataflow.dataset.columns import BlockNumbers, BytesView
from dataflow.dataset.stages import Decode, Select, Stage
from dataflow.pipeline.bad_rows import BadRows
from dataflow.pipeline.collate import Batch, check_alike, collate
from dataflow.pipeline.column_decoder import column_decoder
from dataflow.pipeline.media_decoder import CompanionDecoder, RaggedDecoder
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
        decoder: "native", or "dali" for columns of images.
        device: Where batches are to be.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        rows: int,
        waiting: int,
        pin: bool,
        bad_rows: BadRows,
        decoder: str,
        device: torch.device | None,
    ) -> None:
        self._selected: tuple[str, ...] | None = None
        for stage in stages:
            if isinstance(stage, Select):
                self._selected = stage.columns
            elif isinstance(stage, Decode) and self._selected is not None:
                self._selected += tuple(stage.companions)
        self.stages = {
            stage.column: stage
            for stage in stages
            if isinstance(stage, Decode)
            and (self._selected is None or not {stage.column, *stage.companions}.isdisjoint(self._selected))
        }
        # One is the consumer's, and one is being made while it looks for the next.
        self.slabs: dict[str, Slabs] = {}
        self._decoders: dict[str, Any] = {}
        for column, stage in self.stages.items():
            if stage.ragged:
                self._decoders[column] = RaggedDecoder(stage.codec)
                continue
            for name, array in {column: Companion(stage.codec.shape, stage.codec.dtype), **stage.companions}.items():
                self.slabs[name] = Slabs(rows, array.shape, array.dtype, waiting + 2, pin)
            self._decoders[column] = (
                CompanionDecoder(stage, self.slabs)
                if stage.companions
                else column_decoder(stage.codec, self.slabs[column], rows, decoder, device)
            )
        self._bad_rows = bad_rows

    def selected(self, columns: Sequence[str]) -> Sequence[str]:
        """Which of these columns remain."""
        if self._selected is not None:
            return self._selected
        return [*columns, *(name for stage in self.stages.values() for name in stage.companions)]

    def decoders(self) -> dict[str, str]:
        """What decodes each column."""
        return {column: decoder.name() for column, decoder in self._decoders.items()}

    def collate(self, samples: Sequence[Sample], keys: Sequence[SampleKey]) -> Batch:
        """A batch of samples, decoded."""
        check_alike(samples)
        names = self.selected(tuple(samples[0]))
        made = {name for column, stage in self.stages.items() for name in (column, *stage.companions)}
        batch = collate([{name: sample[name] for name in names if name not in made} for sample in samples])
        for column in self.stages:
            batch |= self._decode_values(column, [sample[column] for sample in samples], keys)
        return {name: batch[name] for name in names}

    def decode_rows(
        self, views: Mapping[str, Sequence[BytesView]], number: BlockNumbers, wanted: Sequence[SampleKey]
    ) -> tuple[Batch, list[SampleKey]]:
        """The decoded columns of a batch of stored rows, without a copy on the way.

        Args:
            views: For each column its views.
            number: For each row of the batch, which of the views it is in.
            wanted: The rows.

        Returns:
            The columns, and the rows that they are of: others where wanted ones do not decode.

        Raises:
            CorruptDataError: A row does not decode, and is not to be replaced.
        """
        out: dict[str, Any] = {}
        keys = list(wanted)
        left: Sequence[int] = range(len(keys))
        while left:
            bad: dict[int, tuple[str, str]] = {}
            for column in self.stages:
                for position, reason in self._decode_views(column, views[column], number, keys, left, out):
                    bad.setdefault(position, (column, reason))
            left = sorted(bad)
            for position in left:
                keys[position] = self._bad_rows.replace(wanted[position], keys[position], *bad[position])
        columns: Batch = {}
        for column, made in out.items():
            columns |= _columns(column, made)
        return columns, keys

    def _decode_views(
        self,
        column: str,
        views: Sequence[BytesView],
        number: BlockNumbers,
        keys: Sequence[SampleKey],
        positions: Sequence[int],
        out: dict[str, Any],
    ) -> list[Failure]:
        """Decode the rows at some positions of a batch: at first all of them."""
        chosen = number[positions]
        rows = np.array([keys[position].row for position in positions], np.int64)
        encoded = Encoded([view.held_values for view in views], [view.held_offsets for view in views], chosen, rows)
        value_keys = [value_key(keys[position], column) for position in positions]
        decoder = self._decoders[column]
        if column in out:
            found = decoder.decode_again(encoded, value_keys, out[column], positions)
        else:
            out[column], found = decoder.decode(encoded, value_keys)
        failures = dict(found)
        if any(view.valid is not None for view in views):
            for at, (use, row) in enumerate(zip(chosen.tolist(), rows.tolist(), strict=True)):
                valid = views[use].valid
                if valid is not None and not valid[row]:
                    failures[at] = "is null"
        return [Failure(positions[at], reason) for at, reason in failures.items()]

    def _decode_values(self, column: str, values: Sequence[Any], keys: Sequence[SampleKey]) -> Batch:
        stage, describe = self.stages[column], self._bad_rows.describe
        for value, key in zip(values, keys, strict=True):
            if problem := stage.check_value(value):
                raise undecodable(describe(key), column, problem)
        value_keys = [value_key(key, column) for key in keys]
        out, failures = self._decoders[column].decode(Encoded.of_values(values), value_keys)
        for position, reason in failures:
            raise undecodable(describe(keys[position]), column, reason)
        return _columns(column, out)


def _columns(column: str, made: Any) -> Batch:
    """What a decoder made of a column: several where others come beside it."""
    return made if isinstance(made, dict) else {column: made}
