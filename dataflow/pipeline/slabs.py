"""Slabs: memory for one column of batches, used again once nobody refers to the batch that had it."""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


class Slabs:
    """Memory for batches of one shape; taken by many threads.

    A fresh batch of that size would cost a page fault for every 4 KiB, about as much as filling it.

    Attributes:
        count: Slabs that there are.
        peak_bytes: Bytes of the most slabs there ever were.

    Args:
        rows: Most rows of a batch.
        shape: Shape of a row.
        dtype: NumPy's name of its type.
        keep: Slabs to keep when they are free.
        pin: Whether they are page-locked. Torch then keeps free ones itself, since only torch knows when a copy to the
            GPU that is still under way has ended.
    """

    def __init__(self, rows: int, shape: tuple[int, ...], dtype: str, keep: int, pin: bool) -> None:
        self._shape = (rows, *shape)
        self._dtype = np.dtype(dtype)
        self._nbytes = math.prod(self._shape) * self._dtype.itemsize
        self._keep = keep
        self._pin = pin
        self._pinned: set[int] = set()
        # A deque needs no lock: batches may be freed in the midst of anything, also while the lock below is held.
        self._free: deque[NDArray[Any]] = deque()
        self._lock = threading.Lock()
        self.count = 0
        self.peak_bytes = 0

    def take(self, rows: int) -> torch.Tensor:
        """A tensor of so many rows, not initialised. Its memory is free again once no tensor shares it any more."""
        if self._pin:
            return self._take_pinned(rows)
        with self._lock:
            while len(self._free) > self._keep:
                self._free.pop()
                self.count -= 1
            try:
                memory = self._free.pop()
            except IndexError:
                memory = np.empty(self._shape, self._dtype)
                self._count_one()
        # Torch holds this array, and no other, as long as any tensor uses the memory.
        lease = memory[:rows]
        weakref.finalize(lease, self._free.append, memory).atexit = False
        return torch.from_numpy(lease)

    def _take_pinned(self, rows: int) -> torch.Tensor:
        tensor = torch.empty(self._shape, dtype=torch.from_numpy(np.empty(0, self._dtype)).dtype, pin_memory=True)
        with self._lock:
            if tensor.data_ptr() not in self._pinned:
                self._pinned.add(tensor.data_ptr())
                self._count_one()
        return tensor[:rows]

    def _count_one(self) -> None:
        self.count += 1
        self.peak_bytes = max(self.peak_bytes, self.count * self._nbytes)
