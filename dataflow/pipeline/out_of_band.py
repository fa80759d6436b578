"""Values as a short pickle and the memory of their arrays beside it, which can then be copied as it is.

Pickles run code when they are loaded. These only pass between a process and the worker processes that it started
itself, through sockets and memory that have no name: nobody else can put one there.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

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


def load(stream: memoryview, buffers: Iterable[NDArray[np.uint8]]) -> Any:
    """The value; its arrays and tensors use `buffers`, and can be written to if those can."""
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
        kind = type(value)
        # NumPy's own way leaves some arrays in the pickle, without their byte order and whether they can be written to.
        if kind is np.ndarray and value.dtype.itemsize and not value.dtype.hasobject:
            return _array, _array_parts(value)
        # Torch takes a second to import, and a function may well have no use for it.
        torch = sys.modules.get("torch")
        if torch is not None and kind is torch.Tensor and _is_plain(value):
            return _tensor, _tensor_parts(value)
        return super().reducer_override(value)


def _array_parts(array: NDArray[Any]) -> tuple[Any, np.dtype[Any], Sequence[int], str]:
    order: Literal["C", "F"] = "F" if array.flags.fnc else "C"
    flat = array.ravel(order)
    flat.flags.writeable = array.flags.writeable  # of a copy, if it was not contiguous
    return pickle.PickleBuffer(flat.view(np.uint8).data), array.dtype, array.shape, order


def _array(memory: NDArray[np.uint8], dtype: np.dtype[Any], shape: Sequence[int], order: Literal["C", "F"]) -> Any:
    return np.ndarray(shape, dtype, memory, order=order)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is no more than its values; torch itself pickles others."""
    import torch

    strided = tensor.device.type == "cpu" and tensor.layout is torch.strided
    return strided and not (tensor.requires_grad or tensor.is_quantized)


def _tensor_parts(tensor: torch.Tensor) -> tuple[Any, torch.dtype, Sequence[int]]:
    import torch

    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    # As bytes: NumPy does not know every type that torch has.
    return pickle.PickleBuffer(flat.view(torch.uint8).numpy().data), tensor.dtype, tuple(tensor.shape)


def _tensor(memory: NDArray[np.uint8], dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    import torch

    # Of nothing, there is no view.
    return torch.from_numpy(memory).view(dtype).reshape(shape) if len(memory) else torch.empty(shape, dtype=dtype)
