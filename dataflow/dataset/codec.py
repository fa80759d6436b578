"""What a codec is to a dataset: it turns encoded values of one column into arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dataflow.errors import CorruptDataError

__all__ = ["Codec", "Companion", "Encoded", "Failure", "undecodable"]


class Encoded(NamedTuple):
    """Encoded values where they lie in memory: value i is row `row[i]` of block `block[i]`.

    Attributes:
        values: For each block the bytes of its column.
        offsets: For each block where the values of its rows begin, and the last one ends.
        block: int32, indices into these lists.
        row: int64, rows within the blocks.
    """

    values: Sequence[Any]
    offsets: Sequence[Any]
    block: NDArray[np.int32]
    row: NDArray[np.int64]

    @classmethod
    def of_values(cls, values: Sequence[bytes]) -> Encoded:
        """Values that are in memory one by one."""
        offsets = [np.array([0, len(value)], np.int64) for value in values]
        return cls(values, offsets, np.arange(len(values), dtype=np.int32), np.zeros(len(values), np.int64))


class Failure(NamedTuple):
    """A value that cannot be decoded.

    Attributes:
        position: Its number among those that were to be decoded.
        reason: What is wrong with it, to be read after "column 'image' ".
    """

    position: int
    reason: str


class Companion(NamedTuple):
    """An array that comes beside each decoded value, in a column of its own.

    Attributes:
        shape: Its shape.
        dtype: NumPy's name of its type.
    """

    shape: tuple[int, ...]
    dtype: str


class Codec(Protocol):
    """Decodes values of one column. Used by many threads at once.

    A codec may also have `companions`: a mapping from names to the `Companion` that comes beside each value, in a
    column `<column>_<name>`. Their arrays then follow `out` in the arguments of `decode_batch`.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a decoded value; -1 where values differ, which are then decoded one by one."""

    @property
    def dtype(self) -> str:
        """NumPy's name of its type."""

    def describe(self) -> tuple[Any, ...]:
        """Kind and parameters: all that decides what comes out, JSON-able."""

    def decode(self, value: bytes, key: int) -> NDArray[Any]:
        """One value, with random numbers keyed by 64 bits.

        Raises:
            CorruptDataError: It cannot be decoded; says why, not where.
        """

    def decode_batch(self, encoded: Encoded, keys: Sequence[int], out: NDArray[Any]) -> list[Failure]:
        """Values into `out` [values, *shape]; those that cannot be decoded leave their part of it undefined."""

    def decoder(self) -> str:
        """What does the work, for reports."""


def undecodable(place: str, column: str, reason: str) -> CorruptDataError:
    """The error of a value that cannot be decoded.

    Args:
        place: The row, from `describe_row`.
        column: The column.
        reason: What is wrong with it, as in `Failure`.
    """
    return CorruptDataError(
        f"{place}: column {column!r} {reason}. Repair the value, or leave its row out with `dataflow exclude`"
    )
