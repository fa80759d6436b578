"""Real causes, each so strong that no other could be meant, and what the verdict calls them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dataflow
from dataflow.measure import Cause, Measurement, bench
from dataflow.pipeline.resources import available_cpus
from tests.dataset.written import write
from tests.measure.slow_disk import open_slowly
from tests.servers.haproxy import INSTALL, DelayProxy, haproxy_program
from tests.servers.nginx import Nginx

SECONDS = 0.25
ROWS = 1600
ROW_BYTES = 4000


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measure") / "rows"
    fill(folder)
    return folder


def fill(folder: Path) -> None:
    """Blocks of 16 rows, 64 kB each."""
    bits = np.random.default_rng(0)
    write(folder, [{"data": bits.bytes(ROW_BYTES), "label": row} for row in range(ROWS)], rows_per_block=16)


@pytest.fixture
def remote(nginx_store: Nginx, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., dataflow.Dataset]]:
    """A dataset behind a network that is as slow as it is told to be."""
    if haproxy_program() is None:
        pytest.skip(f"haproxy is not installed: {INSTALL}")
    if not (nginx_store.folder / "bucket/measure").exists():
        fill(nginx_store.folder / "bucket/measure")
    proxies: list[DelayProxy] = []

    def connect(**slow: int) -> dataflow.Dataset:
        proxies.append(DelayProxy(nginx_store.endpoint, **slow).__enter__())
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxies[-1].endpoint)
        return dataflow.open("s3://bucket/measure")

    yield connect
    for proxy in proxies:
        proxy.__exit__()


def measure(dataset: dataflow.Dataset, **options: Any) -> Measurement:
    found = bench(dataset, **{"seconds": SECONDS, "batch_size": 8, "num_workers": 2} | options)
    print(found.verdict.sentence, [(level.name, level.nbytes, level.usage) for level in found.levels])
    return found


def test_a_narrow_line(remote: Callable[..., dataflow.Dataset]) -> None:
    found = measure(remote(milliseconds=1, bytes_per_second=3_000_000))
    assert (found.verdict.cause, found.verdict.stage) == (Cause.BANDWIDTH, "storage")
    assert 2e6 < found.levels[0].nbytes < 4e6
    assert "storage gives 3." in found.verdict.sentence or "storage gives 2." in found.verdict.sentence


def test_too_few_connections(remote: Callable[..., dataflow.Dataset]) -> None:
    dataset = remote(milliseconds=60)
    dataset.store.concurrency = 1  # type: ignore[misc]
    found = measure(dataset)
    assert (found.verdict.cause, found.verdict.stage) == (Cause.LATENCY, "fetch")
    assert "1 connection cannot fill it" in found.verdict.sentence
    assert found.levels[0].nbytes > 5 * found.levels[1].nbytes


def test_too_little_memory(remote: Callable[..., dataflow.Dataset]) -> None:
    found = measure(remote(milliseconds=60), shuffle=False, memory_limit=250_000)
    assert (found.verdict.cause, found.verdict.stage) == (Cause.MEMORY, "fetch")
    assert found.evidence.trial is not None
    assert found.evidence.trial.nbytes > 2 * found.levels[1].nbytes


def test_a_slow_disk(local: Path) -> None:
    found = measure(open_slowly(local))
    assert found.verdict.cause is Cause.BANDWIDTH
    assert found.levels[0].latencies["p50"] >= 0.02


def test_a_function_that_sleeps(local: Path) -> None:
    def fetch_something(row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.01)
        return row

    found = measure(dataflow.open(str(local)).map(fetch_something))
    assert (found.verdict.cause, found.verdict.stage) == (Cause.WAITING, "decode")
    assert found.levels[3].rows == pytest.approx(2 / 0.01, rel=0.5)


@pytest.mark.skipif(available_cpus() < 2, reason="with one processor nothing else could run beside it")
def test_a_function_that_holds_the_interpreter(local: Path) -> None:
    def count(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"count": sum(number % 7 for number in range(50_000))}

    found = measure(dataflow.open(str(local)).map(count))
    assert (found.verdict.cause, found.verdict.stage) == (Cause.LOCK, "decode")
    assert "processes=" in found.verdict.remedy


def test_a_function_that_computes(local: Path) -> None:
    zeros = bytes(1 << 20)

    def digest(row: dict[str, Any]) -> dict[str, Any]:
        for _ in range(8):
            hashlib.sha256(zeros).digest()  # releases the interpreter
        return row

    workers = available_cpus()
    found = measure(dataflow.open(str(local)).map(digest), num_workers=workers)
    assert (found.verdict.cause, found.verdict.stage) == (Cause.PROCESSOR, "decode")
    assert f"of {workers} cores busy" in found.verdict.sentence


def test_a_slow_consumer(local: Path) -> None:
    found = measure(dataflow.open(str(local)), step=0.1)
    assert (found.verdict.cause, found.verdict.stage) == (Cause.CONSUMER, "accelerator")
    assert found.utilisation is not None
    assert 0.6 < found.utilisation <= 1


def test_a_consumer_that_starves(local: Path) -> None:
    found = measure(open_slowly(local), step=0.001)
    assert found.verdict.cause is Cause.BANDWIDTH
    assert found.utilisation is not None
    assert found.utilisation < 0.5
    assert "the accelerator computes" in found.verdict.sentence
