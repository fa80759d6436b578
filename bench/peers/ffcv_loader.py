"""FFCV: its own file, and its compiled pipeline of decoding, windows and flips, in random order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader as FileLoader
from ffcv.loader import OrderOption
from ffcv.transforms import RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

from bench.peers.contest import SIZE, Job, contend


class Loader:
    def __init__(self, job: Job) -> None:
        windows = RandomResizedCropRGBImageDecoder((SIZE, SIZE), scale=(0.08, 1), ratio=(3 / 4, 4 / 3))
        self.batches = FileLoader(
            job.source,
            batch_size=job.batch,
            num_workers=job.workers,
            order=OrderOption.RANDOM,
            os_cache=True,
            seed=int(np.random.default_rng().integers(1 << 31)),
            pipelines={
                "image": [windows, RandomHorizontalFlip(), ToTensor(), ToTorchImage(channels_last=False)],
                "number": [IntDecoder(), ToTensor(), Squeeze()],
            },
        )

    def __iter__(self) -> Iterator[Any]:
        for images, numbers in self.batches:
            yield numbers, images


if __name__ == "__main__":
    contend(states=False, images=Loader)
