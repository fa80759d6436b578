"""Column decoders of values that become more than one array, or arrays that differ in length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dataflow import _native
from dataflow.dataset.codec import Codec, Encoded, Failure
from dataflow.dataset.stages import Decode
from dataflow.errors import CorruptDataError
from dataflow.pipeline.slabs import Slabs


class CompanionDecoder:
    """Values and what comes beside them, each into memory that is used again. A batch is a dict of columns.

    Args:
        stage: The column and its codec.
        slabs: Memory for the column and its companions, by their names.
    """

    def __init__(self, stage: Decode, slabs: Mapping[str, Slabs]) -> None:
        self._codec: Any = stage.codec
        self._slabs = {name: slabs[name] for name in (stage.column, *stage.companions)}

    def decode(self, encoded: Encoded, keys: Sequence[int]) -> tuple[dict[str, torch.Tensor], list[Failure]]:
        out = {name: slabs.take(len(keys)) for name, slabs in self._slabs.items()}
        return out, self._codec.decode_batch(encoded, keys, *(tensor.numpy() for tensor in out.values()))

    def decode_again(
        self, encoded: Encoded, keys: Sequence[int], out: dict[str, torch.Tensor], positions: Sequence[int]
    ) -> list[Failure]:
        targets = [np.empty((len(keys), *tensor.shape[1:]), tensor.numpy().dtype) for tensor in out.values()]
        failures: list[Failure] = self._codec.decode_batch(encoded, keys, *targets)
        for tensor, target in zip(out.values(), targets, strict=True):
            tensor[list(positions)] = torch.from_numpy(target)
        return failures

    def name(self) -> str:
        return str(self._codec.decoder())


class RaggedDecoder:
    """Values that differ in length. A batch is a list of tensors."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def decode(self, encoded: Encoded, keys: Sequence[int]) -> tuple[list[Any], list[Failure]]:
        out: list[Any] = [None] * len(keys)
        return out, self.decode_again(encoded, keys, out, range(len(keys)))

    def decode_again(
        self, encoded: Encoded, keys: Sequence[int], out: list[Any], positions: Sequence[int]
    ) -> list[Failure]:
        failures = []
        for at, (value, key) in enumerate(zip(_native.gather_bytes(*encoded), keys, strict=True)):
            try:
                out[positions[at]] = torch.from_numpy(self._codec.decode(value, key))
            except CorruptDataError as error:
                failures.append(Failure(at, str(error)))
        return failures

    def name(self) -> str:
        return self._codec.decoder()
