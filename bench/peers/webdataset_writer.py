"""WebDataset: tar shards."""

import sys
from pathlib import Path

import webdataset

from bench.peers.source import files

source, target = sys.argv[1:]
Path(target).mkdir()
with webdataset.ShardWriter(f"{target}/shard-%05d.tar", maxsize=256 << 20, maxcount=1 << 30, verbose=0) as writer:
    for key, data, label in files(source):
        writer.write({"__key__": key, "jpg": data, "cls": str(label)})
