"""Our shards of token documents, not compressed, as those of the others.

Blocks have 2 MiB, as a dataset of 8 GiB and more has them.
"""

import pyarrow as pa

import dataflow
from bench.peers.source import LENGTH, places, tokens

ROWS = (2 << 20) // (2 * LENGTH)

source, target, shard_bytes = places()
documents = tokens(source)
with dataflow.ShardWriter(target, rows_per_block=ROWS, shard_bytes=shard_bytes) as writer:
    for start in range(0, len(documents), ROWS):
        values = pa.array(documents[start : start + ROWS].ravel())
        writer.write_batch(pa.record_batch({"tokens": pa.FixedSizeListArray.from_arrays(values, LENGTH)}))
