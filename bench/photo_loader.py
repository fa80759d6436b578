"""Photographs decoded through the whole loader: `python -m bench.photo_loader URL EPOCHS THREADS`, figures as JSON.

Seconds count from before the first batch is asked for, so that nothing has been decoded in advance.
"""

from __future__ import annotations

import json
import resource
import sys
from time import perf_counter

import dataflow
from bench.peers.photographs import BATCH
from bench.photo_requests import IMAGE, SEED


def main() -> None:
    url, epochs, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dataset = dataflow.open(url).select("image").decode(image=IMAGE)

    def load(epochs: int) -> dataflow.DataLoader:
        return dataflow.DataLoader(
            dataset, batch_size=BATCH, shuffle=True, seed=SEED, num_workers=threads, epochs=epochs
        )

    next(iter(load(1)))  # as for the others: code is loaded, files are in the page cache
    loader = load(epochs)
    before, start = resource.getrusage(resource.RUSAGE_SELF), perf_counter()
    count = sum(len(batch["image"]) for batch in loader)
    seconds, after = perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    if count != epochs * len(dataset):
        raise AssertionError(f"{count} images instead of {epochs * len(dataset)}")
    print(loader.report(), file=sys.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"rate": count / seconds, "per_cpu": count / cpu}))


if __name__ == "__main__":
    main()
