"""Element types that batches are to have, other than the stored ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dataflow.errors import DatasetError, OptionError

Dtype = np.dtype[Any]

# What the native core widens while it gathers.
_WIDENS = {
    (np.dtype(source), np.dtype(target))
    for target, sources in {"int32": ("uint8", "uint16"), "int64": ("uint8", "uint16", "int32", "uint32")}.items()
    for source in sources
}


def parse_dtypes(dtypes: Mapping[str, Any] | None) -> dict[str, Dtype]:
    """Types by column, from names such as "int64", or NumPy's or torch's types.

    Raises:
        OptionError: One is no type of numbers.
    """
    if dtypes is not None and not isinstance(dtypes, Mapping):
        raise OptionError(f"dtypes={dtypes!r}: give a dict of columns and types, such as {{'tokens': 'int64'}}")
    found = {}
    for column, given in (dtypes or {}).items():
        try:
            dtype = np.dtype(str(given).removeprefix("torch.") if isinstance(given, torch.dtype) else given)
        except TypeError:
            dtype = None
        if given is None or dtype is None or dtype.kind not in "biuf" or dtype.itemsize > 8:
            raise OptionError(f"dtypes={{{column!r}: {given!r}}} is no type of numbers, such as 'int64'")
        found[column] = dtype
    return found


def check_cast(column: str, source: Dtype, target: Dtype) -> None:
    """Refuse types that do not become one another: numbers may lose digits, but no fraction becomes an integer.

    Raises:
        OptionError: Names the column.
    """
    if not np.can_cast(source, target, "same_kind") and not (source.kind in "iu" and target.kind in "iu"):
        raise OptionError(f"column {column!r} has {source.name}, not to be made {target.name} by dtypes=: use map()")


def widens(source: Dtype, target: Dtype) -> bool:
    """Whether the native core can gather one type into the other."""
    return source == target or (source, target) in _WIDENS


def cast(column: str, values: NDArray[Any], target: Dtype, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Values as another type, in `out` where it is given.

    Raises:
        OptionError: The one type does not become the other.
        DatasetError: A value does not fit; names the column.
    """
    check_cast(column, values.dtype, target)
    if target.kind in "iu" and not np.can_cast(values.dtype, target, "safe") and values.size:
        least, greatest, limits = values.min(), values.max(), np.iinfo(target)
        if least < limits.min or greatest > limits.max:
            wrong = least if least < limits.min else greatest
            raise DatasetError(
                f"column {column!r} has the value {wrong}, which {target.name} cannot hold: give dtypes= a wider type"
            )
    if out is None:
        return values.astype(target)
    np.copyto(out, values, casting="unsafe")
    return out


def cast_column(column: str, values: Any, target: Dtype) -> Any:
    """A column of a batch that was made of samples: a tensor, or a list of tensors and arrays.

    Raises:
        DatasetError: It holds something else, or a value does not fit; names the column.
    """
    if isinstance(values, list):
        return [cast_column(column, value, target) for value in values]
    if not isinstance(values, (torch.Tensor, np.ndarray)):
        raise DatasetError(f"column {column!r} holds {type(values).__name__}, no numbers: leave it out of dtypes=")
    return torch.from_numpy(cast(column, np.asarray(values), target))
