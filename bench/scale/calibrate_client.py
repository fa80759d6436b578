"""The process whose work `bench.scale.calibrate` measures: `python -m bench.scale.calibrate_client PHOTOGRAPHS URL...`.

Prints as JSON: anonymous memory before anything is read, processor seconds for each photograph, and for an epoch of
each URL. Code is loaded, connections are open and memory is touched before seconds count.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import dataflow
from bench.photo_requests import IMAGE

_BATCH = 64


def main() -> None:
    photographs, *urls = sys.argv[1:]
    loader = dataflow.DataLoader  # imports all that a process needs
    memory = Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]
    images = dataflow.open(photographs).decode(image=IMAGE)
    print(
        json.dumps(
            {
                "memory_mb": int(memory) * 1024 / 1e6,
                "seconds_per_photograph": _epoch(loader, images) / len(images),
                "seconds": [_epoch(loader, dataflow.open(url)) for url in urls],
            }
        )
    )


def _epoch(loader: type[dataflow.DataLoader], dataset: dataflow.Dataset) -> float:
    """Processor seconds of the second of two epochs."""
    seconds = 0.0
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF)
        for _batch in loader(dataset, batch_size=_BATCH, shuffle=True, num_workers=1):
            pass
        after = resource.getrusage(resource.RUSAGE_SELF)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds


if __name__ == "__main__":
    main()
