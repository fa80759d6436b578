"""Types of columns, told apart as operations need it."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["is_binary", "is_list", "is_text"]


def is_binary(kind: pa.DataType) -> bool:
    """Whether values are bytes."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists of any length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
