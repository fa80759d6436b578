"""Memory that is read into again and again: fresh pages cost more than reading does."""

from __future__ import annotations

import weakref

import numpy as np
import pyarrow as pa

__all__ = ["Slabs"]


class Slabs:
    """Buffers of one size, each used again when nothing refers to it any more. For many threads.

    Args:
        num_bytes: Size of a buffer.
    """

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._free: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []

    def take(self, num_bytes: int) -> tuple[memoryview, pa.Buffer]:
        """Memory to write to, and the same memory as Arrow's columns hold it; larger ones are not used again."""
        if num_bytes > self._num_bytes:
            whole = np.empty(num_bytes, np.uint8)
            return whole.data, pa.py_buffer(whole)
        try:
            slab = self._free.pop()
        except IndexError:
            slab = np.empty(self._num_bytes, np.uint8)
        # Arrow's buffer keeps this view alive, and nobody else does: with it the last use of the memory ends.
        view = slab[:num_bytes]
        weakref.finalize(view, self._free.append, slab).atexit = False
        return slab.data[:num_bytes], pa.py_buffer(view)
