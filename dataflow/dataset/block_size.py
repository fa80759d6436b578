"""How large a block should be."""

from __future__ import annotations

__all__ = ["MAX_BLOCK_SIZE", "usual_block_bytes"]

MIN_BLOCK_SIZE = 64 << 10
#: More than this gains nothing from a store, and costs memory in every lane.
MAX_BLOCK_SIZE = 2 << 20
UNKNOWN_TOTAL = 512 << 10
# So many blocks leave room for 256 lanes of 16 blocks each.
BLOCKS = 4096


def usual_block_bytes(total_bytes: int | None) -> int:
    """Size of a block for a dataset of that many bytes; None where the size is not known, but large."""
    if total_bytes is None:
        return UNKNOWN_TOTAL
    return min(MAX_BLOCK_SIZE, max(MIN_BLOCK_SIZE, total_bytes // BLOCKS))
