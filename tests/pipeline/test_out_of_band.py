"""Values that go to another process through shared memory come out as they were."""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dataflow.pipeline.shared_slab import USUAL_BYTES, SharedSlab, new_memory
from dataflow.pipeline.slab_ring import SLABS, SlabRing


@contextmanager
def both_ends() -> Iterator[tuple[SlabRing, SlabRing]]:
    """A ring, as two processes see it."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with closing(SlabRing.offer(one)) as ring, closing(SlabRing.accept(other)) as worker:
        yield ring, worker


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return bool(
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.flags.writeable == other.flags.writeable
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, torch.Tensor):
        return bool(one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
kinds = st.one_of(
    arrays.boolean_dtypes(),
    arrays.integer_dtypes(),
    arrays.floating_dtypes(sizes=(16, 32, 64)),
    arrays.complex_number_dtypes(),
    arrays.datetime64_dtypes(),
    arrays.unicode_string_dtypes(max_len=3),
    arrays.byte_string_dtypes(max_len=3),
)


@st.composite
def odd_arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Arrays of any kind, also those that are not contiguous or cannot be written to."""
    array = draw(kinds.flatmap(lambda kind: arrays.arrays(kind, shapes)))
    how = draw(st.sampled_from(["as it is", "transposed", "every other", "read only"]))
    if how == "transposed":
        array = array.T
    elif how == "every other" and array.ndim:
        array = array[::-2]
    elif how == "read only":
        array.flags.writeable = False
    return array


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtypes = [torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.uint8, torch.bool, torch.complex64]
    tensor = torch.ones(draw(shapes)).cumsum(0) if draw(st.booleans()) else torch.ones(draw(shapes))
    tensor = tensor.to(draw(st.sampled_from(dtypes)))
    return tensor.transpose(0, -1) if tensor.ndim and draw(st.booleans()) else tensor


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.integers(60_000, 70_000).map(bytes),
    odd_arrays(),
    tensors(),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=100)
@given(value=values)
def test_values_come_out_as_they_were(value: Any) -> None:
    with both_ends() as (ring, worker):
        ring.send(value)
        received = worker.receive()
        assert same(received, value)
        worker.send([received, "and more"])
        assert same(ring.receive(), [value, "and more"])


nbytes = st.sampled_from([0, 1, 100_000, USUAL_BYTES - 300, USUAL_BYTES, 2 * USUAL_BYTES])


@settings(deadline=None, max_examples=10)
@given(sizes=st.lists(st.tuples(nbytes, nbytes), max_size=5))
def test_several_under_way_do_not_mix(sizes: list[tuple[int, int]]) -> None:
    """Of any size there and back, as many at once as there are slabs."""
    under_way: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    with both_ends() as (ring, worker):

        def answer() -> None:
            asked, answered = under_way.pop(0)
            assert same(worker.receive(), asked)
            worker.send(answered)
            assert same(ring.receive(), answered)

        for number, (there, back) in enumerate(sizes):
            under_way.append((np.full(there, number, np.uint8), np.full(back, number + 100, np.uint8)))
            ring.send(under_way[-1][0])
            if len(under_way) == SLABS:
                answer()
        while under_way:
            answer()


def test_what_was_received_can_be_kept_and_changed() -> None:
    with both_ends() as (ring, worker):
        kept = []
        for number in range(5):
            ring.send([np.full(4, number), torch.full((4,), number)])
            kept.append(worker.receive())
            for part in kept[-1]:
                part += 10
            worker.send(None)
            ring.receive()
        assert [(int(array[0]), int(tensor[3])) for array, tensor in kept] == [(n + 10, n + 10) for n in range(5)]


def test_tensors_that_are_more_than_their_values() -> None:
    with both_ends() as (ring, worker):
        sent = {
            "learned": torch.ones(2, requires_grad=True),
            "sparse": torch.eye(3).to_sparse(),
            "parameter": torch.nn.Parameter(torch.ones(3)),
            "conjugate": torch.tensor([1 + 2j]).conj(),
        }
        ring.send(sent)
        received = worker.receive()
        worker.send(None)
        ring.receive()
        assert received["learned"].requires_grad
        assert received["sparse"].is_sparse
        assert torch.equal(received["sparse"].to_dense(), torch.eye(3))
        assert type(received["parameter"]) is torch.nn.Parameter
        assert received["conjugate"].tolist() == [1 - 2j]


def test_a_slab_shrinks_when_a_large_value_is_gone() -> None:
    descriptor = new_memory()
    slab = SharedSlab(descriptor)
    empty = os.fstat(descriptor).st_blocks
    slab.write(np.ones(3 * USUAL_BYTES, np.uint8))
    assert os.fstat(descriptor).st_size > 3 * USUAL_BYTES
    slab.write("small")
    after = os.fstat(descriptor)
    assert (after.st_size, slab.nbytes, slab.read()) == (USUAL_BYTES, USUAL_BYTES, "small")
    assert empty == 0, "memory that was never written to takes none"
    slab.close()
    os.close(descriptor)


def test_memory_has_no_name() -> None:
    before = set(os.listdir("/dev/shm"))
    descriptor = new_memory()
    assert "memfd:dataflow" in os.readlink(f"/proc/self/fd/{descriptor}")
    mapped = mmap.mmap(descriptor, USUAL_BYTES)
    mapped[:5] = b"hello"
    assert set(os.listdir("/dev/shm")) <= before
    mapped.close()
    os.close(descriptor)
