"""The ceiling: obstore alone, in threads, on given ranges, bodies dropped.

Run as a process of its own: `python -m bench.bare_client URL MANIFEST RANGES CONCURRENCY`, prints figures as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from itertools import count

import numpy as np
from obstore.store import S3Store

from bench.epoch import Usage
from dataflow.dataset import Manifest
from dataflow.measure.order import Ranges, ranges_in_order
from dataflow.sampling.keys import key
from dataflow.sampling.lanes import default_lanes
from dataflow.sampling.layout import BlockLayout
from dataflow.sampling.stream import StreamRules

WIDE = 4 << 20


def blocks_in_order(manifest: Manifest, seed: int) -> Ranges:
    """The blocks of an epoch in the order in which the loader first needs them; those that two lanes cut come twice."""
    lanes = default_lanes(manifest.num_blocks, int(manifest.lengths.max()))
    rules = StreamRules(BlockLayout.of(manifest.rows), seed, "", lanes, True)
    return ranges_in_order(manifest, rules, slots=manifest.num_rows)


def wide_ranges(manifest: Manifest, seed: int) -> Ranges:
    """All shards in ranges of 4 MiB, shuffled."""
    ranges = []
    for shard in range(manifest.num_shards):
        size = manifest.shard_size(shard)
        for start in range(0, size, WIDE):
            ranges.append((manifest.shard_path(shard), start, min(WIDE, size - start)))
    np.random.default_rng(key(seed)).shuffle(ranges)
    return ranges


def main() -> None:
    url, manifest_folder, kind, concurrency = sys.argv[1:5]
    manifest = Manifest.open(manifest_folder)
    ranges = (blocks_in_order if kind == "blocks" else wide_ranges)(manifest, 0)
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    store = S3Store(
        bucket,
        prefix=prefix,
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    turn = count()

    def work() -> None:
        while (number := next(turn)) < len(ranges):
            path, start, length = ranges[number]
            if len(store.get_range(path, start=start, length=length)) != length:
                raise OSError(f"short body: {path} from {start}")

    threads = [threading.Thread(target=work) for _ in range(int(concurrency))]
    usage = Usage()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(usage.figures(manifest.num_rows, sum(length for _, _, length in ranges))))


if __name__ == "__main__":
    main()
