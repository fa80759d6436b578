"""NVIDIA DALI on processors: its own reader of files, decoder of windows, and antialiased resize."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from bench.peers.contest import SIZE, Job, contend, photo_names

BUFFER = 1000


@pipeline_def
def photographs(job: Job) -> Any:
    names = photo_names(job)
    files, numbers = fn.readers.file(
        file_root=job.source,
        files=names,
        labels=list(range(len(names))),
        random_shuffle=True,
        initial_fill=BUFFER,
        name="reader",
    )
    cut = fn.decoders.image_random_crop(
        files, device="cpu", random_area=[0.08, 1], random_aspect_ratio=[3 / 4, 4 / 3], output_type=types.RGB
    )
    resized = fn.resize(cut, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True)
    mirror = fn.random.coin_flip(probability=0.5)
    return numbers, fn.crop_mirror_normalize(resized, mirror=mirror, dtype=types.UINT8, output_layout="CHW")


class Loader:
    def __init__(self, job: Job) -> None:
        pipeline = photographs(
            job, batch_size=job.batch, num_threads=job.workers, device_id=None, prefetch_queue_depth=2
        )
        self.batches = DALIGenericIterator(
            [pipeline],
            ["ids", "images"],
            reader_name="reader",
            last_batch_policy=LastBatchPolicy.PARTIAL,
            auto_reset=True,
        )

    def __iter__(self) -> Iterator[Any]:
        for (batch,) in self.batches:
            yield batch["ids"].flatten(), batch["images"]


if __name__ == "__main__":
    contend(states=False, images=Loader)
