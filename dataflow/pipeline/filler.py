"""Filler: batches without a row of their own, for a rank whose lanes have ended before those of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dataflow.dataset.columns import ColumnViewer
from dataflow.dataset.dataset import Dataset
from dataflow.errors import FilterError
from dataflow.pipeline.assemble import BatchForm, collated, describe_items, finished, sample_ids
from dataflow.pipeline.clocks import StageClock
from dataflow.pipeline.deciding import Deciding
from dataflow.pipeline.lane_rows import Item, Working
from dataflow.pipeline.lane_stages import LanePlace
from dataflow.pipeline.plan import Ticket
from dataflow.sampling.cursor import Cursor
from dataflow.sampling.random import SampleKey


class Filler:
    """Fills batches with the first sample in stored order that the stages let through, marked as not valid.

    Any sample would do, but all ranks have to give batches of one shape, and a rank may never have had one.

    Args:
        dataset: The rows.
        deciding: The stages that decide which samples there are.
        form: What batches look like.
        seed: Seed of the random numbers.
        epoch: Epoch of the random numbers.
    """

    def __init__(self, dataset: Dataset, deciding: Deciding, form: BatchForm, seed: int, epoch: int) -> None:
        self._dataset = dataset
        self._deciding = deciding
        self._form = form
        self._seed = seed
        self._epoch = epoch
        self._found: Item | None = None

    def __call__(self, ticket: Ticket) -> Any:
        """The batch of a ticket whose lanes have nothing left."""
        if self._found is None:
            self._found = self._find()
        rows = len(ticket.slots)
        items = [self._found] * rows
        first_rows = self._dataset.manifest.first_rows
        batch = collated(self._form, [item.sample for item in items], [item.key for item in items])
        if isinstance(batch, dict):
            describe_items(batch, items, first_rows, packed=self._form.packs)
        ids = sample_ids([item.key for item in items], first_rows)
        return finished(self._form, batch, ids, ticket.slots, np.zeros(rows, np.bool_))

    def _find(self) -> Item:
        rows = _StoredRows(self._stored())
        items = self._deciding.open(rows, self._deciding.start, LanePlace(0, 1, self._seed, "", None))
        found = items.next(Working(StageClock(), StageClock()))
        if found is None:
            raise FilterError(f"{self._dataset.deciding} let no sample of the epoch through: check its condition")
        return found._replace(sample=self._form.transform(found.sample, found.key))

    def _stored(self) -> Iterator[Item]:
        dataset, manifest = self._dataset, self._dataset.manifest
        viewer = ColumnViewer(manifest.schema, dataset.columns)
        for block in range(manifest.num_blocks):
            batch = dataset.source.read(manifest, block)
            views = viewer(batch)
            for row in range(batch.num_rows):
                yield Item(*self._form.source.read(views, SampleKey(self._seed, "", self._epoch, block, row)))


class _StoredRows:
    """Rows in stored order."""

    def __init__(self, rows: Iterator[Item]) -> None:
        self._rows = rows
        self._taken = 0

    @property
    def cursor(self) -> Cursor:
        return self._taken

    def next(self, working: Working) -> Item | None:
        item = next(self._rows, None)
        self._taken += item is not None
        return item
