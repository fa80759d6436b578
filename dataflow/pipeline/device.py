"""Devices: which one batches go to, and how a batch is copied there beside the work that the device does."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch

from dataflow.errors import OptionError
from dataflow.pipeline.nested import map_tensors


def check_device(device: str | torch.device | None) -> torch.device | None:
    """The device that batches are to be copied to; None leaves them where they are made.

    Raises:
        OptionError: There is no such device; says which there are.
    """
    if device is None:
        return None
    choices = "give 'cpu', 'cuda' or one such as 'cuda:1'"
    try:
        found = torch.device(device) if isinstance(device, (str, torch.device)) else None
    except RuntimeError:  # torch does not know the name
        found = None
    if found is None:
        raise OptionError(f"device={device!r} is no device: {choices}")
    if found.type == "cpu":
        return found
    if found.type != "cuda":
        raise OptionError(
            f"device={device!r}: batches are copied to CUDA devices only: {choices}, or move them yourself"
        )
    if not torch.cuda.is_available():
        reason = "no GPU is visible to it (see nvidia-smi and CUDA_VISIBLE_DEVICES)"
        if torch.version.cuda is None and torch.version.hip is None:
            reason = "it is a build without CUDA (see pytorch.org)"
        raise OptionError(
            f"device={device!r}: torch {torch.__version__} has no CUDA here, {reason}: or give device='cpu'"
        )
    count = torch.cuda.device_count()
    if found.index is not None and found.index >= count:
        raise OptionError(f"device={device!r}: there are {count}, from cuda:0 to cuda:{count - 1}")
    return found


def pins(pin_memory: bool, pin_memory_device: str, device: torch.device | None) -> bool:
    """Whether tensors go to page-locked memory: where they are asked for there, or copied to a GPU from there."""
    if pin_memory and pin_memory_device:
        warnings.warn(
            f"pin_memory_device={pin_memory_device!r} is ignored, as in torch: memory is page-locked for all GPUs",
            stacklevel=3,
        )
    if device is not None and device.type == "cuda":
        return True
    return bool(pin_memory and torch.cuda.is_available())


class Copied(NamedTuple):
    """A batch whose copy is under way.

    Attributes:
        batch: The batch on the device.
        tensors: Those of its tensors that are copied.
        event: When they are; None where nothing had to be copied.
    """

    batch: Any
    tensors: list[torch.Tensor]
    event: torch.cuda.Event | None

    def receive(self) -> Any:
        """The batch, for the thread that works with it: what its current stream does from now on sees the copy.

        Nothing waits here but that stream. Memory of the batch is not given away before that stream is past what it
        had to do when the batch was dropped.
        """
        if self.event is not None:
            stream = torch.cuda.current_stream(self.tensors[0].device)
            stream.wait_event(self.event)
            for tensor in self.tensors:
                tensor.record_stream(stream)
        return self.batch


class DeviceCopier:
    """Copies batches to a device, on a stream of its own.

    Page-locked tensors are copied while the processor goes on; torch does not give their memory away before the copy
    has ended, even if nobody refers to them any more.

    Args:
        device: Where to; for the processor's own memory nothing is done.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.nbytes = 0

    def start(self, batch: Any) -> Copied:
        """Begin to copy a batch, from any thread, but one at a time."""
        if self._stream is None:
            return Copied(batch, [], None)
        tensors: list[torch.Tensor] = []

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.device.type != "cpu":
                return tensor
            there = tensor.to(self._device, non_blocking=True)
            tensors.append(there)
            self.nbytes += there.nbytes
            return there

        with torch.cuda.stream(self._stream):
            moved = map_tensors(batch, copied)
            event = self._stream.record_event() if tensors else None
        return Copied(moved, tensors, event)
