"""MosaicML Streaming: MDS shards."""

from bench.peers.mosaicml import MDSWriter
from bench.peers.source import files, places

source, target, shard_bytes = places()
columns = {"key": "str", "image": "bytes", "label": "int"}
with MDSWriter(out=target, columns=columns, size_limit=shard_bytes) as writer:
    for key, data, label in files(source):
        writer.write({"key": key, "image": data, "label": label})
