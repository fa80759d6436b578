"""Column decoders: one column of a whole batch into one piece of memory, by the codec itself or by DALI."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from dataflow.codecs import Image
from dataflow.dataset.codec import Codec, Encoded, Failure
from dataflow.pipeline.slabs import Slabs

if TYPE_CHECKING:
    from dataflow.codecs.dali import DaliImages


class ColumnDecoder(Protocol):
    """Decodes a column of batches; used by many threads at once."""

    def decode(self, encoded: Encoded, keys: Sequence[int]) -> tuple[torch.Tensor, list[Failure]]:
        """The values of a batch, keyed for their random numbers; those that fail are undefined in it."""

    def decode_again(
        self, encoded: Encoded, keys: Sequence[int], out: torch.Tensor, positions: Sequence[int]
    ) -> list[Failure]:
        """Other values, to some positions of a batch that is there; failures are numbered as the values are."""

    def name(self) -> str:
        """What does the work, for reports."""


class CodecDecoder:
    """The codec decodes, into memory that is used again."""

    def __init__(self, codec: Codec, slabs: Slabs) -> None:
        self._codec = codec
        self._slabs = slabs

    def decode(self, encoded: Encoded, keys: Sequence[int]) -> tuple[torch.Tensor, list[Failure]]:
        out = self._slabs.take(len(keys))
        return out, self._codec.decode_batch(encoded, keys, out.numpy())

    def decode_again(
        self, encoded: Encoded, keys: Sequence[int], out: torch.Tensor, positions: Sequence[int]
    ) -> list[Failure]:
        target = np.empty((len(keys), *self._codec.shape), self._codec.dtype)
        failures = self._codec.decode_batch(encoded, keys, target)
        out[list(positions)] = torch.from_numpy(target).to(out.device)
        return failures

    def name(self) -> str:
        return self._codec.decoder()


class DaliDecoder(CodecDecoder):
    """DALI decodes plain JPEGs, and the codec all else, row by row.

    A batch that DALI takes as a whole stays in DALI's memory, which its tensor gives back; else it is put together.
    """

    def __init__(self, image: Image, slabs: Slabs, dali: DaliImages) -> None:
        super().__init__(image, slabs)
        self._dali = dali
        self._lock = threading.Lock()
        self._others = 0

    def decode(self, encoded: Encoded, keys: Sequence[int]) -> tuple[torch.Tensor, list[Failure]]:
        positions, pixels = self._dali.decode(encoded, keys)
        if pixels is not None and len(positions) == len(keys):
            return pixels, []
        if pixels is None:
            positions = []
        taken = set(positions)
        rest = [position for position in range(len(keys)) if position not in taken]
        with self._lock:
            self._others += len(rest)
        if pixels is not None and pixels.is_cuda:
            out = pixels.new_empty((len(keys), *pixels.shape[1:]))
        else:
            out = self._slabs.take(len(keys))
        if pixels is not None:
            out[positions] = pixels
        others = Encoded(encoded.values, encoded.offsets, encoded.block[rest], encoded.row[rest])
        failures = self.decode_again(others, [keys[position] for position in rest], out, rest)
        return out, [Failure(rest[at], reason) for at, reason in failures]

    def name(self) -> str:
        others = f" (rows that it does not take: {self._others:,}, by {super().name()})" if self._others else ""
        return f"{self._dali.name}{others}"


def column_decoder(codec: Codec, slabs: Slabs, rows: int, decoder: str, device: torch.device | None) -> ColumnDecoder:
    """What decodes a column of batches.

    Args:
        codec: How its values are decoded.
        slabs: Memory for them.
        rows: Most rows of a batch.
        decoder: "native", or "dali" for images.
        device: Where batches are to be: on a GPU DALI decodes there.
    """
    if decoder == "dali" and isinstance(codec, Image):
        from dataflow.codecs.dali import DaliImages

        gpu = None
        if device is not None and device.type == "cuda":
            gpu = torch.cuda.current_device() if device.index is None else device.index
        return DaliDecoder(codec, slabs, DaliImages(codec, rows, gpu))
    return CodecDecoder(codec, slabs)
