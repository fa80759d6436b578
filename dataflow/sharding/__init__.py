"""Makes datasets: what there is to read, how it is cut into shards, and the processes that write them."""

from __future__ import annotations

from dataflow.sharding.columns import Rename, Select
from dataflow.sharding.making import Done
from dataflow.sharding.options import ShardOptions
from dataflow.sharding.run import shard
from dataflow.sharding.several import shard_folders, shard_splits
from dataflow.sharding.steps import Step
from dataflow.sharding.tokenize import Tokenize
from dataflow.sharding.tokenizer import open_tokenizer
from dataflow.sharding.transcode import Transcode

__all__ = [
    "Done",
    "Rename",
    "Select",
    "ShardOptions",
    "Step",
    "Tokenize",
    "Transcode",
    "open_tokenizer",
    "shard",
    "shard_folders",
    "shard_splits",
]
