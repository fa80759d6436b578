"""Hugging Face datasets: Parquet files, 100 rows a row group as their Hub writes images."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.source import files, places

source, target, shard_bytes = places()
Path(target).mkdir()
schema = pa.schema({"key": pa.string(), "image": pa.binary(), "label": pa.int64()})
shard, nbytes, writer, rows = 0, 0, None, []
for row in files(source):
    rows.append(dict(zip(schema.names, row, strict=True)))
    if len(rows) == 100:
        if writer is None:
            writer = pq.ParquetWriter(f"{target}/shard-{shard:05d}.parquet", schema, compression="none")
            shard += 1
        writer.write_table(pa.Table.from_pylist(rows, schema))
        nbytes += sum(len(row["image"]) for row in rows)
        rows = []
        if nbytes >= shard_bytes:
            writer.close()
            nbytes, writer = 0, None
if rows:
    writer = writer or pq.ParquetWriter(f"{target}/shard-{shard:05d}.parquet", schema, compression="none")
    writer.write_table(pa.Table.from_pylist(rows, schema))
if writer is not None:
    writer.close()
