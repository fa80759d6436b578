"""SPDL: a pipeline of threads. Files are read and decoded a batch at a time; objects are fetched by asyncio tasks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spdl.pipeline import PipelineBuilder

from bench.peers.contest import Job, contend, listed, photo_names, stacked

REQUESTS = 64


class Loader:
    def __init__(self, job: Job, decode: Callable[[bytes], Any], collate: Callable[[Any], Any]) -> None:
        self.job, self.decode, self.collate, self.names = job, decode, collate, photo_names(job)

    def read(self, number: int) -> tuple[int, bytes]:
        return number, (Path(self.job.source) / self.names[number]).read_bytes()

    def load(self, samples: list[Any]) -> Any:
        files = samples if self.job.remote else map(self.read, samples)
        return self.collate([(number, self.decode(file)) for number, file in files])

    def __iter__(self) -> Iterator[Any]:
        numbers = random.sample(range(self.job.count), self.job.count)
        builder = PipelineBuilder().add_source(numbers)
        if self.job.remote:
            builder = builder.pipe(self.getter(), concurrency=REQUESTS)
        builder = builder.aggregate(self.job.batch).pipe(self.load, concurrency=self.job.workers)
        pipeline = builder.add_sink(4).build(num_threads=self.job.workers)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    def getter(self) -> Callable[[int], Any]:
        import obstore
        from obstore.store import from_url

        store = from_url(self.job.source, client_options={"allow_http": True})

        async def get(number: int) -> tuple[int, bytes]:
            answer = await obstore.get_async(store, self.names[number])
            return number, bytes(await answer.bytes_async())

        return get


def images(job: Job) -> Loader:
    from bench.peers.crop import with_simplejpeg

    return Loader(job, with_simplejpeg, stacked)


def raw(job: Job) -> Loader:
    return Loader(job, bytes, listed)


if __name__ == "__main__":
    contend(states=False, images=images, raw=raw)
