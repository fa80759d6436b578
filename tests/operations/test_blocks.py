from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from dataflow.dataset import Manifest
from dataflow.operations.blocks import in_order
from tests.dataset.written import write


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return write(tmp_path, [{"x": number} for number in range(40)], rows_per_block=1)


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_results_come_in_order_and_not_all_at_once(manifest: Manifest, workers: int) -> None:
    lock = threading.Lock()
    running = most = started = 0

    def work(block: int) -> int:
        nonlocal running, most, started
        with lock:
            running, started = running + 1, started + 1
            most = max(most, running)
        time.sleep(0.002 * (block % 3))
        with lock:
            running -= 1
        return block * block

    for number, (block, result) in enumerate(in_order(manifest, work, workers=workers)):
        assert (block, result) == (number, number * number)
        assert started <= number + 1 + 2 * workers
    assert number == 39
    assert most <= workers


def test_some_blocks_alone(manifest: Manifest) -> None:
    assert list(in_order(manifest, str, [7, 3, 30])) == [(7, "7"), (3, "3"), (30, "30")]


def test_an_error_comes_through_and_ends_it(manifest: Manifest) -> None:
    def work(block: int) -> int:
        if block == 5:
            raise KeyError(block)
        return block

    results = in_order(manifest, work, workers=2)
    assert [next(results) for _ in range(5)] == [(block, block) for block in range(5)]
    with pytest.raises(KeyError, match="5"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_leaving_early_leaves_no_thread(manifest: Manifest) -> None:
    before = threading.active_count()
    for block, _ in in_order(manifest, str, workers=4):
        if block == 3:
            break
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
