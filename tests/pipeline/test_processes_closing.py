"""Worker processes leave nothing behind, however an iteration or their parent ends."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import dataflow
from dataflow.errors import DataflowError
from tests.pipeline import functions
from tests.pipeline.script import run, start
from tests.pipeline.test_closing import left, shared_memory

Rows = Callable[..., dataflow.Dataset]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before, names = left(), shared_memory()
    yield
    assert left() == before
    assert not any("dataflow" in name for name in shared_memory() - names)


@pytest.fixture
def loader(rows: Rows) -> dataflow.DataLoader:
    dataset = rows(400).map(functions.slow, processes=2)
    return dataflow.DataLoader(dataset, batch_size=4, num_workers=2, shuffle=True, lanes=8)


def gone(pids: list[int]) -> bool:
    """Whether processes end within a second; zombies have ended."""
    deadline = time.perf_counter() + 1
    while time.perf_counter() < deadline:
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
            return True
        time.sleep(0.01)
    return False


def children() -> list[int]:
    """Worker processes; servers of other tests may run, too."""
    return [child.pid for child in psutil.Process().children() if "dataflow.pipeline.worker" in str(child.cmdline())]


def test_nothing_is_left_at_the_end(rows: Rows) -> None:
    before = left()
    loader = dataflow.DataLoader(rows(40).map(functions.slow, processes=2), batch_size=4, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    assert 1 <= len(children()) <= 2
    assert sum(1 for _ in iterator) == 9
    assert left() == before, "though the iterator is still referred to"


def test_nothing_is_left_after_leaving_early(loader: dataflow.DataLoader) -> None:
    before = left()
    for _ in range(2):
        for _ in loader:
            assert children()
            break
        assert left() == before


def test_nothing_is_left_after_an_iteration_that_was_never_asked(loader: dataflow.DataLoader) -> None:
    before = left()
    iter(loader)
    gc.collect()
    assert left() == before


def fail_in(loader: dataflow.DataLoader) -> None:
    for batch in loader:
        raise ZeroDivisionError(batch)


def test_nothing_is_left_after_an_exception_in_the_loop(loader: dataflow.DataLoader) -> None:
    before = left()
    with pytest.raises(ZeroDivisionError):
        fail_in(loader)
    assert left() == before


@pytest.mark.parametrize("function", [functions.fail_at_57, functions.die_at_57])
def test_nothing_is_left_after_an_error(rows: Rows, function: Callable[..., Any]) -> None:
    before = left()
    loader = dataflow.DataLoader(rows(400).map(function, processes=2), batch_size=4, num_workers=2)
    iterator = iter(loader)
    with pytest.raises((functions.Trouble, DataflowError)):
        list(iterator)
    assert left() == before, "though the iterator is still referred to"


@pytest.mark.parametrize("workers", [0, 2])
def test_close_ends_at_once_though_a_worker_is_busy(rows: Rows, workers: int) -> None:
    before = left()
    loader = dataflow.DataLoader(rows(40).map(functions.forever, processes=2), batch_size=4, num_workers=workers)
    iterator = iter(loader)
    if workers:
        while len(children()) < 2:
            time.sleep(0.01)
    start = time.perf_counter()
    iterator.close()
    iterator.close()
    assert time.perf_counter() - start < 2
    assert left() == before
    with pytest.raises(DataflowError, match="closed"):
        next(iterator)


SCRIPT = """
from tests.pipeline import functions
dataset = dataflow.open(sys.argv[1]).map(getattr(functions, sys.argv[2]), processes=2)
loader = dataflow.DataLoader(dataset, batch_size=2, num_workers=2)
before = left()
"""

INTERRUPTED = (
    SCRIPT
    + """
try:
    for batch in loader:
        print("got", flush=True)
except KeyboardInterrupt:
    sys.last_value = None
    del batch
    print("left" if left() != before else "clean", left(), before, flush=True)
    assert next(iter(loader))["slot"].tolist() == [0, 1]
