"""MosaicML Streaming: MDS shards of token documents."""

from bench.peers.mosaicml import MDSWriter
from bench.peers.source import places, tokens

source, target, shard_bytes = places()
with MDSWriter(out=target, columns={"tokens": "ndarray:uint16:2048"}, size_limit=shard_bytes) as writer:
    for document in tokens(source):
        writer.write({"tokens": document})
