"""Memory of batches is used again, but never while anybody still looks at it."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dataflow.pipeline.slabs import Slabs


def test_memory_is_used_again() -> None:
    slabs = Slabs(4, (2, 3), "uint8", keep=2, pin=False)
    places = set()
    for _ in range(20):
        tensor = slabs.take(4)
        places.add(tensor.data_ptr())
        del tensor
    assert len(places) == 1
    assert (slabs.count, slabs.peak_bytes) == (1, 24)


VIEWS: dict[str, Any] = {
    "the tensor": lambda tensor: tensor,
    "a row": lambda tensor: tensor[1],
    "a transposed view": lambda tensor: tensor.transpose(0, 1),
    "its storage": lambda tensor: tensor.untyped_storage(),
    "an array": lambda tensor: tensor.numpy(),
    "a slice of an array": lambda tensor: tensor.numpy()[1:, :1],
    "a buffer": lambda tensor: memoryview(tensor.numpy()),
    "another framework's": lambda tensor: np.from_dlpack(tensor),
    "detached": lambda tensor: tensor.detach(),
    "of another type": lambda tensor: tensor.view(torch.int8),
}


@pytest.mark.parametrize("view", VIEWS)
def test_what_is_looked_at_is_left_alone(view: str) -> None:
    slabs = Slabs(4, (2, 4), "uint8", keep=8, pin=False)
    tensor = slabs.take(4)
    place = tensor.data_ptr()
    held = VIEWS[view](tensor)
    del tensor
    gc.collect()
    others = [slabs.take(4) for _ in range(3)]
    assert place not in {other.data_ptr() for other in others}
    del held
    gc.collect()
    assert slabs.take(4).data_ptr() == place


def test_what_autograd_saved_is_left_alone() -> None:
    slabs = Slabs(4, (2,), "float32", keep=8, pin=False)
    weight = torch.ones(2, requires_grad=True)
    tensor = slabs.take(4)
    tensor.fill_(3)
    loss = (tensor * weight).sum()
    del tensor
    for _ in range(3):
        slabs.take(4).fill_(99)
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [12, 12]


def test_fewer_rows_take_the_same_memory() -> None:
    slabs = Slabs(4, (3,), "float16", keep=2, pin=False)
    tensor = slabs.take(4)
    assert (tensor.shape, tensor.dtype) == ((4, 3), torch.float16)
    place = tensor.data_ptr()
    del tensor
    tensor = slabs.take(1)
    assert (tensor.shape, tensor.data_ptr()) == ((1, 3), place)


def test_no_more_is_kept_than_asked() -> None:
    slabs = Slabs(4, (3,), "uint8", keep=2, pin=False)
    held = [slabs.take(4) for _ in range(10)]
    assert slabs.count == 10
    held.clear()
    slabs.take(4)
    assert slabs.count == 2
    assert slabs.peak_bytes == 10 * 12


def test_rows_of_differing_shapes_take_the_memory_of_the_largest() -> None:
    slabs = Slabs(4, (3,), "int32", keep=2, pin=False)
    places = set()
    for width in (3, 10, 1, 10, 9):
        tensor = slabs.take(4, (width,))
        assert tensor.shape == (4, width)
        places.add(tensor.data_ptr())
        del tensor
    assert slabs.count == 1
    assert slabs.peak_bytes == 4 * 10 * 4


def test_tensors_outlive_their_slabs() -> None:
    slabs = Slabs(4, (3,), "uint8", keep=2, pin=False)
    tensor = slabs.take(4).fill_(7)
    del slabs
    gc.collect()
    assert tensor.sum().item() == 84


class Holding(RuleBasedStateMachine):
    """Batches that are taken, kept as views and dropped in any order keep what was written into them."""

    def __init__(self) -> None:
        super().__init__()
        self.slabs = Slabs(3, (4,), "int64", keep=2, pin=False)
        self.held: list[tuple[torch.Tensor, int]] = []
        self.written = 0

    @rule(rows=st.integers(1, 3))
    def take(self, rows: int) -> None:
        self.written += 1
        self.held.append((self.slabs.take(rows).fill_(self.written), self.written))

    @rule(data=st.data())
    def keep_a_view(self, data: st.DataObject) -> None:
        if self.held:
            at = data.draw(st.integers(0, len(self.held) - 1))
            tensor, value = self.held[at]
            self.held[at] = (tensor[-1:], value)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        if self.held:
            self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))

    @invariant()
    def nothing_was_overwritten(self) -> None:
        assert all((tensor == value).all() for tensor, value in self.held)
        assert self.slabs.count >= len(self.held)


Holding.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestHolding = Holding.TestCase


def test_many_threads() -> None:
    slabs = Slabs(2, (64,), "int64", keep=4, pin=False)
    wrong = []

    def work(number: int) -> None:
        for turn in range(300):
            tensor = slabs.take(2).fill_(number * 1000 + turn)
            if not (tensor == number * 1000 + turn).all():
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert slabs.count <= 10


@pytest.mark.gpu
def test_pinned_memory_is_left_alone_while_a_copy_is_under_way() -> None:
    slabs = Slabs(64, (1 << 20,), "uint8", keep=2, pin=True)
    copies = []
    for number in range(40):
        tensor = slabs.take(64)
        assert tensor.is_pinned()
        tensor.fill_(number)
        copies.append(tensor[1:].to("cuda", non_blocking=True)[:, ::4096].clone())
        del tensor
    torch.cuda.synchronize()
    assert [int(copy.float().mean().item()) for copy in copies] == list(range(40))
    assert slabs.count < 40
