"""Columns of bytes and text from Python values. `pa.array` is slower, and imports pandas where that is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dataflow.errors import OptionError

if TYPE_CHECKING:
    from dataflow.storage import Buffer

__all__ = ["binary_array", "text_array"]

# Offsets have 32 bits.
MAX_BYTES = (1 << 31) - 1


def binary_array(values: Sequence[Buffer | None]) -> pa.BinaryArray:
    """Builds a binary array in one copy of the bytes, at two or three times the speed of `pa.array` on large values.

    Args:
        values: The value of each row, None for null. At most 2 GiB together.

    Raises:
        OptionError: The values have more than 2 GiB together.
    """
    pieces = [value for value in values if value is not None]
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    if offsets[-1] > MAX_BYTES:
        raise OptionError(f"{len(values)} binary values have {offsets[-1]} bytes, more than one block can hold")
    data = b"".join(pieces)
    validity = None
    if len(pieces) < len(values):
        present = np.array([value is not None for value in values])
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary(), len(values), [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    )


def text_array(values: Iterable[str | None]) -> pa.StringArray:
    """Builds a string array; see `binary_array`.

    Raises:
        UnicodeEncodeError: A value has half of a surrogate pair, which is no text.
    """
    return binary_array([None if value is None else value.encode() for value in values]).view(pa.string())
