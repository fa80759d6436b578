"""What can be wrong with a dataset, as `verify` finds it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Fault", "Kind"]

Kind = Literal["missing", "unreadable", "size", "structure", "rows", "checksum", "block", "value"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: "missing" (there is no such shard), "unreadable" (the store failed), "size" (of the shard), "structure"
            (of the shard as a file), "rows" (their number in the shard), "checksum" (of a block), "block" (it does not
            decode), or "value" (of a row).
        shard: URL of the shard.
        message: What is wrong, with all of the following in words.
        block: Number of the block in the dataset.
        row: Number of the row in the dataset, as in `dataset[row]` and `sample_id`.
        key: The row's key, if it has one.
        column: The column of a value.
        expected: What the manifest says, where that is a size, a number of rows or a checksum.
        found: What there is instead.
    """

    kind: Kind
    shard: str
    message: str
    block: int | None = None
    row: int | None = None
    key: str | None = None
    column: str | None = None
    expected: int | str | None = None
    found: int | str | None = None

    def to_json(self) -> dict[str, Any]:
        """All attributes that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}
