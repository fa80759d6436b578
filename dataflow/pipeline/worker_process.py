"""One worker process, as the process sees it that started it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import Any

from dataflow.errors import DataflowError
from dataflow.pipeline.slab_ring import SlabRing
from dataflow.pipeline.worker import Answer, Function, loading

_START = (
    "import sys; sys.path[:] = sys.argv[3:]; from dataflow.pipeline.worker import main; main(*map(int, sys.argv[1:3]))"
)
# Torch, and what else computes in threads: processors are shared out by the number of processes.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_EXIT_SECONDS = 0.5


class WorkerDied(DataflowError):
    """A worker process has ended by itself.

    Attributes:
        at: Number of the sample that it was at, among those that were to be answered next.
    """

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


class WorkerProcess:
    """A process that runs a function; used by the thread that made it, which has to outlive it.

    A fresh interpreter, not a fork: that would have the locks of threads which it does not have, and connections that
    are not its own. It ends with that thread, and so with this process, however that ends.

    Args:
        function: What it runs.

    Raises:
        DataflowError: This is a worker process itself, which imports a module that uses a loader: each process would
            start the next one.
    """

    def __init__(self, function: Function) -> None:
        if loading.is_set():
            raise DataflowError(
                f"map {function.name!r} is used while a worker process imports its module: put what the module does "
                'when it is run under `if __name__ == "__main__":`'
            )
        # Messages stay apart, and the end of the process is the end of the connection.
        connection, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._function = function
        self._ready = False
        try:
            self._ring = SlabRing.offer(connection)
            path = [entry for entry in sys.path if isinstance(entry, str)]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(other.fileno()), str(os.getpid()), *path],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env={**os.environ, **_ONE_THREAD},
            )
        except BaseException:
            connection.close()
            raise
        finally:
            other.close()

    def send(self, samples: list[Any], keys: list[Any]) -> None:
        """Give it samples, of which it may have `SLABS` lists.

        Raises:
            WorkerDied: It has ended.
            Exception: Whatever a sample raises when it is pickled; nothing was sent then.
        """
        try:
            if not self._ready:
                self._ring.send(self._function)
                self._ring.receive()
                self._ready = True
            self._ring.send((samples, keys))
        except ConnectionError:
            raise self._died() from None

    def receive(self) -> Answer:
        """Wait for what came of the first samples that are unanswered.

        Raises:
            WorkerDied: It has ended.
        """
        try:
            answer: Answer = self._ring.receive()
        except ConnectionError:
            raise self._died() from None
        return answer

    def kill(self) -> None:
        """End it, whatever it does; from any thread."""
        self._process.kill()

    def close(self) -> None:
        """Give back all that it had, once it has ended."""
        self._process.kill()
        self._process.wait()
        self._ring.close()

    def _died(self) -> WorkerDied:
        try:
            code = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:  # it has closed the connection, whatever for
            self._process.kill()
            code = self._process.wait()
        at = self._ring.at if self._ready else 0
        doing = "" if self._ready else " before it could begin: see what it has written"
        if code == -signal.SIGKILL:
            how = "was killed (SIGKILL), perhaps because memory ran out: give fewer processes, or a smaller batch_size"
        elif code < 0:
            how = f"died of {_signal_name(-code)}: look for the cause in a native library that the function uses"
        else:
            how = f"ended with exit code {code}: the function, or a library that it uses, ends its process"
        return WorkerDied(f"a worker process of map {self._function.name!r} {how}{doing}", at)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # those for real time have no names
        return f"signal {number}"
