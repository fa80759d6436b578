"""Splits of a dataset, such as train and val: each row's own key decides, so that a row never changes its split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from dataflow.errors import CorruptDataError, OptionError
from dataflow.formats import Skipped
from dataflow.sharding.columns import check_column
from dataflow.sharding.source import Source
from dataflow.sharding.steps import Step, row_name

__all__ = ["Part", "split_parts"]

# Never changes: a row would change its split.
_SEED = 0x9E3779B97F4A7C15
_HASHES = 1 << 64
_USUAL_NAMES = {1: ("train",), 2: ("train", "val"), 3: ("train", "val", "test")}


@dataclass(frozen=True)
class Part(Step):
    """Chooses the rows of one split: those whose hash lies in a range. As a step it drops the others.

    Args:
        column: The rows' keys: text, bytes or whole numbers.
        low: The least hash.
        high: The first hash beyond it, at most 2 ** 64.
    """

    column: str
    low: int
    high: int

    @property
    def share(self) -> float:
        """About the share of all rows that this is."""
        return (self.high - self.low) / _HASHES

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """See `Step.schema`."""
        if self.column == "key" and "key" not in schema.names:
            names = ", ".join(map(repr, schema.names))
            raise OptionError(f"there is no column 'key' to split by: name another one (--split-by), of {names}")
        check_column(schema, self.column)
        _check_kind(self.column, schema.field(self.column).type)
        return schema

    def apply(self, batch: pa.RecordBatch, skip: bool) -> tuple[pa.RecordBatch, list[Skipped]]:
        """See `Step.apply`."""
        keys = batch.column(self.column)
        if keys.null_count:
            row = int(np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0])
            name = row_name(batch, row) if self.column != "key" else f"row {row}"
            raise CorruptDataError(f"{name} cannot be split: {self.column!r} is null. Split by another column")
        return batch.filter(pa.array(self._chosen(keys))), []

    def items(self, source: Source, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """The items of a source that are in the split, if that can be told before they are read.

        Args:
            source: The items.
            order: Numbers of items.

        Raises:
            OptionError: None of them is in the split.
        """
        keys = source.values(self.column)
        if keys is None or keys.null_count:
            return None
        _check_kind(self.column, keys.type)
        chosen = order[self._chosen(keys)[order]]
        if not len(chosen):
            raise OptionError("none of the rows falls into it")
        return chosen

    def _chosen(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        hashes = np.fromiter(map(_hash, keys.to_pylist()), np.uint64, len(keys))
        # The upper end may be 2 ** 64, which no uint64 is.
        return (hashes >= np.uint64(self.low)) & (hashes <= np.uint64(self.high - 1))


def split_parts(shares: Mapping[str, float | str] | Sequence[float | str], column: str) -> dict[str, Part]:
    """The parts of some splits.

    Args:
        shares: The share of each, by its name. Without names the first three are train, val and test.
        column: The rows' keys.

    Raises:
        OptionError: Shares that are none, or more than 1 together; names that are no names of folders.
    """
    if not isinstance(shares, Mapping):
        names = _USUAL_NAMES.get(len(shares))
        if names is None:
            raise OptionError(f"{len(shares)} splits without names: name them, as in train=0.8,val=0.1,test=0.05")
        shares = dict(zip(names, shares, strict=True))
    parts: dict[str, Part] = {}
    low = Fraction(0)
    for name, text in shares.items():
        try:
            share = Fraction(str(text))
        except (ValueError, ZeroDivisionError):
            raise OptionError(f"the share of the split {name!r} is {text!r}, it must be a number such as 0.9") from None
        if not 0 < share <= 1:
            raise OptionError(f"the share of the split {name!r} is {text}, it must be more than 0 and at most 1")
        if not name or name.startswith(".") or "/" in name or not name.isprintable():
            raise OptionError(f"{name!r} is no name for a split: its dataset is written to a folder of that name")
        if low + share > 1:
            raise OptionError(
                f"the shares of the splits are more than 1 together: {', '.join(map(str, shares.values()))}"
            )
        parts[name] = Part(column, int(low * _HASHES), int((low + share) * _HASHES))
        low += share
    return parts


def _check_kind(name: str, kind: pa.DataType) -> None:
    # Numbers as such: what is stored in fewer bits one day is in the same split.
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ):
        raise OptionError(f"column {name!r} is {kind}, and rows are split by text, bytes or whole numbers")


def _hash(value: str | bytes | int) -> int:
    data = value if isinstance(value, bytes) else str(value).encode()
    return xxhash.xxh3_64_intdigest(data, seed=_SEED)
