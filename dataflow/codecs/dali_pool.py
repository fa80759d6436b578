"""Pipelines of DALI that threads take turns with: made as they are needed, kept, and let go in time."""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import WeakSet

from dataflow.storage.inherited import leave_alone

_EXIT_SECONDS = 1.5


class PipelinePool:
    """Pipelines that are alike; each is used by one thread at a time.

    Args:
        make: Makes another one. DALI has to be imported already.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._idle: deque[Any] = deque()  # which needs no lock
        _pools.add(self)
        _at_exit()

    @contextmanager
    def borrow(self) -> Iterator[Any]:
        """A pipeline for the thread's own use; it is not used again if an error comes out of that.

        Raises:
            RuntimeError: The interpreter exits.
        """
        users = _users  # those of the process before a fork
        users.enter()
        try:
            try:
                pipeline = self._idle.pop()
            except IndexError:
                pipeline = self._make()
            yield pipeline
            self._idle.append(pipeline)
        finally:
            users.leave()

    def forget(self) -> None:
        """Leave the pipelines to the parent, after a fork: it has their threads."""
        leave_alone(self._idle)
        self._idle = deque()


class _Users:
    """The threads that use a pipeline now. At the exit DALI ends all pipelines, and has to wait for these."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._over = False

    def enter(self) -> None:
        with self._changed:
            if self._over:
                raise RuntimeError("the interpreter exits")
            self._count += 1

    def leave(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def finish(self) -> None:
        with self._changed:
            self._over = True
            self._changed.wait_for(lambda: self._count == 0, _EXIT_SECONDS)


_users = _Users()
_pools: WeakSet[PipelinePool] = WeakSet()


def _after_fork() -> None:
    global _users
    _users = _Users()
    for pool in list(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_after_fork)


@cache
def _at_exit() -> None:
    # By now DALI is imported and has registered its own function, which runs after this one.
    atexit.register(lambda: _users.finish())
