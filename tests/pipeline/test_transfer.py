"""Batches on a device: the same ones in the same order, two at a time; here on the processor's own memory."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow
from dataflow.errors import DataflowError, OptionError
from tests.pipeline.conftest import Rows

WORKERS = (0, 2)


def ids(batches: Any) -> list[list[int]]:
    return [batch["sample_id"].tolist() for batch in batches]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "dataflow-transfer"]


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), None])
@pytest.mark.parametrize("workers", WORKERS)
def test_the_same_batches(rows: Rows, workers: int, device: Any) -> None:
    def loader(**options: Any) -> dataflow.DataLoader:
        return dataflow.DataLoader(rows(100), batch_size=7, shuffle=True, num_workers=workers, **options)

    expected, found = loader(), loader(device=device)
    for _ in range(2):
        assert ids(found) == ids(expected)
    assert len(found) == len(expected)
    assert found.state_dict() == expected.state_dict()
    assert not threads()


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_states_count_what_was_handed_over(rows: Rows, data: st.DataObject) -> None:
    """Batches that were copied ahead are not delivered."""
    workers = data.draw(st.sampled_from(WORKERS))
    stop = data.draw(st.integers(0, 10))

    def loader(**options: Any) -> dataflow.DataLoader:
        return dataflow.DataLoader(rows(100), batch_size=10, shuffle=True, num_workers=workers, **options)

    whole = ids(loader())
    first = loader(device="cpu")
    iterator = iter(first)
    begun = [next(iterator)["sample_id"].tolist() for _ in range(stop)]
    if data.draw(st.booleans()):
        time.sleep(0.005)  # let it run ahead
    state = first.state_dict()
    second = loader(device="cpu")
    second.load_state_dict(state)
    # After the last batch of an epoch the next one begins, and is another shuffle.
    assert begun + (ids(second) if stop < 10 else []) == whole


@pytest.mark.parametrize("workers", WORKERS)
def test_exact_ends_with_batches_that_are_filled_up(rows: Rows, workers: int) -> None:
    """A rank whose lanes have ended gives as many batches as the others, of the same kind."""
    few = rows(26).filter(lambda sample: sample["number"] < 3, name="few")
    barrier, more = threading.Barrier(2), [False, False]
    found: list[list[dict[str, Any]]] = [[], []]

    def work(rank: int) -> None:
        def agree(mine: bool) -> bool:
            more[rank] = mine
            barrier.wait(10)
            together = any(more)
            barrier.wait(10)
            return together

        loader = dataflow.DataLoader(
            few, batch_size=2, num_workers=workers, rank=rank, world_size=2, end="exact", agree=agree, device="cpu"
        )
        found[rank] = list(loader)

    both = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(30)
    assert len(found[0]) == len(found[1]) > 0
    valid = [i for batch in (*found[0], *found[1]) for i in batch["sample_id"][batch["valid"]].tolist()]
    assert sorted(valid) == [0, 1, 2]


@pytest.mark.parametrize("workers", WORKERS)
def test_errors_come_in_their_turn(rows: Rows, workers: int) -> None:
    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["number"] == 45:
            raise KeyError("the cause")
        return sample

    loader = dataflow.DataLoader(rows(100).map(fail), batch_size=10, num_workers=workers, device="cpu")
    iterator = iter(loader)
    assert [len(next(iterator)["sample_id"]) for _ in range(4)] == [10] * 4
    with pytest.raises(KeyError, match="the cause"):
        next(iterator)
    assert loader.state_dict()["slots"] == 40
    assert not threads()


def test_a_batch_that_is_late_is_an_error(rows: Rows) -> None:
    release = threading.Event()

    def slow(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["number"] >= 8:
            release.wait(20)
        return sample

    loader = dataflow.DataLoader(rows(40).map(slow), batch_size=4, num_workers=1, device="cpu", timeout=0.2)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    started = time.perf_counter()
    with pytest.raises(DataflowError, match=r"no batch within 0\.2 s"):
        next(iterator)
    assert time.perf_counter() - started < 2.5
    release.set()
    with pytest.raises(DataflowError, match="closed"):
        next(iterator)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_leaving_early_leaves_nothing(rows: Rows, workers: int, steps: int) -> None:
    loader = dataflow.DataLoader(rows(400), batch_size=2, num_workers=workers, device="cpu")
    for step, _ in enumerate(loader):
        if step == steps:
            break
    iterator = iter(loader)
    next(iterator)
    del iterator
    gc.collect()
    assert not threads()


def test_no_batch_is_held_but_the_next(rows: Rows) -> None:
    """The consumer's and the next one: what it has dropped is gone, however long it takes for its step."""
    made: list[weakref.ref[Any]] = []

    class Batch(dict[str, Any]):
        pass

    def collate(samples: list[Any]) -> Batch:
        batch = Batch(number=torch.tensor([sample["number"] for sample in samples]))
        made.append(weakref.ref(batch))
        return batch

    loader = dataflow.DataLoader(
        rows(100), batch_size=1, num_workers=1, prefetch_factor=2, collate_fn=collate, device="cpu"
    )
    iterator: Iterator[Any] = iter(loader)
    for _ in range(10):
        batch = next(iterator)
        deadline = time.monotonic() + 10
        # The next one on the device, two that wait to go there, and one that a worker is making room for.
        while sum(reference() is not None for reference in made) > 5 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert sum(reference() is not None for reference in made) <= 5
        del batch


def test_the_stage_has_a_clock(rows: Rows) -> None:
    loader = dataflow.DataLoader(rows(100), batch_size=10, num_workers=1, device="cpu")
    for _ in loader:
        time.sleep(0.002)
    figures = loader.stats()
    assert figures["stages"]["transfer"]["blocked"] > 0
    assert figures["stages"]["transfer"]["bytes"] == 0
    assert set(figures["waited_for"]) == set(figures["stages"])
    assert "transfer" in loader.report()
    plain = dataflow.DataLoader(rows(100), batch_size=10)
    list(plain)
    assert "transfer" not in plain.stats()["stages"]


@pytest.mark.parametrize("device", ["gpu", "cpu:x", 3, "", torch.float32])
def test_what_is_no_device_is_refused(rows: Rows, device: Any) -> None:
    with pytest.raises(OptionError, match=r"device=.*is no device: give 'cpu', 'cuda'"):
        dataflow.DataLoader(rows(10), device=device)


def test_devices_that_batches_are_not_copied_to_are_refused(rows: Rows) -> None:
    with pytest.raises(OptionError, match=r"device='meta': .*move them yourself"):
        dataflow.DataLoader(rows(10), device="meta")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", torch.device("cuda", 0)])
def test_without_a_gpu_the_remedy_is_named(rows: Rows, device: Any) -> None:
    with pytest.raises(OptionError, match=r"device=.*no CUDA here.*give device='cpu'"):
        dataflow.DataLoader(rows(10), device=device)


def test_a_device_for_pinning_is_ignored_as_in_torch(rows: Rows) -> None:
    with pytest.warns(UserWarning, match="pin_memory_device='cuda' is ignored"):
        dataflow.DataLoader(rows(10), pin_memory=True, pin_memory_device="cuda")
