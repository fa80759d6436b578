"""Hugging Face datasets: streamed Parquet files, shuffled by files and in a buffer; tokens from memory-mapped Arrow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from bench.peers.contest import LENGTH, Job, contend, listed, number_of, stacked

BUFFER = 1000


def images(job: Job) -> Any:
    from bench.peers.crop import with_simplejpeg

    return photos(job, with_simplejpeg, stacked)


def raw(job: Job) -> Any:
    return photos(job, bytes, listed)


def photos(job: Job, decode: Callable[[bytes], Any], collate: Callable[[Any], Any]) -> Any:
    files = [f"{job.source}/{name}" for name in job.files] or sorted(map(str, Path(job.source).glob("*.parquet")))
    options: dict[str, Any] = {}
    if job.remote:
        options["storage_options"] = {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
    dataset = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True, **options)
    dataset = dataset.shuffle(seed=0, buffer_size=BUFFER)

    def collated(rows: list[dict[str, Any]]) -> Any:
        return collate((number_of(row["key"]), decode(row["image"])) for row in rows)

    workers = min(job.workers, len(files))
    return StatefulDataLoader(
        dataset, job.batch, num_workers=workers, collate_fn=collated, persistent_workers=True, prefetch_factor=4
    )


def tokens(job: Job) -> Any:
    dataset = datasets.load_from_disk(job.source).with_format("arrow")
    batches = BatchSampler(RandomSampler(dataset), job.batch, drop_last=False)
    # A batch is one call of the dataset, whose torch format is 20 times slower than its Arrow.
    return DataLoader(dataset, sampler=batches, batch_size=None, collate_fn=widened)


def widened(batch: Any) -> Any:
    values = batch["tokens"].combine_chunks().flatten().to_numpy()
    return torch.from_numpy(values.reshape(-1, LENGTH).astype(np.int64))


if __name__ == "__main__":
    contend(images=images, raw=raw, tokens=tokens)
