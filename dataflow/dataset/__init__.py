"""What exists: the manifest of a dataset, its blocks, and the writer of new ones."""

from __future__ import annotations

from dataflow.dataset.block import decode_block, describe_block, fetch_block, read_block
from dataflow.dataset.manifest import Manifest
from dataflow.dataset.manifest_writer import ManifestWriter
from dataflow.dataset.writer import ShardWriter

__all__ = [
    "Manifest",
    "ManifestWriter",
    "ShardWriter",
    "decode_block",
    "describe_block",
    "fetch_block",
    "read_block",
]
