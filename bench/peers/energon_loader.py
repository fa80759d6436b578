"""Megatron Energon: WebDataset tars with its index (energon_writer), and a task encoder that decodes."""

from __future__ import annotations

from typing import Any

from megatron.energon import (
    Cooker,
    DefaultTaskEncoder,
    WorkerConfig,
    basic_sample_keys,
    get_savable_loader,
    get_train_dataset,
    stateless,
)

from bench.peers.contest import Job, contend, listed, number_of, stacked

BUFFER = 1000


@stateless
def cook(sample: dict[str, Any]) -> dict[str, Any]:
    return {**basic_sample_keys(sample), "number": number_of(sample["__key__"]), "image": sample["jpg"]}


class Raw(DefaultTaskEncoder):
    cookers = [Cooker(cook)]  # noqa: RUF012
    decoder = None

    def batch(self, samples: list[Any]) -> Any:
        return listed((sample["number"], sample["image"]) for sample in samples)


class Images(Raw):
    @stateless
    def encode_sample(self, sample: dict[str, Any]) -> dict[str, Any]:
        from bench.peers.crop import with_simplejpeg

        return {**sample, "image": with_simplejpeg(sample["image"])}

    def batch(self, samples: list[Any]) -> Any:
        return stacked((sample["number"], sample["image"]) for sample in samples)


class Loader:
    def __init__(self, job: Job, encoder: Any) -> None:
        dataset = get_train_dataset(
            job.source,
            worker_config=WorkerConfig(rank=0, world_size=1, num_workers=job.workers),
            batch_size=job.batch,
            shuffle_buffer_size=BUFFER,
            max_samples_per_sequence=100,
            task_encoder=encoder,
            repeat=job.seconds > 0,
        )
        self.batches = get_savable_loader(dataset, prefetch_factor=4)

    def __iter__(self) -> Any:
        return iter(self.batches)

    def state_dict(self) -> Any:
        return self.batches.save_state_rank()

    def load_state_dict(self, state: Any) -> None:
        self.batches.restore_state_rank(state)


if __name__ == "__main__":
    contend(images=lambda job: Loader(job, Images()), raw=lambda job: Loader(job, Raw()))
