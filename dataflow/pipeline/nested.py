"""Nested batches: something done with each tensor of whatever `collate_fn` returned."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Replace the tensors in dicts, lists and tuples, of any depth and any subclass.

    A container in which a tensor was replaced is copied, with its type and its attributes. All else stays as it is.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, PackedSequence):
        data, lengths, *indices = value
        # torch wants the lengths in the processor's memory.
        return PackedSequence(change(data), lengths, *(map_tensors(index, change) for index in indices))
    if isinstance(value, Mapping):
        items = list(value.items())
        changed = {key: map_tensors(item, change) for key, item in items}
        if all(changed[key] is item for key, item in items):
            return value
        if type(value) is dict or not isinstance(value, MutableMapping):
            return changed
        mapping = copy.copy(value)
        mapping.update(changed)
        return mapping
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        old = list(value)
        new = [map_tensors(item, change) for item in old]
        if all(after is before for after, before in zip(new, old, strict=True)):
            return value
        if isinstance(value, tuple):
            return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
        if type(value) is list:
            return new
        sequence: Any = copy.copy(value)
        sequence[:] = new
        return sequence
    return value
