"""A pipeline cut short: batches go through its first stages and are dropped."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from dataflow.pipeline.assemble import Assembler, BatchForm, stored_rows
from dataflow.pipeline.clocks import StageClock
from dataflow.pipeline.plan import Ticket

__all__ = ["DecodeOnly", "FetchOnly", "ReadOnly", "decodes"]


class FetchOnly(Assembler):
    """Waits for the blocks of each batch."""

    def from_rows(self, ticket: Ticket, clock: StageClock, read_clock: StageClock) -> Any:
        """None, once the blocks are there."""
        with clock.waiting("starved"):
            for use in ticket.uses:
                use.block.wait()
        ticket.done["fetch"] = perf_counter()
        self._use(ticket, clock, read_clock)
        self._table.give_back(ticket.uses)
        ticket.uses = []

    def _use(self, ticket: Ticket, clock: StageClock, read_clock: StageClock) -> None:
        """Nothing here."""


class ReadOnly(FetchOnly):
    """Finds the columns of each batch in its blocks."""

    def _use(self, ticket: Ticket, clock: StageClock, read_clock: StageClock) -> None:
        for use in ticket.uses:
            use.block.columns(read_clock)
        ticket.done["read"] = perf_counter()


class DecodeOnly(ReadOnly):
    """Decodes the rows of each batch and runs the user's functions on them."""

    def _use(self, ticket: Ticket, clock: StageClock, read_clock: StageClock) -> None:
        super()._use(ticket, clock, read_clock)
        with clock.waiting("busy"):
            form, number = self._form, ticket.use_of_row
            columns = [use.block.columns(read_clock) for use in ticket.uses]
            keys = self._keys(ticket.blocks, stored_rows(ticket), ticket.epochs)
            if not (form.transform or form.collate):
                form.decoder.decode_rows(self._views(columns, form.decoder.stages), number, keys)
                return
            samples, keys = self._samples(columns, number, keys)
            if form.decoder.stages and form.collate is None:
                form.decoder.collate(samples, keys)


def decodes(form: BatchForm) -> bool:
    """Whether there is anything between reading rows and putting them into a batch."""
    return bool(form.transform or form.collate or form.decoder.stages)