"""
)


def test_ctrl_c_leaves_nothing(rows: Rows) -> None:
    """It reaches the whole process group, as from a terminal, and workers say nothing of it."""
    process = start(INTERRUPTED, rows(4000).manifest.url, "slow", new_session=True)
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "got\n":
        assert line, "ended before its first batch"
    workers = [child.pid for child in psutil.Process(process.pid).children()]
    assert workers
    os.killpg(process.pid, signal.SIGINT)
    sent = time.perf_counter()
    while (line := process.stdout.readline()) == "got\n":
        pass
    assert line.startswith("clean"), line + process.stdout.read()
    assert time.perf_counter() - sent < 3
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    assert gone(workers)


def test_signals_to_all_processes_of_a_job_are_for_the_one_that_trains(rows: Rows) -> None:
    """As a scheduler sends them before it takes a machine away: the loop goes on, and decides."""
    code = """
from tests.pipeline import functions
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
dataset = dataflow.open(sys.argv[1]).map(functions.slow, processes=2)
steps = 0
for batch in dataflow.DataLoader(dataset, batch_size=2, num_workers=2):
    steps += 1
    if steps == 3:
        for child in psutil.Process().children():
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
print("steps", steps, "seen", len(seen))
"""
    assert run(code, rows(40).manifest.url).splitlines()[0] == "steps 20 seen 1"


WAITING = (
    SCRIPT
    + """
iterator = iter(loader)
next(iterator) if sys.argv[2] == "slow" else time.sleep(50)
print("ready", flush=True)
time.sleep(50)
"""
)


@pytest.mark.parametrize("function", ["slow", "forever"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(rows: Rows, function: str, number: signal.Signals) -> None:
    """Even those that hold the interpreter lock, and though a fork of the parent has all of its descriptors."""
    process = start(WAITING, rows(4000).manifest.url, function)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("at" if function == "forever" else "ready"), line
    workers = [child.pid for child in psutil.Process(process.pid).children()]
    assert workers
    process.send_signal(number)
    process.wait(5)
    process.stdout.close()
    assert gone(workers)


def test_workers_end_with_a_parent_that_was_forked(rows: Rows) -> None:
    code = """
from tests.pipeline import functions
dataset = dataflow.open(sys.argv[1]).map(functions.slow, processes=2)
iterator = iter(dataflow.DataLoader(dataset, batch_size=2, num_workers=2))
next(iterator)
workers = [child.pid for child in psutil.Process().children()]
if os.fork() == 0:
    time.sleep(20)  # with a copy of every descriptor
    os._exit(0)
print(*workers, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    process = start(code, rows(40).manifest.url)
    assert process.stdout is not None
    workers = [int(word) for word in process.stdout.readline().split()]
    process.wait(10)
    process.stdout.close()
    assert workers
    assert gone(workers)


def test_the_interpreter_exits_with_an_iterator_alive(rows: Rows) -> None:
    code = SCRIPT + 'iterator = iter(loader)\nnext(iterator)\nprint("ready", time.perf_counter(), flush=True)\n'
    ready, before, exited, after = run(code, rows(400).manifest.url, "slow").split()
    assert (ready, exited) == ("ready", "exited")
    assert float(after) - float(before) < 2


def test_processes_of_a_function_are_ordinary_ones(rows: Rows) -> None:
    """A program that a function starts can be terminated, and so can a fork."""

    def starting(sample: dict[str, Any]) -> dict[str, Any]:
        import multiprocessing
        import subprocess

        program = subprocess.Popen(["sleep", "30"])
        program.terminate()
        fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(30,))
        fork.start()
        fork.terminate()
        fork.join(5)
        return {"program": program.wait(5), "fork": fork.exitcode}

    batch = next(iter(dataflow.DataLoader(rows(4).map(starting, processes=1), batch_size=2)))
    assert batch["program"].tolist() == [-signal.SIGTERM] * 2
    assert batch["fork"].tolist() == [-signal.SIGTERM] * 2


def test_memory_does_not_grow(rows: Rows) -> None:
    """Descriptors and mapped memory of a loader stay what they were, batch after batch that is kept (SG-10)."""
    loader = dataflow.DataLoader(rows(400).map(lambda s: s, processes=1), batch_size=1, num_workers=1)
    kept, counts = [], []
    for batch in loader:
        kept.append(batch)
        counts.append((len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count("memfd:dataflow")))
    assert len(kept) == 400
    assert counts[10] == counts[-1]
    assert counts[-1][1] == 2
