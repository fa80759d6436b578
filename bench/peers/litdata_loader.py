"""litData: its optimised chunks, shuffled by chunks and within; objects are copied to a local cache."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from litdata import StreamingDataLoader, StreamingDataset, TokensLoader
from litdata.streaming import downloader

from bench.peers.contest import LENGTH, Job, contend, listed, number_of, stacked


class Photos(StreamingDataset):
    def __init__(self, decode: Callable[[bytes], Any], **options: Any) -> None:
        super().__init__(**options)
        self.decode = decode

    def __getitem__(self, index: Any) -> tuple[int, Any]:
        key, image, _label = super().__getitem__(index)
        return number_of(key), self.decode(image)


class Tokens(StreamingDataset):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index).to(torch.int64)


def images(job: Job) -> Any:
    from bench.peers.crop import with_simplejpeg

    return loader(job, Photos(with_simplejpeg, **source(job)), stacked)


def raw(job: Job) -> Any:
    return loader(job, Photos(bytes, **source(job)), listed)


def tokens(job: Job) -> Any:
    dataset = Tokens(**source(job), item_loader=TokensLoader(LENGTH))
    # Without workers: handing batches over takes longer than making them.
    return StreamingDataLoader(dataset, batch_size=job.batch, collate_fn=torch.stack)


def source(job: Job) -> dict[str, Any]:
    # The default takes samples out of shuffled chunks in stretches, most of which it drops; and one by one, it reads a
    # chunk that it has fetched whole for each.
    places: dict[str, Any] = {"input_dir": job.source, "shuffle": True, "drop_last": False, "batch_decode": "all"}
    if job.remote:
        places["cache_dir"] = tempfile.mkdtemp()
        # It has no option for stores that speak plain http, and gives these to its client.
        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
        places["storage_options"] = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
    return places


def loader(job: Job, dataset: Any, collate: Callable[[Any], Any]) -> Any:
    options = {"num_workers": job.workers, "persistent_workers": True, "prefetch_factor": 4}
    return StreamingDataLoader(dataset, batch_size=job.batch, collate_fn=collate, **options)


if __name__ == "__main__":
    contend(images=images, raw=raw, tokens=tokens)
