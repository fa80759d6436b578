"""Grain: ArrayRecord files, a global shuffle, and its reading threads.

What they call releases the interpreter lock; worker processes (`mp_prefetch`) are slower here, and start every epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np

from bench.peers.contest import Job, contend, listed, number_of

SEED = 0


def record(data: bytes) -> tuple[int, bytes]:
    """What array_record_writer wrote."""
    length, _label = struct.unpack_from("<iq", data)
    start = struct.calcsize("<iq")
    return number_of(data[start : start + length].decode()), data[start + length :]


def decoded(data: bytes) -> tuple[int, Any]:
    from bench.peers.crop import with_simplejpeg

    number, file = record(data)
    return number, with_simplejpeg(file).numpy()


def document(data: bytes) -> Any:
    return np.frombuffer(data, np.uint16).astype(np.int64)


class Loader:
    """The state is the iterator's."""

    def __init__(self, job: Job, function: Callable[[bytes], Any], collate: Any = None) -> None:
        files = sorted(map(str, Path(job.source).glob("*.array_record")))
        samples = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(files)).shuffle(SEED)
        threads = grain.ReadOptions(num_threads=job.workers, prefetch_buffer_size=4 * job.batch)
        self.batches = samples.map(function).batch(job.batch, batch_fn=collate).to_iter_dataset(threads)
        self.state: Any = None

    def __iter__(self) -> Iterator[Any]:
        self.iterator = iter(self.batches)
        if self.state is not None:
            self.iterator.set_state(self.state)
            self.state = None
        return self.iterator

    def state_dict(self) -> Any:
        return self.iterator.get_state()

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def images(job: Job) -> Loader:
    return Loader(job, decoded)


def raw(job: Job) -> Loader:
    return Loader(job, record, listed)


def tokens(job: Job) -> Loader:
    return Loader(job, document)


if __name__ == "__main__":
    contend(images=images, raw=raw, tokens=tokens)
