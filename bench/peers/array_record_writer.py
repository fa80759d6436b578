"""ArrayRecord: one record a group, uncompressed, as Grain wants it for random access."""

import struct
from pathlib import Path

from array_record.python.array_record_module import ArrayRecordWriter

from bench.peers.source import files, places

source, target, shard_bytes = places()
Path(target).mkdir()
shard, nbytes, writer = 0, 0, None
for key, data, label in files(source):
    if writer is None or nbytes >= shard_bytes:
        if writer is not None:
            writer.close()
        writer = ArrayRecordWriter(f"{target}/shard-{shard:05d}.array_record", "group_size:1,uncompressed")
        shard, nbytes = shard + 1, 0
    name = key.encode()
    record = struct.pack("<iq", len(name), label) + name + data
    writer.write(record)
    nbytes += len(record)
if writer is not None:
    writer.close()
