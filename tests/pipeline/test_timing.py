"""Whatever comes late, the stream and its states are the same: slow reads, slow functions, slow consumers."""

from __future__ import annotations

import json
import os
import random
import resource
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataflow
from dataflow.storage.local import LocalStore
from tests.conformance.watchdog import limited

Rows = Callable[..., dataflow.Dataset]
EXAMPLES = [pytest.param(20, id="quick"), pytest.param(250, id="soak", marks=pytest.mark.soak)]
never = threading.Event()


class Delays:
    """Waits of up to so many milliseconds, most of them none."""

    def __init__(self) -> None:
        self.most = 0.0
        self._random = random.Random(0)

    def __call__(self) -> None:
        if self.most and self._random.random() < 0.3:
            never.wait(self._random.random() * self.most / 1000)


@pytest.fixture
def slow_reads(monkeypatch: pytest.MonkeyPatch) -> Delays:
    delays = Delays()
    read_ranges = LocalStore.read_ranges

    def delayed(self: LocalStore, path: str, ranges: Any) -> Any:
        delays()
        return read_ranges(self, path, ranges)

    monkeypatch.setattr(LocalStore, "read_ranges", delayed)
    return delays


def stream(
    loader: dataflow.DataLoader, steps: int, consumer: Delays | None = None
) -> Iterator[tuple[list[int], list[int], str]]:
    """Slots, samples and the state after each step."""
    iterator = iter(loader)
    for _ in range(steps):
        batch = next(iterator, None)
        if batch is None:
            break
        if consumer is not None:
            consumer()
        yield batch["slot"].tolist(), batch["sample_id"].tolist(), json.dumps(loader.state_dict())
    iterator.close()


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.filterwarnings("ignore:.*lanes for")
def test_the_stream_does_not_depend_on_what_comes_late(rows: Rows, slow_reads: Delays, examples: int) -> None:
    milliseconds = st.sampled_from([0.0, 0.0, 1.0, 4.0])

    @settings(max_examples=examples, deadline=None)
    @given(
        kind=st.sampled_from(["plain", "map", "filter", "exact"]),
        workers=st.integers(1, 6),
        prefetch=st.integers(1, 6),
        ranks=st.sampled_from([1, 1, 3, 4]),
        lanes=st.sampled_from([1, 8, 24]),
        batch=st.integers(1, 12),
        reads=milliseconds,
        function=milliseconds,
        consumer=milliseconds,
    )
    def check(
        kind: str,
        workers: int,
        prefetch: int,
        ranks: int,
        lanes: int,
        batch: int,
        reads: float,
        function: float,
        consumer: float,
    ) -> None:
        slow_function, slow_consumer = Delays(), Delays()

        def late(sample: dict[str, Any]) -> dict[str, Any]:
            slow_function()
            return sample

        def late_filter(sample: dict[str, Any]) -> bool:
            slow_function()
            return bool(sample["number"] % 4)

        def make(workers: int, prefetch: int) -> dataflow.DataLoader:
            dataset, options = rows(200), {}
            if kind == "map":
                dataset = dataset.map(late)
            elif kind in ("filter", "exact"):
                dataset = dataset.filter(late_filter)
                options = {"end": "exact", "agree": lambda more: True} if kind == "exact" else {"steps_per_epoch": 40}
            return dataflow.DataLoader(
                dataset,
                **{"batch_size": batch, "shuffle": True, "lanes": lanes, "rank": ranks - 1, "world_size": ranks},
                num_workers=workers,
                prefetch_factor=prefetch,
                **options,
            )

        slow_reads.most = 0.0
        expected = list(stream(make(0, 1), 40))
        slow_reads.most, slow_function.most, slow_consumer.most = reads, function, consumer
        with limited(30):
            assert list(stream(make(workers, prefetch), 40, slow_consumer)) == expected

    check()


def test_a_consumer_that_stops_taking_stops_the_pipeline(rows: Rows) -> None:
    """Batches wait up to the window: a function is not called for more."""
    calls: list[int] = []
    dataset = rows(400).map(lambda sample: calls.append(1) or sample)
    loader = dataflow.DataLoader(dataset, batch_size=4, num_workers=2, prefetch_factor=3)
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    before = -1
    while before != len(calls):
        before = len(calls)
        never.wait(0.1)
    assert len(calls) <= 4 * (2 + 6 + 1)
    assert sum(1 for _ in iterator) == 98


@pytest.mark.parametrize("workers", [0, 2])
def test_sg09_many_shards_need_few_descriptors(rows: Rows, workers: int) -> None:
    dataset = rows(2400, rows_per_block=4, shard_bytes=1)
    assert dataset.manifest.num_shards == 600
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 40, before[1]))
    try:
        loader = dataflow.DataLoader(dataset, batch_size=16, shuffle=True, num_workers=workers)
        assert sorted(s for batch in loader for s in batch["sample_id"].tolist()) == list(range(2400))
        for _ in range(100):
            dataflow.open(dataset.manifest.url)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
