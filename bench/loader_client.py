"""One epoch of raw samples through the loader.

Run as a process of its own: `python -m bench.loader_client URL BATCH_SIZE [CONCURRENCY]`, prints figures as JSON.
"""

from __future__ import annotations

import json
import sys

from bench.epoch import Usage
from dataflow import DataLoader, open


def main() -> None:
    url, batch_size, *concurrency = sys.argv[1:]
    usage = Usage()
    dataset = open(url)
    if concurrency:
        dataset.store.concurrency = int(concurrency[0])
    loader = DataLoader(dataset, batch_size=int(batch_size), shuffle=True)
    samples = sum(len(batch["label"]) for batch in loader)
    stats = loader.stats()
    figures = usage.figures(samples, int(stats["stages"]["fetch"]["bytes"]))
    if samples != len(dataset):
        raise AssertionError(f"{samples} samples instead of {len(dataset)}")
    print(loader.report(), file=sys.stderr)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
