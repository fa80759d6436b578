"""Assemble: a ticket to a batch, from blocks that may still be on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dataflow import _native
from dataflow.errors import DatasetError
from dataflow.pipeline.batch_layout import BatchLayout
from dataflow.pipeline.blocks import BlockTable, Columns, HeldBlock
from dataflow.pipeline.clocks import StageClock
from dataflow.pipeline.collate import Batch
from dataflow.pipeline.decode import BatchDecoder
from dataflow.pipeline.lane_rows import Item
from dataflow.pipeline.plan import Ticket
from dataflow.pipeline.source import Source
from dataflow.pipeline.transform import Sample, Transform
from dataflow.sampling.layout import Integers
from dataflow.sampling.mixed_stream import MixedStream
from dataflow.sampling.random import SampleKey
from dataflow.sampling.stream import Stream

# What identifies the rows of a batch, beside its columns.
RESERVED = ("sample_id", "slot", "valid")


@dataclass(frozen=True, slots=True)
class BatchForm:
    """What a batch looks like.

    Attributes:
        columns: Columns that are read.
        source: What makes samples of their rows, where samples are made.
        transform: Stages that each sample goes through after it was chosen.
        decoder: Stages that a whole batch goes through after those.
        layout: How columns are laid into the batch.
        collate: The user's function from samples to a batch, in place of ours.
        marks_valid: Whether batches carry `valid`.
        packs: Whether rows are packed documents.
        pin: Whether tensors go to page-locked memory.
    """

    columns: Sequence[str]
    source: Source
    transform: Transform
    decoder: BatchDecoder
    layout: BatchLayout
    collate: Callable[[list[Sample]], Any] | None
    marks_valid: bool
    packs: bool
    pin: bool


class Assembler:
    """Makes batches; used by many threads at once."""

    def __init__(self, form: BatchForm, stream: Stream | MixedStream, table: BlockTable, first_rows: Integers) -> None:
        self._form = form
        self._stream = stream
        self._table = table
        self._first_rows = first_rows

    def from_rows(self, ticket: Ticket, clock: StageClock, read_clock: StageClock) -> Any:
        """The batch of a ticket whose rows the planner found."""
        columns = self._columns(ticket, clock, read_clock)
        with clock.waiting("busy"):
            form, number, row = self._form, ticket.use_of_row, stored_rows(ticket)
            by_sample = bool(form.transform or form.collate)
            keys = self._keys(ticket.blocks, row, ticket.epochs) if by_sample or form.decoder.stages else []
            decoded: dict[str, Any] = {}
            if by_sample:
                samples, keys = self._samples(columns, number, keys)
            elif form.decoder.stages:
                decoded, keys = form.decoder.decode_rows(self._views(columns, form.decoder.stages), number, keys)
            if keys:
                row = np.array([key.row for key in keys], np.int64)
            batch = collated(form, samples, keys) if by_sample else self._gathered(columns, number, row, decoded)
            self._table.give_back(ticket.uses)
            ticket.uses = []
            sources = self._stream.source_ids(ticket.blocks)
            if sources is not None and isinstance(batch, dict):
                _add(batch, "source_id", torch.from_numpy(sources))
            valid = np.arange(len(row)) < ticket.own
            return finished(self._form, batch, self._first_rows[ticket.blocks] + row, ticket.slots, valid)

    def from_lanes(self, ticket: Ticket, clock: StageClock, read_clock: StageClock) -> Any:
        """The batch of a ticket whose lanes find its rows; None where none of them has one left."""
        started, starved = perf_counter(), clock.starved
        found: list[Item | None] = []
        for lane, before, item in ticket.demands:
            taken, ticket.cursors[lane.number] = lane.take(before, item, clock, read_clock)
            found.append(taken)
        # Lanes that only pass slots of other ranks come last.
        del found[len(ticket.slots) :]
        ticket.done["fetch"] = ticket.done["read"] = started + clock.starved - starved
        present = [item for item in found if item is not None]
        if not present:
            return None
        with clock.waiting("busy"):
            # Slots of lanes that have ended repeat the first row, so that all batches have one shape.
            items = [item or present[0] for item in found]
            made = self._form.transform.batch([item.sample for item in present], [item.key for item in present])
            samples = {id(item): sample for item, sample in zip(present, made, strict=True)}
            batch = collated(self._form, [samples[id(item)] for item in items], [item.key for item in items])
            if isinstance(batch, dict):
                describe_items(batch, items, self._first_rows, packed=self._form.packs)
            ids = sample_ids([item.key for item in items], self._first_rows)
            return finished(self._form, batch, ids, ticket.slots, np.array([item is not None for item in found]))

    def read(
        self, block: HeldBlock, key: SampleKey, clock: StageClock, read_clock: StageClock
    ) -> tuple[Sample, SampleKey]:
        """One row of a block as a sample, and the row that it is."""
        if not block.arrived:
            with clock.waiting("starved"):
                block.wait()
        return self._form.source.read(block.columns(read_clock), key)

    def _columns(self, ticket: Ticket, clock: StageClock, read_clock: StageClock) -> list[Columns]:
        """The columns of each use of a ticket, once its blocks are there."""
        late = [use.block for use in ticket.uses if not use.block.arrived]
        if late:
            with clock.waiting("starved"):
                for block in late:
                    block.wait()
        ticket.done["fetch"] = perf_counter()
        columns = [use.block.columns(read_clock) for use in ticket.uses]
        ticket.done["read"] = perf_counter()
        return columns

    def _keys(self, block: Integers, row: Integers, epochs: Integers) -> list[SampleKey]:
        places = zip(epochs.tolist(), block.tolist(), row.tolist(), strict=True)
        return [self._stream.key(*place) for place in places]

    def _samples(
        self, columns: Sequence[Columns], number: NDArray[np.int32], keys: Sequence[SampleKey]
    ) -> tuple[list[Sample], list[SampleKey]]:
        source = self._form.source
        read = [source.read(columns[use], key) for use, key in zip(number.tolist(), keys, strict=True)]
        keys = [key for _, key in read]
        return self._form.transform.batch([sample for sample, _ in read], keys), keys

    def _views(self, columns: Sequence[Columns], names: Iterable[str]) -> dict[str, list[Any]]:
        places = {name: self._form.columns.index(name) for name in names}
        return {name: [views[at] for views in columns] for name, at in places.items()}

    def _gathered(
        self, columns: Sequence[Columns], number: NDArray[np.int32], row: Integers, decoded: Mapping[str, Any]
    ) -> Batch:
        """The columns of a batch; row i comes from columns[number[i]]."""
        batch: Batch = {}
        names = self._form.decoder.selected(self._form.columns)
        stored = self._views(columns, [name for name in names if name not in decoded])
        for column in names:
            if column in decoded:
                batch |= self._form.layout.arrange(column, decoded[column])
            else:
                batch |= self._form.layout.gather(column, stored[column], number, row)
        return batch


def sample_ids(keys: Sequence[SampleKey], first_rows: Integers) -> Integers:
    """The rows of samples within the dataset, int64."""
    blocks, rows = (np.array([getattr(key, name) for key in keys], np.int64) for name in ("block", "row"))
    return first_rows[blocks] + rows


def describe_items(batch: dict[str, Any], items: Sequence[Item], first_rows: Integers, *, packed: bool) -> None:
    """Add to a batch which parts of rows its samples are, and for packed rows what attention takes.

    `parts` is int64[rows, stages]; `sample_ids` a list of int64[documents]; `cu_seqlens` int32, over all rows laid end
    to end.
    """
    if items[0].key.parts:
        _add(batch, "parts", torch.tensor([item.key.parts for item in items]))
    if not packed:
        return
    _add(batch, "sample_ids", [torch.from_numpy(sample_ids(item.documents, first_rows)) for item in items])
    if "cu_seqlens" in batch:  # unless a function of the user has left it out
        rows, length = batch["cu_seqlens"], int(batch["cu_seqlens"][0][-1])
        ends = [row[1:] + number * length for number, row in enumerate(rows)]
        batch["cu_seqlens"] = torch.cat([rows[0][:1], *ends])
        _add(batch, "max_seqlen", int(batch["cu_seqlens"].diff().max()))


def _add(batch: dict[str, Any], name: str, value: Any) -> None:
    _check_free(batch, name)
    batch[name] = value


def _check_free(batch: dict[str, Any], name: str) -> None:
    if name in batch:
        raise DatasetError(f"batches have a {name!r} of their own: let map() and collate_fn use another name")


def stored_rows(ticket: Ticket) -> Integers:
    """The rows of a ticket within their blocks, int64[rows]."""
    rows = np.empty(len(ticket.offsets), np.int64)
    _native.gather_fixed([use.held_order for use in ticket.uses], 1, ticket.use_of_row, ticket.offsets, rows)
    return rows


def collated(form: BatchForm, samples: list[Sample], keys: Sequence[SampleKey]) -> Any:
    """A batch of samples, by the user's function or ours."""
    if form.collate is not None:
        return form.collate(samples)
    return form.layout.arrange_all(form.decoder.collate(samples, keys))


def finished(form: BatchForm, batch: Any, ids: Integers, slots: Integers, valid: NDArray[np.bool_]) -> Any:
    """The batch with what identifies its rows, where it is a dict."""
    if isinstance(batch, dict):
        for name in RESERVED:
            _check_free(batch, name)
        batch["sample_id"] = torch.from_numpy(ids)
        batch["slot"] = torch.from_numpy(slots)
        if form.marks_valid:
            batch["valid"] = torch.from_numpy(valid)
    if not form.pin:
        return batch
    pin: Callable[[Any], Any] = torch.utils.data._utils.pin_memory.pin_memory
    if form.collate is not None:
        return pin(batch)
    # DALI makes columns on a GPU.
    there = {name for name, column in batch.items() if isinstance(column, torch.Tensor) and column.is_cuda}
    return {name: column if name in there else pin(column) for name, column in batch.items()}
