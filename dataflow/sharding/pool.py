"""Runs jobs in processes. They end with this one, however it ends."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Generator, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from dataflow.errors import DataflowError
from dataflow.sharding.job import Shard, ShardJob, Work, make_shards

__all__ = ["run_jobs"]

# One is being made while the one before it is published.
_JOBS_AT_ONCE = 2


def run_jobs(work: Work, jobs: Iterator[ShardJob], workers: int) -> Generator[Shard, None, None]:
    """Makes shards in some processes, or in this one if one is enough; yields them as they are finished.

    Of several errors the one of the first shard is raised, as one process would have found it.

    Raises:
        DataflowError: A process died; says of what.
    """
    if workers == 1:
        yield from make_shards(work, jobs)
        return
    staff = [_Worker(work) for _ in range(workers)]
    try:
        yield from _shared_out(staff, jobs)
    finally:
        for worker in staff:
            worker.kill()


def _shared_out(staff: list[_Worker], jobs: Iterator[ShardJob]) -> Iterator[Shard]:
    for _ in range(_JOBS_AT_ONCE):
        for worker in staff:
            worker.give(next(jobs, None))
    failure: Exception | None = None
    failed_job = -1
    while any(worker.jobs and (failure is None or worker.jobs[0] < failed_job) for worker in staff):
        for ready in wait([worker.connection for worker in staff if worker.jobs]):
            worker = next(worker for worker in staff if worker.connection is ready)
            number, answer = worker.receive()
            if isinstance(answer, Shard):
                if failure is None:
                    worker.give(next(jobs, None))
                    yield answer
                continue
            if failure is None or number < failed_job:
                failure, failed_job = answer, number
            for other in staff:
                other.give(None)  # the last shard that a process makes comes when there are no more
    if failure is not None:
        raise failure


class _Worker:
    """One process and the jobs that it has."""

    def __init__(self, work: Work) -> None:
        # A fork would share connections and locks of this process; a new one starts clean.
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self._process: SpawnProcess = context.Process(target=_run, args=(work, other), daemon=True)
        self._process.start()
        other.close()
        self.jobs: deque[int] = deque()
        self._told_end = False

    def give(self, job: ShardJob | None) -> None:
        """Sends a job, or says that there are no more."""
        if self._told_end:
            return
        self._told_end = job is None
        if job is not None:
            self.jobs.append(job.number)
        try:
            self.connection.send(job)
        except (BrokenPipeError, ConnectionResetError):
            raise self._died() from None

    def receive(self) -> tuple[int, Shard | Exception]:
        """The next result, and the number of its job. After an error there are no others."""
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._died() from None
        number = self.jobs.popleft()
        if isinstance(answer, Exception):
            self.jobs.clear()
            self._told_end = True
        return number, answer

    def kill(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.connection.close()

    def _died(self) -> DataflowError:
        self._process.join()
        code = self._process.exitcode or 0
        if code == -signal.SIGKILL:
            how = "was killed, perhaps because memory ran out. Give fewer workers"
        elif code < 0:
            how = f"died of {signal.Signals(-code).name}"
        else:
            how = f'ended with code {code}. A script that shards has to do so under `if __name__ == "__main__":`'
        return DataflowError(f"a process that makes shards {how}. What is finished is kept: the same command goes on")


def _run(work: Work, connection: Connection) -> None:
    """What a process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, and the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        for shard in make_shards(work, iter(connection.recv, None)):
            connection.send(shard)
    except Exception as error:
        if not isinstance(error, DataflowError):
            error.add_note(traceback.format_exc())
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            error = DataflowError(f"{type(error).__name__}: {error}")
        connection.send(error)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
