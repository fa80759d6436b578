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
    """Memory for one column of batches; taken by many threads.

    A fresh batch of that size would cost a page fault for every 4 KiB, about as much as filling it.

    Attributes:
        count: Slabs that there are.
        peak_bytes: Bytes of the most slabs there ever were.

    Args:
        rows: Most rows of a batch.
        shape: Shape of a row; where it differs from batch to batch, that of the first one.
        dtype: NumPy's name of its type.
        keep: Slabs to keep when they are free.
        pin: Whether they are page-locked. Torch then keeps free ones itself, since only torch knows when a copy to the
            GPU that is still under way has ended.
    """

    def __init__(self, rows: int, shape: tuple[int, ...], dtype: str, keep: int, pin: bool) -> None:
        self._shape = shape
        self._dtype = np.dtype(dtype)
        # Slabs grow to what the largest batch so far has needed.
        self._size = rows * math.prod(shape)
        self._keep = keep
        self._pinned: dict[int, int] | None = {} if pin else None
        self._torch_dtype = torch.from_numpy(np.empty(0, self._dtype)).dtype
        # A deque needs no lock: batches may be freed in the midst of anything, also while the lock below is held.
        self._free: deque[NDArray[Any]] = deque()
        self._lock = threading.Lock()
        self._nbytes = 0
        self.count = 0
        self.peak_bytes = 0

    def take(self, rows: int, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """A tensor of so many rows, not initialised. Its memory is free again once no tensor shares it any more.

        Args:
            rows: Rows of the batch.
            shape: Shape of its rows, if not the first one's.
        """
        shape = self._shape if shape is None else shape
        size = rows * math.prod(shape)
        if self._pinned is not None:
            return self._take_pinned(size).reshape(rows, *shape)
        with self._lock:
            self._size = max(self._size, size)
            while len(self._free) > self._keep:
                self._forget(self._free.pop())
            try:
                memory = self._free.pop()
            except IndexError:
                memory = None
            if memory is not None and len(memory) < size:
                self._forget(memory)
                memory = None
            if memory is None:
                memory = np.empty(self._size, self._dtype)
                self.count += 1
                self._count_bytes(memory.nbytes)
        # Torch holds this array, and no other, as long as any tensor uses the memory.
        lease = memory[:size].reshape(rows, *shape)
        weakref.finalize(lease, self._free.append, memory).atexit = False
        return torch.from_numpy(lease)

    def _take_pinned(self, size: int) -> torch.Tensor:
        assert self._pinned is not None
        with self._lock:
            self._size = max(self._size, size)
            tensor = torch.empty(self._size, dtype=self._torch_dtype, pin_memory=True)
            # Torch gives the same memory again and again: each place counts once, with the most that was there.
            place, known = tensor.data_ptr(), self._pinned.get(tensor.data_ptr(), 0)
            if tensor.nbytes > known:
                self._pinned[place] = tensor.nbytes
                self.count = len(self._pinned)
                self._count_bytes(tensor.nbytes - known)
        return tensor[:size]

    def _forget(self, memory: NDArray[Any]) -> None:
        self.count -= 1
        self._nbytes -= memory.nbytes

    def _count_bytes(self, nbytes: int) -> None:
        self._nbytes += nbytes
        self.peak_bytes = max(self.peak_bytes, self._nbytes)
