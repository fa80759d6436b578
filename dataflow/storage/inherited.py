"""What a fork brought along from the parent and nobody may touch, not even to tear it down."""

from __future__ import annotations

__all__ = ["leave_alone"]

_left_alone: list[object] = []


def leave_alone(*inherited: object) -> None:
    """Keeps these objects for the rest of the process.

    A client that is torn down closes connections, wakes threads and takes locks. After a fork the connections are
    shared with the parent, and the threads and the holders of the locks do not exist.
    """
    _left_alone.extend(inherited)
