"""Errors of another process: the same error here, with the text of where it was raised there."""

from __future__ import annotations

import os
import pickle
import traceback
from types import TracebackType
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from dataflow.errors import DataflowError


class RemoteError(NamedTuple):
    """An error on its way.

    Attributes:
        pickled: The error.
        trace: Its traceback as text, with the process that it is from.
    """

    pickled: bytes
    trace: str

    @classmethod
    def of(cls, error: BaseException, trace: TracebackType | None) -> RemoteError:
        """What stands for an error.

        Args:
            error: The error.
            trace: Where its traceback begins to be of interest.
        """
        lines = "".join(traceback.format_exception(type(error), error, trace)).rstrip()
        return cls(_pickled(error), f"raised in worker process {os.getpid()}:\n{lines}")

    def restored(self) -> BaseException:
        """The error, with its first traceback as a note."""
        error: BaseException = pickle.loads(self.pickled)
        error.add_note(self.trace)
        return error


class _Parts:
    """Pickles as an error that was never initialised: many errors cannot be made from their `args` again."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _put_together, (type(self._error), self._error.args, vars(self._error))


def _put_together(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error


def _pickled(error: BaseException) -> bytes:
    plain = DataflowError("".join(traceback.format_exception_only(error)).rstrip())
    for candidate in (error, _Parts(error)):
        try:
            pickled = bytes(cloudpickle.dumps(candidate, protocol=5))
            if type(pickle.loads(pickled)) is type(error):
                return pickled
        except Exception:  # errors may hold anything
            continue
    return bytes(cloudpickle.dumps(plain, protocol=5))
