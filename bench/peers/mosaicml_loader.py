"""MosaicML Streaming: MDS shards, shuffled by its default algorithm (py1e); objects are copied to a local folder."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bench.peers.contest import Job, contend, listed, number_of, stacked
from bench.peers.mosaicml import StreamingDataLoader, StreamingDataset


class Photos(StreamingDataset):
    def __init__(self, decode: Callable[[bytes], Any], **options: Any) -> None:
        super().__init__(**options)
        self.decode = decode

    def __getitem__(self, index: int) -> tuple[int, Any]:
        sample = super().__getitem__(index)
        return number_of(sample["key"]), self.decode(sample["image"])


class Tokens(StreamingDataset):
    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(super().__getitem__(index)["tokens"].astype(np.int64))


def images(job: Job) -> Any:
    from bench.peers.crop import with_simplejpeg

    return loader(job, Photos(with_simplejpeg, **source(job)), stacked)


def raw(job: Job) -> Any:
    return loader(job, Photos(bytes, **source(job)), listed)


def tokens(job: Job) -> Any:
    # Without workers: handing batches over takes longer than making them.
    return StreamingDataLoader(Tokens(**source(job)), batch_size=job.batch, collate_fn=torch.stack)


def source(job: Job) -> dict[str, Any]:
    places = {"remote": job.source, "local": tempfile.mkdtemp()} if job.remote else {"local": job.source}
    return {**places, "shuffle": True, "batch_size": job.batch}


def loader(job: Job, dataset: Any, collate: Callable[[Any], Any]) -> Any:
    return StreamingDataLoader(
        dataset,
        batch_size=job.batch,
        num_workers=job.workers,
        collate_fn=collate,
        persistent_workers=True,
        prefetch_factor=4,
        # Its connections stall in workers that were forked while one was open.
        multiprocessing_context="spawn" if job.remote else None,
    )


if __name__ == "__main__":
    contend(images=images, raw=raw, tokens=tokens)
