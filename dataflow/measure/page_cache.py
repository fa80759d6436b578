"""Whether files lie in the page cache: a read from there says nothing about the disk."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from dataflow.measure.order import Ranges

__all__ = ["cached_share", "drop"]

_SAMPLES = 256
_FLAGS = ctypes.POINTER(ctypes.c_ubyte)


def cached_share(folder: str, ranges: Ranges) -> float | None:
    """Share of the pages of some of the ranges that are in memory, 0 to 1; None where the system does not tell.

    Nothing is read, since that would begin to read ahead. Of files of other users, Linux says that all is in memory.
    """
    chosen = np.linspace(0, len(ranges) - 1, min(_SAMPLES, len(ranges))).astype(int).tolist()
    cached = pages = 0
    libc = ctypes.CDLL(None)
    for number in chosen:
        path, start, length = ranges[number]
        with open(Path(folder) / path, "rb") as file:
            aligned = start - start % mmap.ALLOCATIONGRANULARITY
            size = start + length - aligned
            flags = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, offset=aligned) as mapped:
                memory = np.frombuffer(mapped, np.uint8)
                address = memory.ctypes.data
                del memory  # a mapping that is in use cannot be closed
                failed = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), flags.ctypes.data_as(_FLAGS))
            if failed:
                return None
            cached += int((flags & 1).sum())
            pages += len(flags)
    return cached / pages


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
