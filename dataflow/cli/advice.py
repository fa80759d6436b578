"""What is worth knowing of shards that were indexed where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dataflow.cli.text import bytes_text, count_text
from dataflow.formats.compression import compression_of
from dataflow.formats.parquet import LARGE_BLOCK_BYTES

if TYPE_CHECKING:
    from dataflow.dataset import Manifest

__all__ = ["advice"]


def advice(manifest: Manifest) -> list[str]:
    """Sentences on blocks that work, but not well."""
    found = []
    large = int((manifest.lengths > LARGE_BLOCK_BYTES).sum())
    if large:
        found.append(
            f"{large:,} of {count_text(manifest.num_blocks, 'block')} are larger than {bytes_text(LARGE_BLOCK_BYTES)} "
            f"(up to {bytes_text(int(manifest.lengths.max()))}). Each is held as a whole, and a shuffle holds many: "
            f"{_convert(manifest)}"
        )
    whole = sum(
        bool(compression_of(manifest.shard_path(int(shard))))
        for shard in np.flatnonzero(np.diff(manifest.first_blocks) == 1)
    )
    if whole:
        found.append(
            f"{whole:,} of {count_text(manifest.num_shards, 'shard')} are compressed in one piece, so that each is one "
            f"block, read and held as a whole: {_convert(manifest)}"
        )
    return found


def _convert(manifest: Manifest) -> str:
    return f"`dataflow shard {manifest.base_url} DESTINATION` makes blocks of a fitting size"
