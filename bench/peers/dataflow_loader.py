"""dataflow."""

from __future__ import annotations

from typing import Any

import obstore  # noqa: F401  # imported before the clock starts, as the others import what they use
import torch  # noqa: F401

import dataflow
from bench.peers.contest import SIZE, Job, contend

dataflow.DataLoader  # noqa: B018  # imports on first use
MANY = 100_000  # epochs, that batches run through
IMAGE = dataflow.Image(SIZE, crop="random_resized", flip=0.5)


def images(job: Job) -> Any:
    return loader(job, dataflow.open(job.source).select("image").decode(image=IMAGE))


def raw(job: Job) -> Any:
    return loader(job, dataflow.open(job.source).select("image"))


def tokens(job: Job) -> Any:
    return loader(job, dataflow.open(job.source), dtypes={"tokens": "int64"})


def loader(job: Job, dataset: dataflow.Dataset, **options: Any) -> dataflow.DataLoader:
    epochs = MANY if job.seconds else 1
    return dataflow.DataLoader(
        dataset, job.batch, shuffle=True, num_workers=job.workers, epochs=epochs, drop_last=epochs > 1, **options
    )


def unpack(batch: dict[str, Any]) -> tuple[Any, Any]:
    return batch["sample_id"], batch["image"] if "image" in batch else batch["tokens"]


if __name__ == "__main__":
    contend(unpack, images=images, raw=raw, tokens=tokens)
