"""Whether files lie in the page cache: a read from there says nothing about the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from dataflow.measure.order import Ranges

__all__ = ["cached_share", "drop"]

_SAMPLES = 256


def cached_share(folder: str, ranges: Ranges) -> float | None:
    """Share of some of the ranges that a read finds in memory, 0 to 1; None where the file system does not tell."""
    chosen = np.linspace(0, len(ranges) - 1, min(_SAMPLES, len(ranges))).astype(int).tolist()
    cached = 0
    for number in chosen:
        path, start, length = ranges[number]
        descriptor = os.open(Path(folder) / path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            cached += os.preadv(descriptor, [bytearray(1)], start + length // 2, os.RWF_NOWAIT)
        except BlockingIOError:
            continue
        except OSError:
            return None
        finally:
            os.close(descriptor)
    return cached / len(chosen)


def drop(folder: str, paths: Iterable[str]) -> None:
    """Empties the page cache of files, of what is on the disk already and nobody else has mapped."""
    for path in paths:
        descriptor = os.open(Path(folder) / path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with suppress(OSError):
                os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
