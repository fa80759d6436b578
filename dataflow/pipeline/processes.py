"""Runs a function of the user in worker processes, on the samples of many batches at once."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from dataflow.dataset.function_pickle import pickle_function
from dataflow.dataset.stages import Map
from dataflow.errors import DatasetError
from dataflow.pipeline.out_of_band import first_unpicklable
from dataflow.pipeline.slab_ring import SLABS
from dataflow.pipeline.work_queue import Chunk, Failure, WorkQueue
from dataflow.pipeline.worker import OF_THE_PARENT, Function
from dataflow.pipeline.worker_process import WorkerDied, WorkerProcess
from dataflow.sampling.random import SampleKey

# Chunks of a batch for each process: fewer cost less, more leave less to wait for at the end of the batch.
_CHUNKS = 4


class Processes:
    """The worker processes of one stage, for one iteration; used by many threads.

    Each has a thread here, which starts it when there is something to do, and alone speaks with it.

    Args:
        stage: What they run.
        number: Number of the stage, which its random numbers depend on.

    Attributes:
        threads: Those that were started.

    Raises:
        OptionError: The function cannot be sent to processes.
    """

    def __init__(self, stage: Map, number: int) -> None:
        assert stage.processes is not None
        self._count = stage.processes
        pickled = pickle_function(stage.fn, stage.name)
        self._function = Function(pickled, stage.name, number if stage.takes_rng else None)
        self._queue = WorkQueue()
        self._lock = threading.Lock()
        self._workers: set[WorkerProcess] = set()
        self.threads: list[threading.Thread] = []

    def run(self, samples: Sequence[Any], keys: Sequence[SampleKey]) -> tuple[list[Any], Failure | None]:
        """What the function makes of samples, up to the first that it fails for, and how it fails then.

        Raises:
            PipelineStopped: They were stopped.
        """
        self._start_threads()
        size = max(1, len(samples) // (_CHUNKS * self._count))
        sent = [None if self._function.stage is None else tuple(key) for key in keys]
        firsts = range(0, len(samples), size)
        return self._queue.run(
            [Chunk(list(samples[first : first + size]), sent[first : first + size], first) for first in firsts]
        )

    def stop(self) -> None:
        """Kill the processes and wake all that wait; the threads end soon then."""
        self._queue.stop()
        with self._lock:
            for worker in self._workers:
                worker.kill()

    def _start_threads(self) -> None:
        with self._lock:
            while len(self.threads) < self._count and not self._queue.stopped:
                name = f"dataflow-process-{len(self.threads)}"
                thread = threading.Thread(target=self._serve, name=name, daemon=True)
                thread.start()
                self.threads.append(thread)

    def _serve(self) -> None:
        """One thread: from one worker to the next, each of which ends only if something goes wrong."""
        # Workers inherit this, so that nothing that is meant for this process reaches them before they are set up.
        signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_PARENT)
        while (first := self._queue.take(wait=True)) is not None:
            work = deque([first])
            try:
                worker = WorkerProcess(self._function)
            except Exception as error:
                self._queue.settle(first, [], Failure(0, error))
                continue
            with self._lock:
                self._workers.add(worker)
            if self._queue.stopped:
                worker.kill()  # it was not yet known when the others were
            try:
                self._send(worker, work)
                self._feed(worker, work)
            except WorkerDied as died:
                self._queue.settle(work.popleft(), [], Failure(died.at, died), urgent=True)
            finally:
                with self._lock:
                    self._workers.discard(worker)
                worker.close()
                self._queue.put_back(work)

    def _feed(self, worker: WorkerProcess, work: deque[Chunk]) -> None:
        """Keep a worker busy with chunks, of which it has those in `work`; until there are no more."""
        while True:
            chunk = self._queue.take(wait=not work) if len(work) < SLABS else None
            if chunk is not None:
                work.append(chunk)
                self._send(worker, work)
            elif work:
                self._receive(worker, work)
            else:
                return

    def _send(self, worker: WorkerProcess, work: deque[Chunk]) -> None:
        chunk = work[-1]
        try:
            worker.send(chunk.samples, chunk.keys)
        except WorkerDied:
            raise
        except Exception as error:
            work.pop()
            problem = DatasetError(
                f"a sample cannot be sent to worker processes: {type(error).__name__}: {error}. Let the stage before "
                f"map {self._function.name!r} return tensors, arrays, bytes, text and numbers, or leave out processes="
            )
            self._queue.settle(chunk, [], Failure(first_unpicklable(chunk.samples), problem))

    def _receive(self, worker: WorkerProcess, work: deque[Chunk]) -> None:
        values: list[Any] = []
        failure = None
        try:
            answer = worker.receive()
            values = answer.values
            if answer.error is not None:
                failure = Failure(len(values), answer.error.restored())
        except WorkerDied:
            raise
        except Exception as error:  # what came cannot be made into what it was
            failure = Failure(len(values), error)
        self._queue.settle(work.popleft(), values, failure)
