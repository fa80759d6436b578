"""Packed: documents of a lane put together into rows of one length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dataflow.dataset.expanding import Pack
from dataflow.errors import DataflowError
from dataflow.pipeline.documents import IGNORED, Document, PackCounts, pieces, read_document
from dataflow.pipeline.lane_rows import Item, Items, Working
from dataflow.pipeline.lane_stages import Group, Grouped, LanePlace
from dataflow.sampling.cursor import Cursor
from dataflow.sampling.packing import best_fit, bin_order, first_fit, window_size

_FITS = {"best_fit": best_fit, "first_fit": first_fit}


class Packed(Grouped):
    """Rows of whole documents; some hundred documents are packed at a time."""

    def __init__(self, upstream: Items, stage: Pack, counts: PackCounts, place: LanePlace, given: int) -> None:
        super().__init__(upstream, f"pack of {stage.column!r}", place, given)
        self._stage = stage
        self._counts = counts
        self._place = place

    def make(self, working: Working) -> Group | None:
        """The rows of the next window, in the order in which they are given."""
        stage, place, before = self._stage, self._place, self._upstream.cursor
        documents: list[Document] = []
        taken = 0
        for _ in range(window_size(stage.window, place.number, place.lanes, before)):
            item = self._upstream.next(working)
            if item is None:
                break
            taken += 1
            documents += pieces(read_document(item, stage), stage, self._counts)
        if not taken:
            return None
        lengths = [document.length for document in documents]
        bins = _FITS[stage.mode](lengths, stage.seq_len)
        self._counts.add(documents=taken, rows=len(bins), padding=len(bins) * stage.seq_len - sum(lengths))
        order = bin_order(len(bins), place.seed, place.source, place.number, before)
        return _Rows([[documents[item] for item in bins[number]] for number in order], stage)


class _Rows:
    """Rows that are made when they are given: before that, their documents take a fraction of the memory."""

    def __init__(self, bins: Sequence[Sequence[Document]], stage: Pack) -> None:
        self._bins = bins
        self._stage = stage

    def __len__(self) -> int:
        return len(self._bins)

    def __getitem__(self, number: int, /) -> Item:
        return packed_row(self._bins[number], self._stage)


class Concatenated:
    """Rows that are cut from all documents laid end to end.

    Its cursor is that of the upstream before the document that is open, and how many of its tokens were given.
    """

    def __init__(self, upstream: Items, stage: Pack, counts: PackCounts, given: int) -> None:
        self._upstream = upstream
        self._stage = stage
        self._counts = counts
        self._before = upstream.cursor
        self._given = given
        self._open: Document | None = None

    @property
    def cursor(self) -> Cursor:
        return (self._before if self._given else self._upstream.cursor, self._given)

    def next(self, working: Working) -> Item | None:
        """The next row; the last one of an exact lane is filled up."""
        parts: list[Document] = []
        room = self._stage.seq_len
        while room and (document := self._document(working)) is not None:
            stop = min(document.length, self._given + room)
            parts.append(document.part(self._given, stop, self._given))
            room -= stop - self._given
            self._given = stop
            if stop == document.length:
                self._open, self._given = None, 0
        if not parts:
            return None
        self._counts.add(rows=1, padding=room)
        return packed_row(parts, self._stage)

    def _document(self, working: Working) -> Document | None:
        """The document that is open, or the next one that has tokens."""
        while self._open is None:
            before = self._upstream.cursor
            item = self._upstream.next(working)
            if item is None:
                return None
            document = read_document(item, self._stage)
            if not self._given:
                self._counts.add(documents=1)
            elif document.length <= self._given:
                raise DataflowError(
                    f"the document of row {item.key.row} of block {item.key.block} has {document.length} tokens, "
                    f"where {self._given} and more were given before: let stages before pack() make "
                    "the same of the same row"
                )
            if document.length:
                self._before, self._open = before, document
        return self._open


def packed_row(documents: Sequence[Document], stage: Pack) -> Item:
    """One row of documents, filled up to `seq_len`.

    Its columns: `tokens`, `labels`, `position_ids` within each document, `document_ids` from 0 on (-1 where it is
    filled up), int64[seq_len] each; and `cu_seqlens`, int32: where documents begin, the filling as one more, and
    the end.
    """
    size = stage.seq_len
    tokens, labels = np.empty(size, np.int64), np.empty(size, np.int64)
    lengths = [document.stop - document.start for document in documents]
    used = sum(lengths)
    np.concatenate([document.tokens[document.start : document.stop] for document in documents], out=tokens[:used])
    tokens[used:] = stage.pad_token
    labels[:-1] = tokens[1:]
    labels[used:] = IGNORED
    end = 0
    for document, length in zip(documents, lengths, strict=True):
        end += length
        inside = document.stop < len(document.tokens)
        labels[end - 1] = document.tokens[document.stop] if inside else IGNORED
        if document.learned is not None:
            learned = document.learned[document.start + 1 : document.stop + 1]
            labels[end - length : end - length + len(learned)][~learned] = IGNORED
    if used < size:
        lengths.append(size - used)
    cu_seqlens = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=cu_seqlens[1:])
    document_ids = np.repeat(np.arange(len(lengths)), lengths)
    document_ids[used:] = -1
    sample = {
        "tokens": tokens,
        "labels": labels,
        "position_ids": np.arange(size) - np.repeat(cu_seqlens[:-1].astype(np.int64), lengths),
        "document_ids": document_ids,
        "cu_seqlens": cu_seqlens,
    }
    return Item(sample, documents[0].key, tuple(document.key for document in documents))
