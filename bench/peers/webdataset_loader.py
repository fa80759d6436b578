"""WebDataset: tar shards, shuffled by shards and in a buffer of 1,000 samples.

Batches are made in the workers and rebatched by nobody. Objects are piped from curl, as its documents have it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import webdataset

from bench.peers.contest import Job, contend, listed, number_of, stacked

BUFFER = 1000


def images(job: Job) -> Any:
    from bench.peers.crop import with_simplejpeg

    return photos(job, with_simplejpeg, stacked)


def raw(job: Job) -> Any:
    return photos(job, bytes, listed)


def photos(job: Job, decode: Callable[[bytes], Any], collate: Callable[[Any], Any]) -> Any:
    folder = f"pipe:curl -s -f -L {job.address}" if job.remote else job.source
    urls = [f"{folder}/{name}" for name in job.files] or sorted(map(str, Path(job.source).glob("*.tar")))
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=len(urls))
        .shuffle(BUFFER)
        .map(lambda sample: (number_of(sample["__key__"]), decode(sample["jpg"])))
        .batched(job.batch, partial=True, collation_fn=collate)
    )
    workers = min(job.workers, len(urls))
    return webdataset.WebLoader(
        dataset, batch_size=None, num_workers=workers, prefetch_factor=4, persistent_workers=True
    )


if __name__ == "__main__":
    contend(states=False, images=images, raw=raw)
