"""Collate: samples, or gathered columns, to a batch of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dataflow.errors import DatasetError
from dataflow.pipeline.transform import Sample

Batch = dict[str, Any]


def to_tensors(values: Any) -> Any:
    """A gathered column as a batch holds it: arrays as tensors without a copy, ragged rows as a list."""
    if isinstance(values, np.ndarray):
        return torch.from_numpy(values)
    return [torch.from_numpy(value) if isinstance(value, np.ndarray) else value for value in values]


def collate(samples: Sequence[Sample]) -> Batch:
    """Make a batch of samples: tensors where all values have one shape and type, lists otherwise."""
    check_alike(samples)
    return {name: _column([sample[name] for sample in samples]) for name in samples[0]}


def check_alike(samples: Sequence[Sample]) -> None:
    """Refuse samples that make no batch: what is no dict, and differing keys."""
    first = samples[0]
    for sample in samples:
        if not isinstance(sample, Mapping):
            raise DatasetError(f"map() returned {type(sample).__name__}: return a dict, or pass collate_fn=")
        if sample.keys() != first.keys():
            raise DatasetError(
                f"samples of one batch differ in their keys, {sorted(first)} and {sorted(sample)}: "
                "let map() return a dict with the same keys for every sample, or pass collate_fn="
            )


def _column(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, torch.Tensor):
        same = all(isinstance(v, torch.Tensor) and v.shape == first.shape and v.dtype == first.dtype for v in values)
        return torch.stack(values) if same else values
    if isinstance(first, np.ndarray):
        return _arrays(values)
    if isinstance(first, np.generic) and not isinstance(first, (np.str_, np.bytes_)):
        if all(type(value) is type(first) for value in values):
            return torch.from_numpy(np.array(values))
    elif isinstance(first, (bool, int, float)) and all(isinstance(value, Number) for value in values):
        return torch.tensor(values)
    return values


def _arrays(values: list[NDArray[Any]]) -> Any:
    first = values[0]
    if all(isinstance(v, np.ndarray) and v.shape == first.shape and v.dtype == first.dtype for v in values):
        return torch.from_numpy(np.stack(values))
    # Views of a block would keep all of it in memory, and are not writable.
    return [torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value for value in values]
