"""What the values of one column are like. Statistics of parts of a column add up to those of the whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataflow.operations.column_types import is_binary, is_list, is_text
from dataflow.operations.distribution import Distribution
from dataflow.operations.image_statistics import ImageStatistics

__all__ = ["ColumnStatistics"]

# So many different values are counted one by one, and none longer than this.
_MOST_VALUES = 1000
_LONGEST_VALUE = 100


@dataclass(slots=True)
class ColumnStatistics:
    """Statistics of one column.

    Attributes:
        name: The column.
        kind: Its type.
        rows: Rows that were looked at.
        nulls: Those of them that are null.
        lengths: Characters of texts, bytes of binary values, items of lists; None for other types.
        numbers: The numbers; None for other types.
        values: How often each value comes, for integers, truth values and short texts; None for other types, or where
            there are more than 1000 different ones.
        images: What the images among binary values are like.
    """

    name: str
    kind: pa.DataType
    rows: int = 0
    nulls: int = 0
    lengths: Distribution | None = None
    numbers: Distribution | None = None
    values: Counter[Any] | None = None
    images: ImageStatistics = field(default_factory=ImageStatistics)

    def __post_init__(self) -> None:
        kind = self.kind
        if is_binary(kind) or is_text(kind) or is_list(kind):
            self.lengths = Distribution(integers=True)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            self.numbers = Distribution(integers=pa.types.is_integer(kind))
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind):
            self.values = Counter()

    @property
    def unit(self) -> str:
        """What `lengths` counts."""
        return "characters" if is_text(self.kind) else "bytes" if is_binary(self.kind) else "items"

    def add(self, array: pa.Array) -> None:
        """Adds values of the column.

        Raises:
            OptionError: There are images, and Pillow is missing.
        """
        self.rows += len(array)
        self.nulls += array.null_count
        array = array.drop_null()
        if self.lengths is not None:
            measure = pc.utf8_length if is_text(self.kind) else pc.binary_length
            lengths = pc.list_value_length(array) if is_list(self.kind) else measure(array)
            self.lengths.add(lengths.to_numpy(zero_copy_only=False))
        if self.numbers is not None:
            self.numbers.add(array.to_numpy(zero_copy_only=False))
        if self.values is not None:
            counts = _value_counts(array)
            self.values = None if counts is None else _sum(self.values, counts)
        if is_binary(self.kind):
            self.images.add(array)

    def merge(self, other: ColumnStatistics) -> None:
        """Adds the values of another part of the same column."""
        self.rows += other.rows
        self.nulls += other.nulls
        if self.lengths is not None and other.lengths is not None:
            self.lengths.merge(other.lengths)
        if self.numbers is not None and other.numbers is not None:
            self.numbers.merge(other.numbers)
        self.values = None if self.values is None or other.values is None else _sum(self.values, other.values)
        self.images.merge(other.images)

    def to_json(self, names: list[str] | None = None) -> dict[str, Any]:
        """All that is known.

        Args:
            names: Of the values of a column of classes.
        """
        facts: dict[str, Any] = {"name": self.name, "type": str(self.kind), "rows": self.rows, "nulls": self.nulls}
        if self.lengths is not None:
            facts["lengths"] = {"unit": self.unit} | self.lengths.to_json()
        if self.numbers is not None:
            facts["numbers"] = self.numbers.to_json()
        if self.values is not None:
            facts["values"] = [
                {"value": value, "count": count}
                | ({"name": names[value]} if names is not None and 0 <= value < len(names) else {})
                for value, count in sorted(self.values.items(), key=lambda item: (-item[1], item[0]))
            ]
        if self.images.formats:
            facts["images"] = self.images.to_json()
        return facts


def _value_counts(array: pa.Array) -> Counter[Any] | None:
    if is_text(array.type) and len(array) and pc.max(pc.utf8_length(array)).as_py() > _LONGEST_VALUE:
        return None
    counts = pc.value_counts(array)
    if len(counts) > _MOST_VALUES:
        return None
    return Counter(dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True)))


def _sum(first: Counter[Any], second: Counter[Any]) -> Counter[Any] | None:
    first.update(second)
    return first if len(first) <= _MOST_VALUES else None
