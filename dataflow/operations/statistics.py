"""What is in a dataset: its blocks, and the values of its columns, in one pass and bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dataflow.dataset import Manifest, read_block
from dataflow.errors import OptionError
from dataflow.operations.blocks import OnProgress, in_order
from dataflow.operations.column_statistics import ColumnStatistics
from dataflow.operations.distribution import Distribution
from dataflow.sharding.transcode import TRANSCODED
from dataflow.storage import open_store

__all__ = ["DatasetStatistics", "sampled_blocks", "statistics"]

_LABEL = "label"


@dataclass(frozen=True, slots=True)
class DatasetStatistics:
    """Statistics of a dataset.

    Attributes:
        manifest: The dataset.
        rows: Rows that were looked at: all, or those of a sample.
        block_rows: Rows of each block.
        block_bytes: Bytes of each block.
        columns: The columns in order.
    """

    manifest: Manifest
    rows: int
    block_rows: Distribution
    block_bytes: Distribution
    columns: list[ColumnStatistics]

    def to_json(self) -> dict[str, Any]:
        """All that is known."""
        manifest = self.manifest
        classes = manifest.properties.get("classes")
        return {
            "url": manifest.url,
            "fingerprint": manifest.fingerprint,
            "format": manifest.format,
            "shards": manifest.num_shards,
            "blocks": manifest.num_blocks,
            "rows": manifest.num_rows,
            "excluded": manifest.num_excluded,
            "bytes": manifest.num_bytes,
            "looked_at": self.rows,
            "transcoded": manifest.properties.get(TRANSCODED, []),
            "rows_per_block": self.block_rows.to_json(),
            "bytes_per_block": self.block_bytes.to_json(),
            "columns": [
                column.to_json(classes if column.name == _LABEL and isinstance(classes, list) else None)
                for column in self.columns
            ],
        }


def statistics(
    url: str, sample: int | None = None, workers: int | None = None, on_progress: OnProgress | None = None
) -> DatasetStatistics:
    """Looks at the values of all columns. Of images, only headers are read.

    Args:
        url: The dataset.
        sample: Look at so many rows, about: those of blocks spread evenly over the dataset. None for all.
        workers: Threads that read; None for what suits the store.
        on_progress: Is told of rows and bytes that were looked at.

    Raises:
        OptionError: `sample` is less than 1, or there are images and Pillow is missing.
        DatasetError: There is no dataset.
        CorruptDataError: A block is damaged.
        StorageError: The store could not be read.
    """
    if sample is not None and sample < 1:
        raise OptionError(f"sample is {sample}, it must be at least 1")
    manifest = Manifest.open(url)
    store = open_store(manifest.base_url)

    def look(block: int) -> list[ColumnStatistics]:
        batch = read_block(store, manifest, block)
        part = _empty(manifest)
        for column, array in zip(part, batch.columns, strict=True):
            column.add(array)
        return part

    columns = _empty(manifest)
    rows = 0
    for block, part in in_order(manifest, look, sampled_blocks(manifest, sample), workers):
        for whole, column in zip(columns, part, strict=True):
            whole.merge(column)
        rows += int(manifest.rows[block])
        if on_progress is not None:
            on_progress(int(manifest.rows[block]), int(manifest.lengths[block]))
    block_rows, block_bytes = Distribution(integers=True), Distribution(integers=True)
    block_rows.add(manifest.rows)
    block_bytes.add(manifest.lengths)
    return DatasetStatistics(manifest, rows, block_rows, block_bytes, columns)


def sampled_blocks(manifest: Manifest, sample: int | None) -> list[int] | None:
    """Blocks with about so many rows, spread evenly; None for all of them."""
    if sample is None or sample >= manifest.num_rows:
        return None
    count = -(-sample * manifest.num_blocks // manifest.num_rows)
    blocks: list[int] = np.unique(np.linspace(0, manifest.num_blocks - 1, count).round().astype(int)).tolist()
    return blocks


def _empty(manifest: Manifest) -> list[ColumnStatistics]:
    return [ColumnStatistics(field.name, field.type) for field in manifest.schema]
