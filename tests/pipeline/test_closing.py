"""Nothing is left behind, however an iteration ends: no thread, process, descriptor or piece of shared memory."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import dataflow
from dataflow.errors import DataflowError
from tests.pipeline.script import run, start

Rows = Callable[..., dataflow.Dataset]
some_workers = pytest.mark.parametrize("workers", [0, 1, 4])


def left() -> tuple[Any, ...]:
    """What this process has that could be left behind."""
    gc.collect()
    threads = sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("dataflow-"))
    children = [child.pid for child in psutil.Process().children()]
    return threads, children, len(os.listdir("/proc/self/fd"))


def shared_memory() -> set[str]:
    """Names in /dev/shm, but for semaphores: this package has none, and other programs leave theirs."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}


def used_by_others() -> set[str]:
    """Names in /dev/shm that other programs of this machine have open."""
    used = set()
    family = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    for pid in set(psutil.pids()) - family:
        with suppress(OSError):
            used |= set(re.findall(r"/dev/shm/(\S+)", Path(f"/proc/{pid}/maps").read_text()))
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    used.add(os.readlink(f"/proc/{pid}/fd/{descriptor}").removeprefix("/dev/shm/"))
    return used


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before, names = left(), shared_memory()
    yield
    assert left() == before
    new = shared_memory() - names
    if new:
        new -= used_by_others()
        threading.Event().wait(1)  # tests in other processes have some for a moment
    assert not new & shared_memory()


def keep(sample: dict[str, Any]) -> bool:
    return bool(sample["number"] % 3)


def fail_in(loader: dataflow.DataLoader) -> None:
    """A training loop that fails in its first step."""
    for batch in loader:
        raise ZeroDivisionError(batch)


def exhaust(iterator: Iterator[Any]) -> None:
    for _ in iterator:
        pass


def loaders(dataset: dataflow.Dataset, workers: int) -> list[dataflow.DataLoader]:
    """Each kind of stream."""
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "num_workers": workers, "lanes": 8}
    return [
        dataflow.DataLoader(dataset, **options),
        dataflow.DataLoader(dataset, **options, steps_per_epoch=50),
        dataflow.DataLoader(dataset.filter(keep), **options, steps_per_epoch=50),
        dataflow.DataLoader(dataset.filter(keep), **options, end="exact"),
    ]


@some_workers
def test_nothing_is_left_at_the_end(rows: Rows, workers: int) -> None:
    before = left()
    for loader in loaders(rows(400), workers):
        iterator = iter(loader)
        assert sum(1 for _ in iterator) > 0
        assert left() == before, "though the iterator is still referred to"


@some_workers
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_nothing_is_left_after_leaving_early(rows: Rows, workers: int, steps: int) -> None:
    before = left()
    for loader in loaders(rows(400), workers):
        for number, _ in enumerate(loader, 1):
            if number >= steps:
                break
        assert left() == before


@some_workers
def test_nothing_is_left_after_an_exception_in_the_loop(rows: Rows, workers: int) -> None:
    before = left()
    for loader in loaders(rows(400), workers):
        with pytest.raises(ZeroDivisionError):
            fail_in(loader)
        assert left() == before


