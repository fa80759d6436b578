"""What exists: datasets, their manifests and blocks, the writer of new ones and the index of old shards."""

from __future__ import annotations

from dataflow.dataset.block import decode_block, describe_block, fetch_block, read_block
from dataflow.dataset.dataset import Dataset
from dataflow.dataset.dataset import open_dataset as open  # "dataset.open" reads well
from dataflow.dataset.index import index
from dataflow.dataset.manifest import Manifest
from dataflow.dataset.manifest_writer import ManifestWriter
from dataflow.dataset.stages import Filter, Map, Select, Stage
from dataflow.dataset.writer import ShardWriter

__all__ = [
    "Dataset",
    "Filter",
    "Manifest",
    "ManifestWriter",
    "Map",
    "Select",
    "ShardWriter",
    "Stage",
    "decode_block",
    "describe_block",
    "fetch_block",
    "index",
    "open",
    "read_block",
]
