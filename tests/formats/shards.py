"""Indexes and reads shards of any format in tests, each block from its own bytes alone."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import zstandard

from dataflow.formats import Place, ShardIndex, format_of
from dataflow.storage import open_store

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, 1),
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}


def pack_parts(suffix: str, data: bytes, cuts: Iterable[int]) -> bytes:
    """Compresses the parts of some data one by one: a gzip member or zstd frame each."""
    ends = [*sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    starts = [0, *ends[:-1]]
    return b"".join(PACKERS[suffix](data[start:end]) for start, end in zip(starts, ends, strict=True))


def index_file(path: Path, block_bytes: int = 1 << 20) -> ShardIndex:
    found = format_of(path.name)
    assert found is not None
    return found.index(open_store(str(path.parent)), path.name, block_bytes)


def rows_of(path: Path, found: ShardIndex) -> list[dict[str, Any]]:
    kind = format_of(path.name)
    assert kind is not None
    data = memoryview(path.read_bytes())
    rows: list[dict[str, Any]] = []
    for block in found.blocks:
        place = Place(block.start, block.rows, block.skip, found.detail)
        batch = kind.read(data[block.start : block.start + block.length], found.schema, place)
        batch.validate(full=True)
        assert batch.num_rows == block.rows
        assert batch.schema == found.schema
        rows += batch.to_pylist()
    return rows


#: Start of a program that asks how much memory it has taken; getrusage would count what its parent took before.
PEAK = """
def peak_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
"""

MUTATE = """
import pathlib, random, resource, sys
from dataflow.errors import DataflowError
from dataflow.formats import Place, format_of
from dataflow.storage import open_store

path, seed, count, tail = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
name = "mutated-" + path.name
format = format_of(path.name)
store = open_store(str(path.parent))
rng = random.Random(seed)
whole = path.read_bytes()
found = format.index(store, path.name, 500)
errors = 0
for _ in range(count):
    data = bytearray(whole)
    low = rng.choice([0, max(0, len(data) - tail), max(0, len(data) - tail // 10)])
    for _ in range(rng.choice([1, 1, 2, 8])):
        data[rng.randrange(low, len(data))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
    if rng.random() < 0.1:
        del data[rng.randrange(len(data)) :]
    (path.parent / name).write_bytes(data)
    try:
        mutated = format.index(store, name, 500)
        rows = 0
        for block in mutated.blocks:
            place = Place(block.start, block.rows, block.skip, mutated.detail)
            batch = format.read(bytes(data[block.start : block.start + block.length]), mutated.schema, place)
            assert batch.num_rows == block.rows
            batch.to_pylist()
    except DataflowError:
        errors += 1
    # Bytes that were damaged after they were indexed.
    block = found.blocks[rng.randrange(len(found.blocks))]
    try:
        place = Place(block.start, block.rows, block.skip, found.detail)
        format.read(bytes(data[block.start : block.start + block.length]), found.schema, place).to_pylist()
    except DataflowError:
        errors += 1
print(errors)
"""


def mutate(path: Path, count: int = 300, seed: int = 0, tail: int = 3000) -> int:
    """Damages a shard at random, many times, in a process of its own; returns how often that raised our errors.

    Args:
        path: The shard.
        count: How often.
        seed: Of the damage.
        tail: Bytes at the shard's end that are damaged more often than others.
    """
    done = subprocess.run(
        [sys.executable, "-c", MUTATE, str(path), str(seed), str(count), str(tail)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return int(done.stdout)
