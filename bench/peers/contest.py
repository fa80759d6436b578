"""What every loader has to do in `bench.loaders`, and how it is measured: a process of its own, given a job as JSON.

A contender makes, for each kind of work, an iterable of batches `(ids, data)`, or of data alone for tokens. Data is for
- images: uint8 [batch, 3, 224, 224], each a random window (8 to 100 % of the area, 3 : 4 to 4 : 3) resized with
  antialiasing and mirrored half the time;
- raw: a list of the files' bytes;
- tokens: int64 [batch, 2048], widened from uint16; a sample's first two tokens are its number.
Every epoch is shuffled, and has each sample once. Ids are the numbers of samples.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.checks import check_epoch, check_pictures
from bench.peers.tree import adopt_orphans, cpu_seconds, memory_bytes

SIZE = 224
LENGTH = 2048
WARM_UP = 4  # batches


@dataclass(frozen=True)
class Job:
    """What to load.

    Attributes:
        kind: "images", "raw" or "tokens".
        source: Folder, file or s3:// URL of the data in the contender's format.
        files: The names in that folder, where there are few: the store lists nothing.
        count: Samples of an epoch.
        nbytes: Bytes of the files of an epoch; for raw only.
        batch: Samples of a batch.
        workers: Threads or processes.
        seconds: How long to measure, after some batches, over as many epochs as it takes; 0: one epoch, cold.
        check: Look at the content of every batch: the samples are `checks.write_probes` or `bench.loaders.data` tokens.
        limit: Stop a cold epoch after so many seconds; 0: never.
        only_first: Stop after the first batch.
        state: File of a state, to continue from; a run with `stop_at` writes it.
        stop_at: Share of the epoch after which the state is written.
    """

    kind: str
    source: str
    files: tuple[str, ...] = ()
    count: int = 0
    nbytes: int = 0
    batch: int = 64
    workers: int = 2
    seconds: float = 0
    check: bool = False
    limit: float = 0
    only_first: bool = False
    state: str = ""
    stop_at: float = 0

    @property
    def remote(self) -> bool:
        return self.source.startswith("s3://")

    @property
    def address(self) -> str:
        """The http:// address of an s3:// source."""
        return f"{os.environ['AWS_ENDPOINT_URL']}/{self.source.removeprefix('s3://')}"


def unpacked(batch: Any) -> tuple[Any, Any]:
    """Ids and data; torch makes lists of tuples."""
    return tuple(batch) if isinstance(batch, (tuple, list)) else (None, batch)  # type: ignore[return-value]


Loader = Any  # an iterable of batches, which may have state_dict() and load_state_dict()
Unpack = Callable[[Any], tuple[Any, Any]]


def contend(unpack: Unpack = unpacked, states: bool = True, **loaders: Callable[[Job], Loader]) -> None:
    """Do what the command line says with one of the loaders, and print the figures."""
    adopt_orphans()
    job = Job(**json.loads(sys.argv[1]))
    if job.kind not in loaders or ((job.state or job.stop_at) and not states):
        sys.exit(f"has no {job.kind}" + (" that resume" if job.kind in loaders else ""))
    start = time.monotonic()
    loader = loaders[job.kind](job)
    if job.stop_at:
        for _ in zip(range(int(job.count * job.stop_at / job.batch)), loader, strict=False):
            pass
        Path(job.state).write_bytes(pickle.dumps(loader.state_dict()))
        figures = {"stopped": 1.0}
    else:
        if job.state:
            loader.load_state_dict(pickle.loads(Path(job.state).read_bytes()))
        figures = _measure(job, loader, unpack, start)
    print(json.dumps(figures), flush=True)


def _measure(job: Job, loader: Loader, unpack: Unpack, start: float) -> dict[str, float]:
    samples, nbytes, first, before = 0, 0, 0.0, 0.0 if job.seconds else cpu_seconds(os.getpid())
    cut, ids = False, []
    pictures: list[Any] = []
    counted_from, end = 0, start + job.limit if job.limit else float("inf")
    for number, batch in enumerate(_batches(loader, endless=job.seconds > 0)):
        names, data = unpack(batch)
        first = first or time.monotonic()
        rows = len(data)
        if job.kind == "raw":
            nbytes += sum(map(len, data))
        else:
            shape, dtype = ((SIZE,) * 2, "uint8") if job.kind == "images" else ((LENGTH,), "int64")
            if tuple(data.shape[-len(shape) :]) != shape or str(data.dtype).removeprefix("torch.") != dtype:
                raise AssertionError(f"a batch is {data.dtype} {tuple(data.shape)}")
        if job.check and job.kind == "tokens":
            names = data[:, 0] + (data[:, 1] << 16)
        if names is not None:
            ids += names if isinstance(names, list) else names.tolist()
        if job.check and job.kind == "images":
            pictures.append(data.reshape(rows, 3, SIZE, SIZE))
        samples += rows
        if job.only_first:
            break
        if job.seconds and number == WARM_UP:
            before, start, counted_from = cpu_seconds(os.getpid()), time.monotonic(), samples
            end = start + job.seconds
        if cut := time.monotonic() > end:
            break
    if not samples:
        raise AssertionError("no batch came")
    stop, cpu = time.monotonic(), cpu_seconds(os.getpid()) - before
    if not (cut or job.only_first):
        check_epoch(ids, samples, job.count)
        if job.nbytes and nbytes != job.nbytes:
            raise AssertionError(f"{nbytes} bytes instead of {job.nbytes}")
        if job.check and job.kind == "images":
            check_pictures(pictures)
    counted = samples - counted_from
    return {
        "rate": counted / (stop - start),
        "per_cpu": counted / max(cpu, 0.01),
        "first_at": first,
        "memory_at_end": memory_bytes(os.getpid()),
    }


def _batches(loader: Loader, endless: bool) -> Iterator[Any]:
    yield from loader
    while endless:
        yield from loader


def photo_names(job: Job) -> list[str]:
    """Paths below the folder of photographs; a photograph's place is its number."""
    return [f"class-{number % 100:03d}/{number:06d}.jpg" for number in range(job.count)]


def number_of(key: str) -> int:
    """The number of the photograph that has a key such as class-007/000107."""
    return int(key.rpartition("/")[2].partition(".")[0])


def stacked(samples: Iterable[tuple[int, Any]]) -> tuple[list[int], Any]:
    """A batch of decoded samples."""
    import torch

    ids, images = zip(*samples, strict=True)
    return list(ids), torch.stack(images)


def listed(samples: Iterable[tuple[int, bytes]]) -> tuple[list[int], list[bytes]]:
    """A batch of raw samples."""
    ids, files = zip(*samples, strict=True)
    return list(ids), list(files)
