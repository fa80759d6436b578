"""Padding: rows of differing lengths to one width."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dataflow.errors import DatasetError, OptionError


@dataclass(frozen=True, slots=True)
class Pad:
    """How a column of lists of numbers is laid into a batch.

    Args:
        value: What stands after the end of a shorter row.
        length: Elements of each row in the batch; None takes as many as the longest row of the batch has.
        truncate: Cut rows that are longer than `length`, instead of refusing them.

    Raises:
        OptionError: A length below 1, or nothing to truncate to.
    """

    value: float
    length: int | None = None
    truncate: bool = False

    def __post_init__(self) -> None:
        if self.length is not None and (type(self.length) is not int or self.length < 1):
            raise OptionError(f"Pad(length={self.length!r}): give a positive integer, or None for the longest row")
        if self.truncate and self.length is None:
            raise OptionError("Pad(truncate=True) cuts rows to length=: give it")

    def fill(self, column: str, dtype: np.dtype[Any]) -> Any:
        """The value as one of a type.

        Raises:
            OptionError: It is none; names the column.
        """
        if dtype.kind == "f":
            return float(self.value)
        least, greatest = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if not least <= self.value <= greatest or self.value != int(self.value):
            raise OptionError(
                f"column {column!r} has {dtype.name}, which cannot hold {self.value} to pad with: "
                "give pad= another value, or dtypes= a wider type"
            )
        return int(self.value)

    def width(self, column: str, longest: int) -> int:
        """Elements of a row in a batch whose longest row has so many.

        Raises:
            DatasetError: That one is too long, and is not to be cut.
        """
        if self.length is None:
            return longest
        if longest > self.length and not self.truncate:
            raise DatasetError(
                f"column {column!r} has a row of {longest} elements, Pad(length=) is {self.length}: "
                "raise it, or cut such rows with truncate=True"
            )
        return self.length


def parse_pad(pad: Mapping[str, Any] | None) -> dict[str, Pad]:
    """Padding by column; a plain number pads to the longest row.

    Raises:
        OptionError: It is no dict, or names something else than numbers.
    """
    if pad is not None and not isinstance(pad, Mapping):
        raise OptionError(f"pad={pad!r}: give a dict of columns and the values to pad them with")
    found = {column: given if isinstance(given, Pad) else Pad(given) for column, given in (pad or {}).items()}
    for column, rule in found.items():
        if not isinstance(rule.value, (bool, int, float, np.number, np.bool_)):
            raise OptionError(f"pad={{{column!r}: {rule.value!r}}}: give a number to pad with")
    return found


def pad_rows(column: str, rows: Any, pad: Pad) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad rows of numbers that were made one by one.

    Args:
        column: Name of the column.
        rows: 1-D arrays or tensors of one dtype, or a tensor [rows, width].
        pad: How.

    Returns:
        (values [rows, width], lengths int64[rows]).

    Raises:
        DatasetError: The column holds something else, or a row is too long; names the column.
    """
    if not all(isinstance(row, (np.ndarray, torch.Tensor)) and row.ndim == 1 for row in rows):
        raise DatasetError(f"column {column!r} has no lists of numbers: leave it out of pad=")
    arrays = [np.asarray(row) for row in rows]
    if len({array.dtype for array in arrays}) > 1:
        raise DatasetError(f"column {column!r} has rows of several types: name one for it in dtypes=")
    width = pad.width(column, max(len(array) for array in arrays))
    padded = np.full((len(arrays), width), pad.fill(column, arrays[0].dtype), arrays[0].dtype)
    lengths = [min(len(array), width) for array in arrays]
    for target, array, length in zip(padded, arrays, lengths, strict=True):
        target[:length] = array[:length]
    return torch.from_numpy(padded), torch.tensor(lengths, dtype=torch.int64)
