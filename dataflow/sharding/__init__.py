"""Makes datasets: what there is to read, how it is cut into shards, and the processes that write them."""

from __future__ import annotations

from dataflow.sharding.options import ShardOptions
from dataflow.sharding.run import Done, shard

__all__ = ["Done", "ShardOptions", "shard"]
