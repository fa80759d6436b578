"""torchdata's nodes: a sampler, batches of numbers, and threads that make batches of them.

Threads take whole batches, so that queues are passed once a batch; what they call releases the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import RandomSampler
from torchdata.nodes import Batcher, Loader, ParallelMapper, SamplerWrapper

from bench.peers.contest import Job, contend, listed, stacked
from bench.peers.torch_loader import Objects, Photos, Tokens


def images(job: Job) -> Loader:
    from bench.peers.crop import with_simplejpeg

    return photos(job, with_simplejpeg, stacked)


def raw(job: Job) -> Loader:
    return photos(job, bytes, listed)


def photos(job: Job, decode: Callable[[bytes], Any], collate: Callable[[Any], Any]) -> Loader:
    dataset = (Objects if job.remote else Photos)(job, decode)
    return batches(job, dataset, lambda indices: collate(fetch(dataset, indices)))


def fetch(dataset: Any, indices: list[int]) -> list[Any]:
    get = getattr(dataset, "__getitems__", None)
    return get(indices) if get else [dataset[index] for index in indices]


def tokens(job: Job) -> Loader:
    dataset = Tokens(job)
    return batches(job, dataset, dataset.__getitems__)


def batches(job: Job, dataset: Any, load: Callable[[list[int]], Any]) -> Loader:
    numbers = Batcher(SamplerWrapper(RandomSampler(dataset)), job.batch, drop_last=False)
    return Loader(ParallelMapper(numbers, load, num_workers=job.workers, method="thread"))


if __name__ == "__main__":
    contend(images=images, raw=raw, tokens=tokens)
