from __future__ import annotations

import threading

import pytest

from dataflow.sharding.read_ahead import _WAITING_BYTES, read_ahead


def test_results_come_in_order_though_reads_end_in_another() -> None:
    ended = [threading.Event() for _ in range(8)]

    def read(number: int) -> int:
        # Even ones wait for the one behind them.
        if number % 2 == 0:
            assert ended[number + 1].wait(10)
        ended[number].set()
        return number

    assert list(read_ahead(((number, 1) for number in range(8)), read, threads=3)) == list(range(8))


def test_large_items_are_not_piled_up() -> None:
    lock = threading.Lock()
    started = 0

    def read(number: int) -> int:
        nonlocal started
        with lock:
            started += 1
        return number

    results = read_ahead(((number, _WAITING_BYTES // 2) for number in range(20)), read, threads=8)
    for number in range(20):
        assert next(results) == number
        assert started <= number + 3


def test_an_error_comes_in_its_turn_and_ends_the_threads() -> None:
    def read(number: int) -> int:
        return 1 // (number - 5)

    results = read_ahead(((number, 1) for number in range(100)), read, threads=4)
    assert [next(results) for _ in range(5)] == [-1, -1, -1, -1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dataflow-read")]
