"""The step that turns a column of text into tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.errors import CorruptDataError, OptionError
from dataflow.formats import Skipped
from dataflow.formats.numeric import numeric_array
from dataflow.sharding.columns import check_column
from dataflow.sharding.steps import Step, row_name
from dataflow.sharding.tokenizer import Tokenizer

__all__ = ["Tokenize"]

_ADDED = ("tokens", "num_tokens")
# Ids are Python's integers for a moment, which take many times the memory of the text.
_TEXTS_AT_ONCE = 512
_BYTES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Tokenize(Step):
    """Adds `tokens` (a list of uint16, or of uint32 where the tokenizer has larger ids) and `num_tokens` (int32).

    Args:
        tokenizer: Makes the tokens.
        column: The text; bytes are taken for UTF-8. A row whose text is null is bad.
        keep_text: Whether that column stays.
        end: The id that each document gets at its end, None for none.
        special_tokens: Whether the tokenizer adds the special tokens that it would add around a text.
        drop_empty: Whether documents without tokens, and rows whose text is null, are left out and reported; else
            the former have length 0, or just `end`.
    """

    tokenizer: Tokenizer
    column: str = "text"
    keep_text: bool = False
    end: int | None = None
    special_tokens: bool = False
    drop_empty: bool = False

    def properties(self, schema: pa.Schema, before: Mapping[str, Any]) -> dict[str, Any]:
        """See `Step.properties`."""
        return {
            "tokenizer": {
                "name": self.tokenizer.name,
                "largest_id": self._largest_id,
                "end": self.end,
                "special_tokens": self.special_tokens,
            }
        }

    @property
    def _largest_id(self) -> int:
        return max(self.tokenizer.largest_id, -1 if self.end is None else self.end)

    @property
    def _type(self) -> pa.DataType:
        return pa.uint16() if self._largest_id < 1 << 16 else pa.uint32()

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """See `Step.schema`."""
        check_column(schema, self.column)
        kind = schema.field(self.column).type
        if not (_is_text(kind) or pa.types.is_null(kind)):
            raise OptionError(f"column {self.column!r} is {kind}, and only text can be tokenized: give --text COLUMN")
        fields = [field for field in schema if self.keep_text or field.name != self.column]
        for field in fields:
            if field.name in _ADDED:
                raise OptionError(f"there is a column {field.name!r} already: leave it out with --columns")
        added = (pa.field("tokens", pa.list_(self._type)), pa.field("num_tokens", pa.int32()))
        return pa.schema([*fields, *added])

    def apply(self, batch: pa.RecordBatch, skip: bool) -> tuple[pa.RecordBatch, list[Skipped]]:
        """See `Step.apply`."""
        schema = self.schema(batch.schema)
        texts = _as_text(batch, self.column)
        skipped: list[Skipped] = []
        if texts.null_count:
            batch, texts, skipped = self._without_null(batch, texts, skip)
        ids, counts = self._encode(texts)
        if self.drop_empty and len(counts) and not counts.all():
            empty = np.flatnonzero(counts == 0).tolist()
            skipped += [Skipped(row_name(batch, row), "an empty document") for row in empty]
            batch = batch.take(numeric_array(np.flatnonzero(counts)))
            counts = counts[counts > 0]
        if self.end is not None:
            ids = np.insert(ids, np.cumsum(counts), self.end)
            counts = counts + 1
        columns = [batch.column(name) for name in schema.names if name not in _ADDED]
        offsets = np.zeros(len(counts) + 1, np.int32)
        offsets[1:] = np.cumsum(counts)
        values = numeric_array(ids).cast(self._type)
        tokens = pa.ListArray.from_arrays(numeric_array(offsets), values, type=schema.field("tokens").type)
        columns += [tokens, numeric_array(counts).cast(pa.int32())]
        return pa.RecordBatch.from_arrays(columns, schema=schema), skipped

    def _without_null(
        self, batch: pa.RecordBatch, texts: pa.Array, skip: bool
    ) -> tuple[pa.RecordBatch, pa.Array, list[Skipped]]:
        there = texts.is_valid()
        rows = np.flatnonzero(~there.to_numpy(zero_copy_only=False)).tolist()
        if not (skip or self.drop_empty):
            raise CorruptDataError(
                f"{row_name(batch, rows[0])} has no text: {self.column!r} is null. Give --drop-empty or --on-error "
                "skip, which leave such rows out and count them"
            )
        skipped = [Skipped(row_name(batch, row), f"{self.column!r} is null") for row in rows]
        return batch.filter(there), texts.filter(there), skipped

    def _encode(self, texts: pa.Array) -> tuple[npt.NDArray[np.unsignedinteger[Any]], npt.NDArray[np.int64]]:
        kind = self._type.to_pandas_dtype()
        ids: list[npt.NDArray[np.unsignedinteger[Any]]] = [np.empty(0, kind)]
        counts: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
        for part in _parts(texts):
            found, lengths = self.tokenizer.encode(part.to_pylist(), self.special_tokens)
            if len(found) and int(found.max()) > self._largest_id:
                raise OptionError(
                    f"the tokenizer made the id {found.max()}, and its vocabulary ends at {self.tokenizer.largest_id}: "
                    "its tokenizer.json contradicts itself"
                )
            ids.append(found.astype(kind))
            counts.append(lengths)
        return np.concatenate(ids), np.concatenate(counts)


def _parts(texts: pa.Array) -> Iterator[pa.Array]:
    """Texts that are encoded at once: some hundred, or fewer if they are long."""
    from pyarrow import compute  # slow to import

    ends = np.cumsum(compute.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64))
    start = 0
    while start < len(texts):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + _BYTES_AT_ONCE))
        stop = min(len(texts), start + _TEXTS_AT_ONCE, max(stop, start + 1))
        yield texts.slice(start, stop - start)
        start = stop


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _as_text(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    try:
        return column.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise CorruptDataError(f"{name!r} is not UTF-8 in a row: {error}. Correct or remove it") from error
