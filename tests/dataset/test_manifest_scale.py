"""A million shards, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataflow.dataset.manifest_file import BLOCK, COLUMNS, Header
from dataflow.dataset.manifest_writer import write_manifest
from dataflow.storage import open_store

SHARDS = 1_000_000

OPEN = """
import json, resource, sys, time
import dataflow.dataset as dataset
import psutil

def resident():
    return psutil.Process().memory_info().rss

dataset.Manifest  # everything is imported
before = resident()
start = time.perf_counter()
manifest = dataset.Manifest.open(sys.argv[1])
opened = time.perf_counter() - start
grown = resident() - before
start = time.perf_counter()
for row in range(0, manifest.num_rows, manifest.num_rows // 1000):
    block, _ = manifest.locate(row)
    manifest.shard_path(manifest.shard_of(block)), manifest.checksum(block)
searched = time.perf_counter() - start
sizes = [manifest.num_shards, manifest.num_blocks, manifest.num_rows, manifest.block_rows]
print(json.dumps([*sizes, opened, grown, searched]))
"""


def digests(count: int) -> pa.FixedSizeBinaryArray:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(bytes(16 * count))])


def test_a_million_shards_open_in_a_second_and_100_mb(tmp_path: Path) -> None:
    numbers = np.arange(SHARDS)
    table = pa.StructArray.from_arrays(
        [
            pa.array(np.full(SHARDS, 8)),
            pa.array(np.full(SHARDS, 1 << 20)),
            pa.array(np.full(SHARDS, 40, np.int32)),
            digests(SHARDS),
            pa.array(numbers * 40),
            pa.array(np.zeros(SHARDS, np.int64)),
        ],
        fields=list(BLOCK),
    )
    offsets = pa.array(np.arange(SHARDS + 1, dtype=np.int32))
    shards = pa.RecordBatch.from_arrays(
        [
            pa.array(
                [f"train/part-{number % 1000:03d}/shard-{number:07d}.arrow" for number in range(SHARDS)],
                pa.large_string(),
            ),
            pa.array(np.full(SHARDS, 1 << 20)),
            pa.array(["d41d8cd98f00b204e9800998ecf8427e"] * SHARDS, pa.large_string()),
            digests(SHARDS),
            pa.array([b""] * SHARDS, pa.large_binary()),
            pa.array([[]] * SHARDS, COLUMNS.field("excluded").type),
            pa.ListArray.from_arrays(offsets, table, type=COLUMNS.field("blocks").type),
        ],
        schema=COLUMNS,
    )
    header = Header("arrow", "", 40 * SHARDS, SHARDS << 20, 40, pa.schema([("x", pa.int64())]), {})
    write_manifest(open_store(str(tmp_path)), header, shards)

    run = subprocess.run([sys.executable, "-c", OPEN, str(tmp_path)], capture_output=True, text=True, check=True)
    num_shards, num_blocks, num_rows, block_rows, opened, grown, searched = json.loads(run.stdout)
    print(f"opened in {opened:.3f} s, {grown / 1e6:.0f} MB more, 1000 searches in {searched:.3f} s")
    assert (num_shards, num_blocks, num_rows, block_rows) == (SHARDS, SHARDS, 40 * SHARDS, 40)
    assert opened < 1
    assert grown < 100e6
    assert searched < 20  # a look through all shards for each would take minutes, also on a busy machine
