"""Values as a short pickle and the memory of their arrays beside it, which can then be copied as it is.

Pickles run code when they are loaded. These only pass between a process and the worker processes that it started
itself, through sockets and memory that have no name: nobody else can put one there.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = ["dump", "first_unpicklable", "load"]


def dump(value: Any) -> tuple[memoryview, list[pickle.PickleBuffer]]:
    """The pickle of a value without its arrays and tensors, and their memory.

    Classes and functions of a script travel by value, as there is no such script in the other process.
    """
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(value)
    return stream.getbuffer(), buffers


def load(stream: memoryview, buffers: Iterable[Any]) -> Any:
    """The value; arrays and tensors use `buffers`, and can be written to if those can."""
    return pickle.loads(stream, buffers=buffers)


def first_unpicklable(values: Sequence[Any]) -> int:
    """Number of the first value that cannot be dumped; 0 if each can alone."""
    for number, value in enumerate(values):
        try:
            dump(value)
        except Exception:
            return number
    return 0


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, value: Any) -> Any:
        # Torch takes a second to import, and a function may well have no use for it.
        torch = sys.modules.get("torch")
        if torch is not None and type(value) is torch.Tensor and _is_plain(value):
            return _tensor, _parts(value)
        return super().reducer_override(value)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is no more than its values; torch itself pickles others."""
    import torch

    strided = tensor.device.type == "cpu" and tensor.layout is torch.strided
    return strided and not (tensor.requires_grad or tensor.is_quantized)


def _parts(tensor: torch.Tensor) -> tuple[Any, torch.dtype, Sequence[int]]:
    import torch

    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    # As bytes: NumPy does not know every type that torch has.
    return pickle.PickleBuffer(flat.view(torch.uint8).numpy().data), tensor.dtype, tuple(tensor.shape)


def _tensor(memory: Any, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.asarray(memory)).view(dtype).reshape(shape)
