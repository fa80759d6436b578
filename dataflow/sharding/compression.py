"""Whether blocks are compressed, which pays for text and tokens, and not for media, which are packed already."""

from __future__ import annotations

from typing import Literal, TypeAlias

import pyarrow as pa

__all__ = ["Compression", "choose_compression"]

Compression: TypeAlias = Literal["zstd"]


def choose_compression(wanted: Literal["auto", "none", "zstd"], schema: pa.Schema) -> Compression | None:
    """What to compress blocks with. "auto": nothing where there are binary columns, which hold media."""
    if wanted == "auto":
        return None if any(_holds_bytes(field.type) for field in schema) else "zstd"
    return None if wanted == "none" else "zstd"


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return True
    return any(_holds_bytes(kind.field(number).type) for number in range(kind.num_fields))