@some_workers
def test_nothing_is_left_after_an_exception_in_map(rows: Rows, workers: int) -> None:
    before = left()
    for loader in loaders(rows(400).map(lambda sample: sample if sample["number"] != 57 else 1 // 0), workers):
        iterator = iter(loader)
        with pytest.raises(ZeroDivisionError):
            exhaust(iterator)
        assert left() == before, "though the iterator is still referred to"


@some_workers
def test_close_ends_at_once_and_may_be_called_again(rows: Rows, workers: int) -> None:
    before = left()
    for loader in loaders(rows(400), workers):
        iterator = iter(loader)
        next(iterator)
        start = time.perf_counter()
        iterator.close()
        iterator.close()
        assert time.perf_counter() - start < 2
        assert left() == before
        with pytest.raises(DataflowError, match="closed"):
            next(iterator)
        assert next(iter(loader))["slot"].tolist() == [0, 1, 2, 3], "leaving early does not move to the next epoch"


def test_close_frees_a_consumer_that_waits(rows: Rows) -> None:
    gate = threading.Event()
    loader = dataflow.DataLoader(rows(40).map(lambda sample: gate.wait(30) and sample), batch_size=4, num_workers=2)
    iterator = iter(loader)
    threading.Timer(0.2, iterator.close).start()
    start = time.perf_counter()
    with pytest.raises(DataflowError, match="closed"):
        next(iterator)
    assert time.perf_counter() - start < 2.5
    gate.set()
    for thread in threading.enumerate():
        if thread.name.startswith("dataflow-"):
            thread.join(10)  # those that were in the user's function end when it does


def test_a_new_iteration_closes_the_one_before(rows: Rows) -> None:
    loader = dataflow.DataLoader(rows(400), batch_size=4, num_workers=2)
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert next(second)["slot"].tolist() == [0, 1, 2, 3]
    with pytest.raises(DataflowError, match="closed"):
        exhaust(first)
    assert sum(1 for _ in second) == 99


def test_an_iterator_outlives_its_loader(rows: Rows) -> None:
    iterator = iter(dataflow.DataLoader(rows(400), batch_size=4, num_workers=2))
    gc.collect()
    assert sum(1 for _ in iterator) == 100


@some_workers
def test_after_the_end_the_iterator_stays_at_its_end(rows: Rows, workers: int) -> None:
    for loader in loaders(rows(40), workers):
        iterator = iter(loader)
        assert len(list(iterator)) > 0
        assert next(iterator, None) is None
        assert next(iterator, None) is None


INTERRUPTED = """
dataset = dataflow.open(sys.argv[1]).map(lambda sample: time.sleep(0.02) or sample)
loader = dataflow.DataLoader(dataset, batch_size=4, num_workers=int(sys.argv[2]), shuffle=True)
before = left()
try:
    for batch in loader:
        print("got", flush=True)
except KeyboardInterrupt:
    if sys.argv[3] == "uncaught":
        raise
    sys.last_value = None
    del batch
    print("left" if left() != before else "clean", left(), before, flush=True)
    assert next(iter(loader))["slot"].tolist() == [0, 1, 2, 3]
"""


@pytest.mark.parametrize(("workers", "kind"), [(0, "caught"), (2, "caught"), (2, "uncaught")])
def test_ctrl_c_ends_an_iteration_and_leaves_nothing(rows: Rows, workers: int, kind: str) -> None:
    process = start(INTERRUPTED, rows(4000).manifest.url, workers, kind)
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "got\n":
        assert line, "ended before its first batch"
    process.send_signal(signal.SIGINT)
    sent = time.perf_counter()
    output, _ = process.communicate(timeout=30)
    took = time.perf_counter() - sent
    if kind == "caught":
        assert process.returncode == 0, output
        assert "clean" in output, output
    else:
        assert process.returncode == -signal.SIGINT, output
        assert "KeyboardInterrupt" in output
        assert "Exception ignored" not in output, output
        assert "Fatal Python error" not in output, output
    assert took < 3


EXITING = """
gate = threading.Event()
dataset = dataflow.open(sys.argv[1])
if sys.argv[3] == "stuck":
    dataset = dataset.map(lambda sample: sample if sample["number"] < 8 else gate.wait(40))
if sys.argv[3] == "filter":
    dataset = dataset.filter(lambda sample: sample["number"] % 2 == 0)
loader = dataflow.DataLoader(dataset, batch_size=4, num_workers=int(sys.argv[2]), steps_per_epoch=10**6)
iterator = iter(loader)
next(iterator)
print("ready", time.perf_counter(), flush=True)
"""


@pytest.mark.parametrize(("workers", "kind"), [(0, "plain"), (2, "plain"), (2, "filter"), (2, "stuck")])
def test_the_interpreter_exits_with_an_iterator_alive(rows: Rows, workers: int, kind: str) -> None:
    output = run(EXITING, rows(4000).manifest.url, workers, kind)
    ready, before, exited, after = output.split()
    assert (ready, exited) == ("ready", "exited")
    assert float(after) - float(before) < 2


def in_child(function: Callable[[], None]) -> None:
    """Run a function in a fork of this process, which has to end by itself."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # a child that hangs is killed
            function()
            status = 0
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(status)
    _, code = os.waitpid(child, 0)
    assert code == 0, f"the child ended with {code}, {signal.Signals(code & 127).name if code & 127 else ''}"


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("filtered", [False, True])
def test_sg01_a_fork_gets_a_clear_error_and_can_iterate_anew(rows: Rows, workers: int, filtered: bool) -> None:
    dataset = rows(400).filter(keep) if filtered else rows(400)
    loader = dataflow.DataLoader(dataset, batch_size=4, num_workers=workers, steps_per_epoch=60)
    iterator = iter(loader)
    first = next(iterator)

    def child() -> None:
        with pytest.raises(DataflowError, match="fork"):
            next(iterator)
        again = iter(loader)
        assert next(again)["sample_id"].tolist() == first["sample_id"].tolist()
        assert sum(1 for _ in again) == 59

    in_child(child)
    assert sum(1 for _ in iterator) == 59, "the parent goes on"


def test_sg01_forks_at_any_moment_can_iterate(rows: Rows) -> None:
    """While threads of the parent hold what they hold."""
    loader = dataflow.DataLoader(rows(400), batch_size=1, num_workers=4, steps_per_epoch=10**6)
    iterator = iter(loader)
    for _ in range(25):
        for _ in range(7):
            next(iterator)
        in_child(lambda: next(iter(loader)))
        in_child(lambda: iterator.close())
    iterator.close()


def vars_of(part: object) -> list[Any]:
    """Values of all attributes, with slots or without."""
    return [getattr(part, name) for name in getattr(type(part), "__slots__", None) or vars(part)]


def test_sg01_a_fork_can_iterate_whatever_locks_were_held(rows: Rows) -> None:
    """The locks of a thread that the fork does not have stay locked in it for ever."""
    loader = dataflow.DataLoader(rows(400), batch_size=1, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    assert loader._last is not None
    pipeline = loader._last.pipeline
    parts = (pipeline, pipeline.table, pipeline.fetcher, pipeline.clocks)
    locks = [value for part in parts for value in vars_of(part) if hasattr(value, "acquire")]
    assert len(locks) > 2
    for lock in locks:
        held, release = threading.Event(), threading.Event()

        def hold(lock: Any = lock, held: threading.Event = held, release: threading.Event = release) -> None:
            with lock:
                held.set()
                release.wait(40)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:
            in_child(lambda: next(iter(loader)))
        finally:
            release.set()
            thread.join()
    iterator.close()
