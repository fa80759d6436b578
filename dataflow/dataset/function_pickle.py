"""Functions of the user as bytes, for processes of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataflow.errors import OptionError

__all__ = ["pickle_function"]


def pickle_function(function: Callable[..., Any], name: str) -> bytes:
    """A function as bytes: by value if it belongs to a script, a notebook or another function, else by its name.

    Args:
        function: The function.
        name: What messages call it.

    Raises:
        OptionError: It holds what cannot leave this process, or cloudpickle is not installed.
    """
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError as error:
        raise OptionError(
            "map(processes=) sends functions to processes with cloudpickle, which is not installed: "
            "pip install 'dataflow-loader[processes]'"
        ) from error
    try:
        return bytes(cloudpickle.dumps(function, protocol=5))
    except Exception as error:  # what it holds may raise anything when it is pickled
        raise OptionError(
            f"map {name!r} cannot be sent to processes: {type(error).__name__}: {error}. Let it open files, locks and "
            "connections when it is first called, not before, or leave out processes="
        ) from error
