"""Filler: batches without a row of their own, for a rank whose lanes have ended before those of others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dataflow.dataset.columns import ColumnViewer
from dataflow.dataset.dataset import Dataset
from dataflow.errors import FilterError
from dataflow.pipeline.assemble import BatchForm, collated, finished
from dataflow.pipeline.plan import Ticket
from dataflow.pipeline.transform import DROPPED, Sample, Transform
from dataflow.sampling.random import SampleKey


class _Found(NamedTuple):
    sample: Sample
    key: SampleKey


class Filler:
    """Fills batches with the first sample in stored order that the stages let through, marked as not valid.

    Any sample would do, but all ranks have to give batches of one shape, and a rank may never have had one.

    Args:
        dataset: The rows.
        deciding: What is done with each up to the last filter.
        form: What batches look like.
        seed: Seed of the random numbers.
        epoch: Epoch of the random numbers.
    """

    def __init__(self, dataset: Dataset, deciding: Transform, form: BatchForm, seed: int, epoch: int) -> None:
        self._dataset = dataset
        self._deciding = deciding
        self._form = form
        self._seed = seed
        self._epoch = epoch
        self._found: _Found | None = None

    def __call__(self, ticket: Ticket) -> Any:
        """The batch of a ticket whose lanes have nothing left."""
        if self._found is None:
            self._found = self._find()
        rows = len(ticket.slots)
        sample, key = self._found
        batch = collated(self._form, [sample] * rows, [key] * rows)
        ids = np.full(rows, self._dataset.manifest.first_rows[key.block] + key.row, np.int64)
        return finished(self._form, batch, ids, ticket.slots, np.zeros(rows, np.bool_))

    def _find(self) -> _Found:
        dataset, manifest = self._dataset, self._dataset.manifest
        viewer = ColumnViewer(manifest.schema, dataset.columns)
        for block in range(manifest.num_blocks):
            batch = dataset.source.read(manifest, block)
            views = viewer(batch)
            for row in range(batch.num_rows):
                sample, key = self._form.source.read(views, SampleKey(self._seed, "", self._epoch, block, row))
                made = self._deciding(sample, key)
                if made is not DROPPED:
                    return _Found(self._form.transform(made, key), key)
        raise FilterError(f"filter {dataset.filters} let no sample of the epoch through: check its condition")
