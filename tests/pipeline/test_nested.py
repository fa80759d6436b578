"""Tensors in whatever collate_fn returns are found; what holds them keeps its type, and all else stays."""

from __future__ import annotations

from collections import OrderedDict, UserDict, UserList, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from dataflow.pipeline.nested import map_tensors

Point = namedtuple("Point", "x y")


class Batch(dict[str, Any]):
    def __init__(self, *arguments: Any, note: str = "") -> None:
        super().__init__(*arguments)
        self.note = note


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2


ONE = torch.tensor(1)
HOLDERS: dict[str, tuple[Any, Any]] = {
    "dict": ({"a": ONE}, lambda value: value["a"]),
    "dict in list": ([0, {"a": ONE}], lambda value: value[1]["a"]),
    "ordered": (OrderedDict(a=ONE), lambda value: value["a"]),
    "defaultdict": (defaultdict(list, a=ONE), lambda value: value["a"]),
    "UserDict": (UserDict(a=ONE), lambda value: value["a"]),
    "UserList": (UserList([ONE]), lambda value: value[0]),
    "tuple": ((ONE, "x"), lambda value: value[0]),
    "namedtuple": (Point("x", ONE), lambda value: value.y),
    "deep": ([({"a": (ONE,)},)], lambda value: value[0][0]["a"][0]),
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_holders_keep_their_types(kind: str) -> None:  # DL-09
    value, find = HOLDERS[kind]
    changed = map_tensors(value, doubled)
    assert type(changed) is type(value)
    assert find(changed).item() == 2
    assert find(value).item() == 1


def test_a_class_derived_from_dict_keeps_what_it_has() -> None:  # DL-10
    changed = map_tensors(Batch({"a": ONE}, note="hello"), doubled)
    assert isinstance(changed, Batch)
    assert (changed.note, changed["a"].item()) == ("hello", 2)


def test_mappings_that_cannot_be_changed_become_dicts() -> None:
    assert map_tensors(MappingProxyType({"a": ONE}), doubled) == {"a": torch.tensor(2)}


def test_packed_sequences_keep_their_lengths() -> None:
    packed = pack_sequence([torch.tensor([1, 2]), torch.tensor([3, 4, 5])], enforce_sorted=False)
    moved = map_tensors(packed, lambda tensor: tensor.to("meta"))
    assert isinstance(moved, PackedSequence)
    assert moved.data.is_meta
    assert moved.sorted_indices is not None
    assert moved.sorted_indices.is_meta
    assert moved.batch_sizes is packed.batch_sizes
    ordered = map_tensors(pack_sequence([torch.tensor([1, 2])]), doubled)
    assert (ordered.data.tolist(), ordered.sorted_indices) == ([2, 4], None)


@pytest.mark.parametrize(
    "value",
    [
        "text",
        b"bytes",
        None,
        7,
        range(10**6, 10**6 + 3),
        np.arange(3),
        memoryview(np.arange(10**6, 10**6 + 3)),
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_tensor_stays(value: Any) -> None:
    assert map_tensors(value, doubled) is value
    for holder in ([value], (value,), {"a": value}, UserList([value])):
        assert map_tensors(holder, doubled) is holder


LEAVES = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.integers(0, 99).map(torch.tensor))
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.tuples(inner, inner).map(lambda pair: Point(*pair)),
    ),
    max_leaves=12,
)


@given(NESTED)
def test_only_tensors_change(value: Any) -> None:
    def plain(item: Any, times: int) -> Any:
        if isinstance(item, torch.Tensor):
            return ("tensor", item.item() * times)
        if isinstance(item, dict):
            return {key: plain(inner, times) for key, inner in item.items()}
        if isinstance(item, (list, tuple)):
            return type(item).__name__, [plain(inner, times) for inner in item]
        return item

    before = plain(value, 1)
    assert plain(map_tensors(value, doubled), 1) == plain(value, 2)
    assert plain(value, 1) == before
