"""torch's DataLoader: files, and a memory map of tokens.

Tokens come a call a batch and without workers, which is faster than handing them over; objects come a batch at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from bench.peers.contest import LENGTH, Job, contend, listed, photo_names, stacked

REQUESTS = 32


class Photos(Dataset):
    def __init__(self, job: Job, decode: Callable[[bytes], Any]) -> None:
        self.source, self.names, self.decode = job.source, photo_names(job), decode

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        return index, self.decode((Path(self.source) / self.names[index]).read_bytes())


class Objects(Photos):
    pool = None

    def __getitems__(self, indices: list[int]) -> list[tuple[int, Any]]:
        import obstore

        if self.pool is None:  # in the worker: neither threads nor connections survive a fork
            from obstore.store import from_url

            self.store = from_url(self.source, client_options={"allow_http": True})
            self.pool = ThreadPoolExecutor(REQUESTS)
        files = self.pool.map(lambda index: bytes(obstore.get(self.store, self.names[index]).bytes()), indices)
        return [(index, self.decode(file)) for index, file in zip(indices, files, strict=True)]


class Tokens(Dataset):
    def __init__(self, job: Job) -> None:
        self.tokens = np.memmap(job.source, np.uint16, "r").reshape(-1, LENGTH)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitems__(self, indices: list[int]) -> Any:
        return torch.from_numpy(self.tokens[indices].astype(np.int64))


def images(job: Job) -> DataLoader:
    return photos(job, getattr(import_module("bench.peers.crop"), sys.argv[2]), stacked)


def raw(job: Job) -> DataLoader:
    return photos(job, bytes, listed)


def photos(job: Job, decode: Callable[[bytes], Any], collate: Callable[[Any], Any], kind: Any = DataLoader) -> Any:
    dataset = (Objects if job.remote else Photos)(job, decode)
    options = {"num_workers": job.workers, "persistent_workers": True, "prefetch_factor": 4, "collate_fn": collate}
    return kind(dataset, job.batch, True, **options)


def tokens(job: Job) -> DataLoader:
    return DataLoader(Tokens(job), job.batch, True, collate_fn=lambda batch: batch)


if __name__ == "__main__":
    contend(states=False, images=images, raw=raw, tokens=tokens)
