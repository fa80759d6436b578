"""Datasets for tests: written, and read back whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dataflow.dataset import Manifest, ShardWriter, read_block
from dataflow.storage import open_store


def rows_at(url: str) -> list[dict[str, Any]]:
    """All rows of a dataset, in stored order."""
    manifest = Manifest.open(url)
    store = open_store(manifest.base_url)
    return [row for block in range(manifest.num_blocks) for row in read_block(store, manifest, block).to_pylist()]


def write(url: Path | str, rows: list[dict[str, Any]], **options: Any) -> Manifest:
    """Writes a dataset of some rows."""
    with ShardWriter(str(url), **options) as writer:
        for row in rows:
            writer.write(row)
    return Manifest.open(str(url))
