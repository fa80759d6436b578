"""Photographs decoded and resized by dataflow's native core."""

from __future__ import annotations

import json
import sys

import numpy as np

from bench.peers.photographs import BATCH, SIZE, Requests, load, timed
from dataflow import _native


def main(threads: int, requests: Requests) -> dict[str, float]:
    files, windows, flips = requests
    values = [_native.Array(np.frombuffer(b"".join(files), np.uint8))]
    offsets = [_native.Array(np.cumsum([0, *map(len, files)]).astype(np.int64))]
    out = np.empty((BATCH, 3, SIZE, SIZE), np.uint8)

    def batch(first: int, last: int) -> None:
        count = last - first
        block, row = np.zeros(count, np.int32), np.arange(first, last, dtype=np.int64)
        cuts, mirrored = windows[first:last], flips[first:last]
        positions = np.arange(count, dtype=np.int64)
        failed = _native.decode_jpegs(
            values, offsets, block, row, positions, cuts, mirrored, out[:count], None, None, False, threads
        )
        assert not failed, failed

    return timed(batch, len(files))


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[2]), load(sys.argv[1]))))
