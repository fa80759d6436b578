"""WebDataset: tar shards."""

from pathlib import Path

import webdataset

from bench.peers.source import files, places

source, target, shard_bytes = places()
Path(target).mkdir()
with webdataset.ShardWriter(f"{target}/shard-%05d.tar", maxsize=shard_bytes, maxcount=1 << 30, verbose=0) as writer:
    for key, data, label in files(source):
        writer.write({"__key__": key, "jpg": data, "cls": str(label)})
