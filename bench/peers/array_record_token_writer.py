"""ArrayRecord: one token document a record."""

from pathlib import Path

from array_record.python.array_record_module import ArrayRecordWriter

from bench.peers.source import places, tokens

source, target, shard_bytes = places()
Path(target).mkdir()
documents = tokens(source)
each = shard_bytes // documents[0].nbytes
for shard, start in enumerate(range(0, len(documents), each)):
    writer = ArrayRecordWriter(f"{target}/shard-{shard:05d}.array_record", "group_size:1,uncompressed")
    for document in documents[start : start + each]:
        writer.write(document.tobytes())
    writer.close()
