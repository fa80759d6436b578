"""A store that a process has used goes on working in its children, and the children do the parent no harm."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dataflow.errors import StorageNotFoundError
from dataflow.storage import Store, open_store

DATA = secrets.token_bytes(200_000)
SECONDS = 30.0


@pytest.fixture(params=["", "fsspec+"], ids=["obstore", "fsspec"])
def store(request: pytest.FixtureRequest, s3_url: str) -> Store:
    return open_store(f"{request.param}{s3_url}")


def read_everything(store: Store, data: bytes, pipe: Connection, environment: dict[str, str]) -> None:
    os.environ.update(environment)  # A fork server was started with an older one.
    with contextlib.suppress(StorageNotFoundError):
        store.size("missing.bin")
    correct = all(bytes(store.read_range("x.bin", start, 1000)) == data[start : start + 1000] for start in range(30))
    pipe.send((correct, [entry.path for entry in store.list()]))


def read_in_grandchild(store: Store, data: bytes, pipe: Connection) -> None:
    correct = bytes(store.read_range("x.bin", 0, 1000)) == data[:1000]
    process = multiprocessing.get_context("fork").Process(target=read_everything, args=(store, data, pipe, {}))
    process.start()
    process.join()
    if not correct or process.exitcode != 0:
        pipe.send((False, []))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_sg01_children_read_while_the_parent_goes_on(store: Store, method: str) -> None:
    store.put_atomic("x.bin", DATA)
    with pytest.raises(StorageNotFoundError):
        store.size("missing.bin")
    store.read_range("x.bin", 0, 10)
    context = multiprocessing.get_context(method)
    stop = threading.Event()
    wrong: list[int] = []

    def keep_reading() -> None:
        start = 0
        while not stop.is_set():
            if bytes(store.read_range("x.bin", start, 1000)) != DATA[start : start + 1000]:
                wrong.append(start)
            start = (start + 997) % 190_000

    reader = threading.Thread(target=keep_reading)
    reader.start()
    try:
        workers = []
        for _ in range(4 if method == "fork" else 1):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=read_everything, args=(store, DATA, sender, dict(os.environ)), daemon=True)
            process.start()
            sender.close()
            workers.append((process, receiver))
        for process, receiver in workers:
            assert receiver.poll(SECONDS), "a child hangs"
            assert receiver.recv() == (True, ["x.bin"])
            process.join(SECONDS)
            assert process.exitcode == 0
    finally:
        stop.set()
        reader.join()
    assert not wrong
    assert bytes(store.read_range("x.bin", 5, 100)) == DATA[5:105]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_sg01_grandchildren_read(store: Store) -> None:
    store.put_atomic("x.bin", DATA)
    receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=read_in_grandchild, args=(store, DATA, sender))
    process.start()
    sender.close()
    assert receiver.poll(SECONDS), "a grandchild hangs"
    assert receiver.recv() == (True, ["x.bin"])
    process.join(SECONDS)
    assert process.exitcode == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_sg01_a_child_that_ends_in_the_ordinary_way_does_no_harm(s3_url: str) -> None:
    store = open_store(s3_url)
    store.put_atomic("x.bin", DATA)
    for _ in range(5):
        child = os.fork()
        if child == 0:
            try:
                correct = bytes(store.read_range("x.bin", 0, 1000)) == DATA[:1000]
            finally:
                del store
            os._exit(0 if correct else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bytes(store.read_range("x.bin", 0, 1000)) == DATA[:1000]


def test_sg01_many_threads_of_a_child_may_start_at_once(s3_url: str, tmp_path: Path) -> None:
    store = open_store(s3_url)
    store.put_atomic("x.bin", DATA)
    child = os.fork()
    if child == 0:
        right: list[bool] = []
        threads = [
            threading.Thread(target=lambda: right.append(bytes(store.read_range("x.bin", 0, 9)) == DATA[:9]))
            for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        os._exit(0 if right == [True] * 16 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
