"""Our writer of rows, from one thread, as the others."""

import sys

import dataflow
from bench.peers.source import files

source, target = sys.argv[1:]
with dataflow.ShardWriter(target, total_bytes=2 << 30) as writer:
    for key, data, label in files(source):
        writer.write({"key": key, "image": data, "label": label})
