"""What this process takes of the processors, and would take if it could, and how long it waits for Python's lock."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

__all__ = ["Monitor", "Usage"]

_PERIOD = 0.01
_LOOKS = 60
_NANO = 1e-9


class Usage(NamedTuple):
    """What a stretch of time took.

    Attributes:
        seconds: Its length.
        cores: Processors that were used on average, with those of child processes.
        wanted: Processors that would have been used had they been free; as `cores` where the kernel does not tell.
        lock_wait: Seconds that a thread usually waits for Python's interpreter lock, each time that it wants it.
    """

    seconds: float
    cores: float
    wanted: float
    lock_wait: float

    @property
    def lock_held(self) -> bool:
        """Whether some thread is likely to hold the lock for as long as it may, until it is taken away by force."""
        return self.lock_wait > 0.3 * sys.getswitchinterval()

    def computes(self, cores: float) -> bool:
        """Whether so many processors would be busy if they were free; a little of that shows on the busiest machine."""
        return self.wanted >= cores and self.cores >= 0.05 * self.wanted


class Monitor:
    """A thread that wakes up a hundred times a second, from `start` to `stop`.

    Args:
        look: Called with the time, some sixty times within `seconds`.
        seconds: How long it may last, about.
    """

    def __init__(self, look: Callable[[float], None], seconds: float) -> None:
        self._look = look
        self._between = seconds / _LOOKS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dataflow-monitor", daemon=True)
        self._lock_waits: list[float] = []
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin."""
        self._since = perf_counter()
        self._cpu = time.process_time()
        self._before = _scheduled()
        self._thread.start()

    def stop(self) -> Usage:
        """End; what was used since `start`. What threads wanted that have ended since then is left out."""
        now, seconds, cpu = _scheduled(), perf_counter() - self._since, time.process_time() - self._cpu
        lock_wait = max(0.0, median(self._lock_waits or [0.0]))
        self.cancel()
        if self._error is not None:
            raise self._error
        run = delay = 0.0
        for task, (ran, delayed) in now.items():
            if task != self._thread.native_id:
                ran_before, delayed_before = self._before.get(task, (0.0, 0.0))
                run += ran - ran_before
                delay += delayed - delayed_before
        cores = max(run, cpu) / seconds
        return Usage(seconds, cores, cores + delay / seconds, lock_wait)

    def cancel(self) -> None:
        """End, whether it was started or not."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        looked = 0.0
        try:
            with _own_delay() as delay:
                while not self._ended.is_set():
                    start, delayed = perf_counter(), delay()
                    time.sleep(_PERIOD)
                    now = perf_counter()
                    # What it was late for want of a processor was not for want of the lock.
                    self._lock_waits.append(now - start - _PERIOD - (delay() - delayed))
                    if now - looked >= self._between:
                        looked = now
                        self._look(now)
        except BaseException as error:  # raised again where it is stopped
            self._error = error


@contextmanager
def _own_delay() -> Iterator[Callable[[], float]]:
    """Tells the seconds that this thread could have run and did not; 0 where the kernel keeps no such figure."""
    try:
        descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        yield lambda: 0.0
        return
    try:
        # One call that lets go of the interpreter lock, so briefly that it is at once taken again.
        yield lambda: int(os.pread(descriptor, 128, 0).split()[1]) * _NANO
    finally:
        os.close(descriptor)


def _scheduled() -> dict[int, tuple[float, float]]:
    """For each thread, also of child processes: seconds that it ran, and that it could have run."""
    found: dict[int, tuple[float, float]] = {}
    folders = [Path("/proc/self/task")]
    # Threads and processes may end meanwhile, and some kernels keep no such figures.
    with suppress(OSError):
        for children in Path("/proc/self/task").glob("*/children"):
            with suppress(OSError):
                folders += [Path(f"/proc/{child}/task") for child in children.read_text().split()]
    for folder in folders:
        with suppress(OSError):
            for task in folder.iterdir():
                with suppress(OSError, ValueError):
                    run, delay, _ = map(int, (task / "schedstat").read_text().split())
                    found[int(task.name)] = run * _NANO, delay * _NANO
    return found
