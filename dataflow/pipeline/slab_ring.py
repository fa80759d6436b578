"""Values to and from a process: each goes through the next of a few slabs, and comes back through the same one."""

from __future__ import annotations

import os
import socket
from typing import Any

from dataflow.pipeline.shared_slab import SharedSlab, new_memory

# The worker has one while the other is filled or emptied.
SLABS = 2
_SIZE_BYTES = 8


class SlabRing:
    """One end. A process sends, its worker answers in turn; at most `SLABS` values are unanswered.

    Args:
        connection: A socket that keeps messages apart; closed with the ring.
        descriptors: Memory of the slabs; closed here.
    """

    def __init__(self, connection: socket.socket, descriptors: list[int]) -> None:
        self._connection = connection
        self._slabs: list[SharedSlab] = []
        self._sent = 0
        self._received = 0
        try:
            self._slabs += [SharedSlab(descriptor) for descriptor in descriptors]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    @classmethod
    def offer(cls, connection: socket.socket) -> SlabRing:
        """The end of the process that makes the slabs."""
        descriptors = [new_memory() for _ in range(SLABS)]
        socket.send_fds(connection, [bytes(_SIZE_BYTES)], descriptors)
        return cls(connection, descriptors)

    @classmethod
    def accept(cls, connection: socket.socket) -> SlabRing:
        """The end of the worker."""
        return cls(connection, socket.recv_fds(connection, _SIZE_BYTES, SLABS)[1])

    @property
    def at(self) -> int:
        """Number of the sample in work in the value that is to be answered next."""
        return self._slabs[self._received % SLABS].at

    @at.setter
    def at(self, number: int) -> None:
        self._slabs[self._sent % SLABS].at = number

    def send(self, value: Any) -> None:
        """Hand a value over.

        Raises:
            ConnectionError: The other process is gone.
            Exception: Whatever the value raises when it is pickled; nothing was sent then.
        """
        slab = self._slabs[self._sent % SLABS]
        slab.write(value)
        self._connection.send(slab.nbytes.to_bytes(_SIZE_BYTES, "little"))
        self._sent += 1

    def receive(self) -> Any:
        """The next value.

        Raises:
            ConnectionError: The other process is gone.
            Exception: Whatever the value raises when it is made.
        """
        message = self._connection.recv(_SIZE_BYTES)
        if not message:
            raise ConnectionError("the other process is gone")
        slab = self._slabs[self._received % SLABS]
        self._received += 1
        slab.resize(int.from_bytes(message, "little"))
        return slab.read()

    def close(self) -> None:
        """Give slabs and socket back."""
        self._connection.close()
        for slab in self._slabs:
            slab.close()
