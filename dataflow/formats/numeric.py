"""Numeric columns from NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["numeric_array"]


def numeric_array(values: NDArray[Any]) -> pa.Array:
    """The same numbers, and the same memory where it is contiguous. `pa.array` imports pandas where that is installed.

    Args:
        values: Integers or floats, one-dimensional.
    """
    values = np.ascontiguousarray(values)
    buffers = [None, pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers, null_count=0)
