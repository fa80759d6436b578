"""What a worker process does: a function of the user, on one sample after the other."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from dataflow import _native
from dataflow.errors import DataflowError, DatasetError
from dataflow.pipeline.out_of_band import first_unpicklable
from dataflow.pipeline.remote_error import RemoteError
from dataflow.pipeline.slab_ring import SlabRing
from dataflow.sampling.random import SampleKey, sample_generator

# They are sent to all processes of a job, and are meant for the one that trains, which ends the others if it ends.
OF_THE_PARENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1

#: Set in a worker process while it imports what its function needs.
loading = threading.Event()


class Function(NamedTuple):
    """What a worker runs.

    Attributes:
        pickled: The function.
        name: What messages call it.
        stage: Number of its stage, which its random numbers depend on; None if it takes none.
    """

    pickled: bytes
    name: str
    stage: int | None


class Answer(NamedTuple):
    """What came of some samples.

    Attributes:
        values: What the function returned, up to the first error.
        error: That error.
    """

    values: list[Any]
    error: RemoteError | None


def main(descriptor: int, parent: int) -> None:
    """Answer what comes through a socket, until nobody is at its other end.

    Args:
        descriptor: The socket.
        parent: Number of the process that started this one.
    """
    _end_with(parent)
    connection = socket.socket(fileno=descriptor)
    _leave_signals_to_parent(connection)
    faulthandler.enable()
    # What is left in a buffer would be lost with the process.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _native.reuse_freed_memory()
    try:
        ring = SlabRing.accept(connection)
        call = _loaded(ring.receive())
        ring.send(None)
        while True:
            _answer(ring, call)
    except ConnectionError:
        return


def _end_with(parent: int) -> None:
    """Be killed when the thread that started this process ends, whatever this process is doing then."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


def _leave_signals_to_parent(connection: socket.socket) -> None:
    for number in OF_THE_PARENT:
        # A function, since programs that the user's function starts would go on to ignore what is ignored here.
        signal.signal(number, lambda *_: None)

    def block() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_PARENT)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_THE_PARENT)

    def become_ordinary() -> None:
        for number in OF_THE_PARENT:
            signal.signal(number, signal.SIG_DFL)
        connection.close()  # else the parent would not see that this process has ended
        unblock()

    unblock()
    # A fork may be told to end before it gets as far as this.
    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=become_ordinary)


def _loaded(function: Function) -> Callable[[Any, Any], Any]:
    """What makes a value of a sample and its key."""
    loading.set()
    try:
        call = pickle.loads(function.pickled)
    except Exception as error:
        problem = DataflowError(
            f"map {function.name!r} cannot be loaded in a worker process: {type(error).__name__}: {error}. The modules "
            "that it needs have to be importable there"
        )

        def fail(sample: Any, key: Any) -> Any:
            raise problem

        return fail
    finally:
        loading.clear()
    if function.stage is None:
        return lambda sample, key: call(sample)
    stage = function.stage
    return lambda sample, key: call(sample, sample_generator(SampleKey(*key), stage))


def _answer(ring: SlabRing, call: Callable[[Any, Any], Any]) -> None:
    values: list[Any] = []
    failure = None
    try:
        samples, keys = ring.receive()
    except ConnectionError:
        raise
    except Exception as error:
        samples, keys = [], []
        failure = RemoteError.of(error, error.__traceback__)
    for sample, key in zip(samples, keys, strict=True):
        ring.at = len(values)
        try:
            values.append(call(sample, key))
        except BaseException as error:  # the parent raises it, whatever it is
            inner = error.__traceback__ and error.__traceback__.tb_next
            failure = RemoteError.of(error, inner and inner.tb_next)
            break
    try:
        ring.send(Answer(values, failure))
    except ConnectionError:
        raise
    except Exception as error:
        problem = DatasetError(
            f"map() returned what a worker process cannot hand over: {type(error).__name__}: {error}. Return tensors, "
            "arrays, bytes, text and numbers, or leave out processes="
        )
        ring.send(Answer(values[: first_unpicklable(values)], RemoteError.of(problem, None)))
