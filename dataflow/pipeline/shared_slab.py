"""Memory that a process and one of its workers share, and hand to each other with what one has to say."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.pipeline.out_of_band import dump, load

# Pages take memory only once they were written to.
USUAL_BYTES = 16 << 20
_WORD = 8
# A sample in work; then the number of buffers, the length of the pickle, and two words for each buffer.
_AT, _COUNT, _STREAM, _FIRST = range(4)
_ALIGNMENT = 64


class SharedSlab:
    """Memory without a name, in which one of two processes writes a value and the other one reads it.

    It belongs to one of both at a time. A value that does not fit makes it larger, for as long as the value is there.

    Args:
        descriptor: From `new_memory`, in whichever process. It may be closed then.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, USUAL_BYTES)

    @property
    def nbytes(self) -> int:
        """Its size, as this process knows it."""
        return len(self._memory)

    @property
    def at(self) -> int:
        """Number of the sample in work, which may be looked at while the memory belongs to the other process."""
        return int.from_bytes(self._memory[:_WORD], "little")

    @at.setter
    def at(self, number: int) -> None:
        self._memory[:_WORD] = number.to_bytes(_WORD, "little")

    def write(self, value: Any) -> None:
        """Put a value in.

        Raises:
            Exception: Whatever its parts raise when they are pickled.
        """
        stream, buffers = dump(value)
        raws = [buffer.raw() for buffer in buffers]
        words = [0, len(raws), len(stream)]
        for raw in raws:
            words += [len(raw), raw.readonly]
        places = _places(words)
        self.resize(max(USUAL_BYTES, places[-1][1]))
        for raw, (start, stop) in zip(
            (np.array(words, np.int64).view(np.uint8).data, stream, *raws), places, strict=True
        ):
            if start < stop:
                np.frombuffer(self._memory, np.uint8, stop - start, start)[:] = np.frombuffer(raw, np.uint8)

    def read(self) -> Any:
        """The value. It is a copy: whoever has it may keep it and write to it.

        Raises:
            Exception: Whatever its parts raise when they are made.
        """
        head = np.frombuffer(self._memory, np.int64, _FIRST).tolist()
        words = head + np.frombuffer(self._memory, np.int64, 2 * head[_COUNT], _FIRST * _WORD).tolist()
        _, (start, stop), *places = _places(words)
        buffers = [self._copy(*place, readonly) for place, readonly in zip(places, words[_FIRST + 1 :: 2], strict=True)]
        with memoryview(self._memory)[start:stop] as stream:
            return load(stream, buffers)

    def resize(self, nbytes: int) -> None:
        """Follow what the other process made of it, or make it larger or smaller."""
        if nbytes != len(self._memory):
            self._memory.resize(nbytes)

    def close(self) -> None:
        """Give the memory back, once the other process is done with it, too."""
        self._memory.close()

    def _copy(self, start: int, stop: int, readonly: bool) -> NDArray[np.uint8]:
        # NumPy copies without holding the interpreter lock.
        memory = np.empty(stop - start, np.uint8)
        if start < stop:
            memory[:] = np.frombuffer(self._memory, np.uint8, stop - start, start)
        memory.flags.writeable = not readonly
        return memory


def new_memory() -> int:
    """A descriptor of memory that goes away with the last process that has it."""
    descriptor = os.memfd_create("dataflow")
    os.ftruncate(descriptor, USUAL_BYTES)
    return descriptor


def _places(words: list[int]) -> list[tuple[int, int]]:
    """Where the words, the pickle and each buffer start and stop."""

    def placed() -> Iterator[tuple[int, int]]:
        start = 0
        for length in (len(words) * _WORD, words[_STREAM], *words[_FIRST::2]):
            yield start, start + length
            start += -(-length // _ALIGNMENT) * _ALIGNMENT

    return list(placed())
