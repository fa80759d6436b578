"""Plain files."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dataflow import _native
from dataflow.errors import StorageError, StorageNotFoundError, StorageRangeError
from dataflow.storage.location import check_path, check_prefix, check_range, join_url, local_path
from dataflow.storage.store import Buffer, Entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LocalStore", "is_temporary_name", "temporary_name"]

_TEMPORARY_SUFFIX = ".partial"


def temporary_name(name: str) -> str:
    """A name beside `name` that nobody else uses and that no listing shows."""
    return f".{name}.{secrets.token_hex(8)}{_TEMPORARY_SUFFIX}"


def is_temporary_name(name: str) -> bool:
    """Whether a file is one that is still being written, or was left by a process that died writing it."""
    return name.startswith(".") and name.endswith(_TEMPORARY_SUFFIX)


class LocalStore:
    """Files below a folder. No file stays open between calls, so many shards never exhaust the descriptors."""

    concurrency = 4

    def __init__(self, url: str) -> None:
        self.url = local_path(url)

    def __reduce__(self) -> tuple[Callable[[str], LocalStore], tuple[str]]:
        return LocalStore, (self.url,)

    def entry(self, path: str) -> Entry:
        """Size and version of one file."""
        try:
            status = os.stat(self._locate(path))
        except OSError as error:
            raise self._failure("look up", path, error) from error
        if not stat.S_ISREG(status.st_mode):
            raise StorageNotFoundError(f"could not look up {join_url(self.url, path)}: it is not a regular file")
        return _entry(path, status)

    def size(self, path: str) -> int:
        """Bytes of one file."""
        return self.entry(path).size

    def read_range(self, path: str, start: int, length: int) -> Buffer:
        """Exactly `length` bytes from `start`."""
        return self.read_ranges(path, [(start, length)])[0]

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        """One buffer for each (start, length); the file is opened once."""
        name = self._locate(path)
        for start, length in ranges:
            check_range(path, start, length)
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return [self._read(descriptor, path, start, length) for start, length in ranges]
            finally:
                os.close(descriptor)
        except StorageError:
            raise
        except OSError as error:
            first, end = min(start for start, _ in ranges), max(start + length for start, length in ranges)
            raise self._failure(f"read bytes {first}-{end - 1} of", path, error) from error

    def _read(self, descriptor: int, path: str, start: int, length: int) -> Buffer:
        data = os.pread(descriptor, length, start)
        if len(data) == length:
            return data
        # One call gives at most 2 GiB, and network file systems may give less than was asked for.
        pieces = [data]
        received = len(data)
        while data and received < length:
            data = os.pread(descriptor, length - received, start + received)
            pieces.append(data)
            received += len(data)
        if received < length:
            raise StorageRangeError(
                f"could not read bytes {start}-{start + length - 1} of {join_url(self.url, path)}: "
                f"the file ends at byte {os.fstat(descriptor).st_size}; was it cut short or replaced?"
            )
        return b"".join(pieces)

    def read_files(self, paths: Sequence[str], ends: NDArray[np.int64], buffer: memoryview) -> None:
        """Reads the first bytes of many files into one buffer: far cheaper than many calls, and than fresh memory.

        Args:
            paths: The files.
            ends: int64 [files], where each file's bytes end in the buffer; they begin where those of the last one end.
            buffer: Where they go.
        """
        done = 0
        while done < len(paths):
            rest = paths[done:]
            names = os.fsencode("\0".join(map(check_path, rest)) + "\0")
            start = int(ends[done - 1]) if done else 0
            done += _native.read_files(os.fsencode(self.url), names, ends[done:] - start, buffer[start:])
            if done < len(paths):
                # Says what is wrong, unless it is all right by now.
                start = int(ends[done - 1]) if done else 0
                buffer[start : ends[done]] = self.read_range(paths[done], 0, int(ends[done]) - start)
                done += 1

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Every regular file in the folder `prefix` and below, sorted by path. Links are followed."""
        prefix = check_prefix(prefix)
        entries: list[Entry] = []
        try:
            _collect(os.path.join(self.url, prefix), f"{prefix}/" if prefix else "", frozenset(), entries)
        except OSError as error:
            raise self._failure("list", prefix, error) from error
        entries.sort(key=lambda entry: entry.path)
        return iter(entries)

    def put_atomic(self, path: str, data: bytes | memoryview | Path) -> None:
        """Writes a temporary file in the same folder, brings it to the disk, then renames it."""
        target = self._locate(path)
        folder, name = os.path.split(target)
        temporary = os.path.join(folder, temporary_name(name))
        try:
            os.makedirs(folder, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    if isinstance(data, Path):
                        with open(data, "rb") as source:
                            shutil.copyfileobj(source, file, 1 << 20)
                    else:
                        file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, target)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
            _sync_folder(folder)
        except OSError as error:
            raise self._failure("write", path, error) from error

    def delete(self, path: str) -> None:
        """Removes one file, if it is there."""
        try:
            Path(self._locate(path)).unlink(missing_ok=True)
        except OSError as error:
            raise self._failure("delete", path, error) from error

    def _locate(self, path: str) -> str:
        return os.path.join(self.url, check_path(path))

    def _failure(self, verb: str, path: str, error: OSError) -> StorageError:
        kind = StorageNotFoundError if isinstance(error, (FileNotFoundError, NotADirectoryError)) else StorageError
        return kind(f"could not {verb} {join_url(self.url, path)}: {error.strerror or error}")


def _collect(folder: str, prefix: str, above: frozenset[tuple[int, int]], entries: list[Entry]) -> None:
    if not os.path.isdir(folder):
        return
    status = os.stat(folder)
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return  # A link to a folder that contains it.
    with os.scandir(folder) as items:
        for item in items:
            if item.is_dir():
                _collect(item.path, f"{prefix}{item.name}/", above | {identity}, entries)
            elif item.is_file() and not is_temporary_name(item.name):
                entries.append(_entry(prefix + item.name, item.stat()))


def _entry(path: str, status: os.stat_result) -> Entry:
    return Entry(path, status.st_size, f"{status.st_mtime_ns}-{status.st_ino}-{status.st_size}")


def _sync_folder(folder: str) -> None:
    # Without this the new name may be gone after a power cut, although its content is on the disk.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
