"""Batches on a GPU: what is in them, and that copies run beside the work and nothing waits for them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.profiler import ProfilerActivity, profile, record_function

import dataflow
from dataflow.errors import OptionError
from tests.conformance.watchdog import limited

pytestmark = pytest.mark.gpu

ROWS, WIDTH, BATCH = 1024, 16_384, 32
BATCH_BYTES = BATCH * WIDTH * 4  # 2 MiB as int32
WORKERS = (0, 2)
# Hundredths of a second on any GPU of these years.
LONG = 40_000_000


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    with limited(120):
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> dataflow.Dataset:
    """Rows that are full of their own number."""
    url = str(tmp_path_factory.mktemp("gpu") / "rows")
    schema = pa.schema({"number": pa.int64(), "fixed": pa.list_(pa.uint16(), WIDTH), "text": pa.string()})
    with dataflow.ShardWriter(url, schema, rows_per_block=16) as writer:
        for number in range(ROWS):
            fixed = np.full(WIDTH, number, np.uint16)
            writer.write({"number": number, "fixed": fixed, "text": f"row {number}"})
    return dataflow.open(url)


def load(dataset: dataflow.Dataset, **options: Any) -> dataflow.DataLoader:
    defaults: dict[str, Any] = {
        "batch_size": BATCH,
        "shuffle": True,
        "num_workers": 2,
        "device": "cuda",
        "dtypes": {"fixed": "int32"},
    }
    return dataflow.DataLoader(dataset, **{**defaults, **options})


def wrong(batch: dict[str, Any]) -> torch.Tensor:
    """How many values of a batch are not what they should be: on the GPU, nothing waits for it."""
    return (batch["fixed"] != batch["number"][:, None]).sum() + (batch["number"] != batch["sample_id"]).sum()


@pytest.mark.parametrize("workers", WORKERS)
def test_the_same_batches_as_without(dataset: dataflow.Dataset, workers: int) -> None:
    expected = load(dataset, device=None, num_workers=workers)
    found = load(dataset, num_workers=workers)
    here = torch.device("cuda", torch.cuda.current_device())
    for ours, theirs in zip(found, expected, strict=True):
        assert list(ours) == list(theirs)
        for name, value in theirs.items():
            if isinstance(value, torch.Tensor):
                assert ours[name].device == here
                assert ours[name].dtype == value.dtype
                assert torch.equal(ours[name].cpu(), value)
            else:
                assert ours[name] == value
    assert found.state_dict() == expected.state_dict()
    figures = found.stats()["stages"]["transfer"]
    assert figures["bytes"] >= ROWS * WIDTH * 4
    assert figures["busy"] > 0


@pytest.mark.parametrize("workers", WORKERS)
def test_a_state_counts_what_was_handed_over(dataset: dataflow.Dataset, workers: int) -> None:
    whole = [batch["sample_id"].tolist() for batch in load(dataset, device=None)]
    first = load(dataset, num_workers=workers)
    iterator = iter(first)
    begun = [next(iterator)["sample_id"].tolist() for _ in range(5)]
    time.sleep(0.2)  # the next ones are copied meanwhile
    second = load(dataset, num_workers=workers)
    second.load_state_dict(first.state_dict())
    assert begun + [batch["sample_id"].tolist() for batch in second] == whole


def test_slabs_are_pinned_and_not_copied_again(dataset: dataflow.Dataset) -> None:
    loader = load(dataset, device=None, pin_memory=True)
    iterator = iter(loader)
    first = next(iterator)
    assert all(first[name].is_pinned() for name in ("number", "fixed", "sample_id", "slot"))
    assert loader._last is not None
    slabs = loader._last.rules.form.layout.slabs["fixed"]
    places = slabs._pinned
    assert places is not None
    for batch in iterator:
        assert batch["fixed"].is_pinned()
        assert batch["fixed"].data_ptr() in places
    # The window, what two workers make, the consumer's and the next one: the same memory again and again.
    assert len(places) < len(loader)
    assert loader.stats()["slabs"]["peak_bytes"] == len(places) * BATCH_BYTES


def test_batches_for_a_gpu_are_pinned_first(dataset: dataflow.Dataset) -> None:
    loader = load(dataset)
    assert sum(wrong(batch).item() for batch in loader) == 0
    assert loader._last is not None
    assert loader._last.rules.form.layout.slabs["fixed"]._pinned


@pytest.mark.parametrize("workers", WORKERS)
def test_slabs_are_not_filled_while_their_copies_run(dataset: dataflow.Dataset, workers: int) -> None:
    """Copies are held up, so that many batches are made before the first one has left its slab."""
    loader = load(dataset, num_workers=workers, epochs=3)
    iterator = iter(loader)
    assert loader._last is not None
    assert loader._last.transfer is not None
    copies = loader._last.transfer.copier._stream
    assert copies is not None
    total = torch.zeros((), dtype=torch.int64, device="cuda")
    held = []
    for step, batch in enumerate(iterator):
        with torch.cuda.stream(copies):
            torch.cuda._sleep(LONG // 10)
        total += wrong(batch)
        if step % 8 == 0:
            held.append(batch)
        del batch
    torch.cuda.synchronize()
    assert total.item() == 0
    assert sum(wrong(batch).item() for batch in held) == 0


def test_memory_is_not_given_away_before_it_was_used(dataset: dataflow.Dataset) -> None:
    """The training is far behind its loop, which drops each batch at once."""
    total = torch.zeros((), dtype=torch.int64, device="cuda")
    for batch in load(dataset, epochs=2):
        torch.cuda._sleep(LONG // 10)
        total += wrong(batch)
        del batch
    assert total.item() == 0


def test_in_a_stream_of_the_users(dataset: dataflow.Dataset) -> None:
    mine = torch.cuda.Stream()
    with torch.cuda.stream(mine):
        total = torch.zeros((), dtype=torch.int64, device="cuda")
        for batch in load(dataset):
            total += wrong(batch)
        assert total.item() == 0


def test_two_batches_are_on_the_device(dataset: dataflow.Dataset) -> None:
    loader = load(dataset, epochs=2)
    iterator = iter(loader)
    next(iterator)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for batch in iterator:
        del batch
        torch.cuda.synchronize()  # memory of what was dropped is free at once
    # One was there before; now the next one, and one that is dropped while the one after it is copied.
    assert torch.cuda.max_memory_allocated() - before <= 3 * (BATCH_BYTES + (1 << 20))


def trace(run: Any, path: Path) -> list[dict[str, Any]]:
    """The events of a torch profiler's trace of a function."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler, record_function("steps"):
        run()
    profiler.export_chrome_trace(str(path))
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def test_copies_run_beside_the_work_and_nothing_waits(dataset: dataflow.Dataset, tmp_path: Path) -> None:
    """In the trace: copies from pinned memory lie within kernels of another stream, and no call synchronises."""
    weight = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    iterator = iter(load(dataset, num_workers=2, prefetch_factor=12))
    for _ in range(4):  # memory of both sides is taken, and the library of matrices loaded
        batch = next(iterator)
        weight @ weight
    torch.cuda.synchronize()
    time.sleep(1)  # more batches wait than are looked at
    total = torch.zeros((), dtype=torch.int64, device="cuda")

    def steps() -> None:
        nonlocal batch, total
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(12):
                for _ in range(20):
                    torch.mm(weight, weight)
                total = total + wrong(batch)
                batch = next(iterator)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    events = trace(steps, tmp_path / "trace.json")
    torch.cuda.synchronize()
    assert total.item() == 0

    (loop,) = [event for event in events if event["name"] == "steps" and event.get("cat") == "user_annotation"]
    until = loop["ts"] + loop["dur"]
    calls = [event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    waits = [event["name"] for event in calls if "Synchronize" in event["name"] and loop["ts"] <= event["ts"] < until]
    assert not waits

    copies = [
        event
        for event in events
        if event.get("cat") == "gpu_memcpy" and "HtoD" in event["name"] and event["args"]["bytes"] == BATCH_BYTES
    ]
    assert len(copies) >= 10
    assert all("Pinned" in event["name"] for event in copies)
    kernels = [event for event in events if event.get("cat") == "kernel"]
    streams = {event["args"]["stream"] for event in copies}
    assert len(streams) == 1
    assert streams.isdisjoint({event["args"]["stream"] for event in kernels})

    def beside(copy: dict[str, Any]) -> bool:
        return any(
            kernel["ts"] < copy["ts"] + copy["dur"] and copy["ts"] < kernel["ts"] + kernel["dur"] for kernel in kernels
        )

    assert sum(map(beside, copies)) >= 0.7 * len(copies)


def nested(samples: list[dict[str, Any]]) -> Any:
    numbers = torch.tensor([sample["number"] for sample in samples])
    lists = pack_sequence([torch.arange(int(number) % 3 + 1) for number in numbers], enforce_sorted=False)
    texts = [sample["text"] for sample in samples]
    return {"pair": (numbers, texts), "deep": [{"half": numbers.half()}, None], "lists": lists, "count": len(samples)}


@pytest.mark.parametrize("workers", WORKERS)
def test_nested_batches_are_moved(dataset: dataflow.Dataset, workers: int) -> None:
    for batch in load(dataset, num_workers=workers, collate_fn=nested, dtypes=None, shuffle=False):
        numbers, texts = batch["pair"]
        assert numbers.is_cuda
        assert texts == [f"row {number}" for number in numbers.tolist()]
        assert batch["deep"][0]["half"].is_cuda
        assert batch["deep"][0]["half"].tolist() == numbers.half().tolist()
        assert batch["deep"][1] is None
        assert batch["count"] == len(texts)
        assert batch["lists"].data.is_cuda
        assert not batch["lists"].batch_sizes.is_cuda
        padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(batch["lists"], batch_first=True)
        assert padded.is_cuda
        assert lengths.tolist() == [number % 3 + 1 for number in numbers.tolist()]


def test_batches_that_are_filled_up_are_moved_too(dataset: dataflow.Dataset) -> None:
    """A rank without a row of its own makes its batch where it is handed over."""
    few = dataset.filter(lambda sample: int(sample["number"]) == 0, name="one")
    turns = iter([True] * 3 + [False])
    loader = load(few, rank=1, world_size=2, shuffle=False, end="exact", agree=lambda mine: next(turns))
    batches = list(loader)
    assert len(batches) == 3
    assert all(batch["fixed"].is_cuda and batch["valid"].is_cuda for batch in batches)


@pytest.mark.parametrize("workers", WORKERS)
def test_errors_come_in_their_turn_and_leaving_early_is_safe(dataset: dataflow.Dataset, workers: int) -> None:
    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["number"] == 5 * BATCH:
            raise KeyError("the cause")
        return {"number": sample["number"]}

    loader = load(dataset.map(fail), num_workers=workers, shuffle=False, dtypes=None)
    iterator = iter(loader)
    for step in range(5):
        assert next(iterator)["number"].tolist() == list(range(step * BATCH, (step + 1) * BATCH))
    with pytest.raises(KeyError, match="the cause"):
        next(iterator)
    for _ in range(20):
        for batch in load(dataset, num_workers=workers):
            last = batch
            break
        assert wrong(last).item() == 0


def test_devices_that_are_not_there_are_refused(dataset: dataflow.Dataset) -> None:
    count = torch.cuda.device_count()
    with pytest.raises(OptionError, match=f"there are {count}, from cuda:0 to cuda:{count - 1}"):
        load(dataset, device=f"cuda:{count}")
