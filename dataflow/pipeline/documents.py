"""Documents: columns of tokens, with what is to be learned of each, cut to the length of a row."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dataflow.dataset.expanding import Pack
from dataflow.errors import DatasetError
from dataflow.pipeline.lane_rows import Item
from dataflow.sampling.random import SampleKey

# What torch's losses leave out.
IGNORED = -100


class Document(NamedTuple):
    """Tokens that stay together: a row of the dataset, or a part of it.

    Attributes:
        tokens: All tokens of the row, int[n], as they are stored.
        learned: bool[n], which of them are to be learned; None for all.
        start: The first one that is in this part.
        stop: The one after the last that is.
        key: The row, and which part of it.
    """

    tokens: NDArray[Any]
    learned: NDArray[np.bool_] | None
    start: int
    stop: int
    key: SampleKey

    @property
    def length(self) -> int:
        """Tokens of this part."""
        return self.stop - self.start

    def part(self, start: int, stop: int, number: int) -> Document:
        """A part of a whole document."""
        return Document(self.tokens, self.learned, start, stop, self.key.part(number))


@dataclass(slots=True)
class PackCounts:
    """What was packed so far, by all lanes, batches that wait included.

    Attributes:
        documents: Documents that were taken.
        split: Of these, those that were longer than a row, and split.
        dropped: Of these, those that were longer than a row, and dropped.
        dropped_tokens: Tokens of these.
        rows: Rows that were made.
        padding: Tokens that these are filled up with.
    """

    documents: int = 0
    split: int = 0
    dropped: int = 0
    dropped_tokens: int = 0
    rows: int = 0
    padding: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, **counts: int) -> None:
        """Count more."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def to_dict(self) -> dict[str, int]:
        """JSON-able."""
        # Without the lock, which may be held for ever in a process that was forked.
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name[0] != "_"}


def read_document(item: Item, stage: Pack) -> Document:
    """The document of a sample.

    Raises:
        DatasetError: It has no such column, or that has no tokens, or the mask is of another length.
    """
    tokens = _column(item, stage.column, "pack(column=)")
    if tokens.dtype.kind not in "iu" and len(tokens):
        raise DatasetError(
            f"column {stage.column!r} has {tokens.dtype} values: pack() takes tokens, which are integers"
        )
    learned = None
    if stage.loss_mask is not None:
        learned = _column(item, stage.loss_mask, "pack(loss_mask=)").astype(np.bool_)
        if len(learned) != len(tokens):
            raise DatasetError(
                f"column {stage.loss_mask!r} has {len(learned)} values, {stage.column!r} {len(tokens)} tokens "
                f"(row {item.key.row} of block {item.key.block}): give one for each token"
            )
    return Document(tokens, learned, 0, len(tokens), item.key)


def pieces(document: Document, stage: Pack, counts: PackCounts) -> list[Document]:
    """A document in pieces that fit a row: itself, its parts, or nothing. One without tokens has no piece."""
    count = document.stop
    if count <= stage.seq_len:
        return [document.part(0, count, 0)] if count else []
    if stage.long == "drop":
        counts.add(dropped=1, dropped_tokens=count)
        return []
    counts.add(split=1)
    starts = range(0, count, stage.seq_len)
    return [document.part(start, min(count, start + stage.seq_len), number) for number, start in enumerate(starts)]


def _column(item: Item, column: str, argument: str) -> NDArray[Any]:
    if column not in item.sample:
        raise DatasetError(f"samples have no column {column!r}, only {', '.join(item.sample)}: see {argument}")
    # A copy: what is kept may not hold on to a whole block.
    values = np.array(item.sample[column])
    if values.ndim != 1:
        raise DatasetError(f"column {column!r} holds {type(item.sample[column]).__name__}, not a list: see {argument}")
    return values
