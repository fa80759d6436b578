"""The folder of a node cache: what its files are called, how they appear and which of them go."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dataflow.errors import OptionError
from dataflow.storage.store import Buffer

__all__ = ["CacheFolder", "StoredBlock", "disk_bytes"]

FOLDER_NAME = "dataflow-blocks"
# Programs that make backups know this file and leave out the folder that it is in.
MARKER_NAME = "CACHEDIR.TAG"
SIGNATURE = b"Signature: 8a477f597d28d172789f06886806bc55\n"
MARKER = SIGNATURE + b"# Blocks of datasets, kept by dataflow. May be deleted at any time.\n"

_BLOCK = re.compile(r"[0-9a-f]{32}-(\d{1,15})")
_PARTIAL = re.compile(r"(?:[0-9a-f]{32}-(\d{1,15})|usage)(?:\.[0-9a-f]{16})?")
_DISK_BLOCK = 4096
# A block is written in milliseconds; what is older was left by a process that was killed.
LEFT_BEHIND_SECONDS = 60.0
# So long others wait for a process that fetches a block: to fetch it twice is better than to wait for a slow store.
CLAIM_SECONDS = 5.0


class StoredBlock(NamedTuple):
    """A file of the cache; the least recently used sort first."""

    used_at: float  # seconds since 1970
    size: int  # bytes on the disk
    name: str


def disk_bytes(length: int) -> int:
    """What a file of so many bytes takes on a disk."""
    return -(-length // _DISK_BLOCK) * _DISK_BLOCK


class CacheFolder:
    """Files named after what is in them, below a folder that holds nothing else.

    `blocks/` has the blocks. `partial/` has blocks that are being written, and an empty file for each that a process
    is fetching. Files with other names are neither counted nor touched.
    """

    def __init__(self, parent: str) -> None:
        self.path = os.path.join(parent, FOLDER_NAME)
        self.usage_path = os.path.join(self.path, "usage")
        self._blocks = os.path.join(self.path, "blocks")
        self.partial_path = os.path.join(self.path, "partial")

    def prepare(self) -> None:
        """Makes the folder if it is not there, and removes what killed processes left.

        Raises:
            OptionError: There is a folder of this name that is somebody else's.
            OSError: It cannot be made.
        """
        os.makedirs(self.path, exist_ok=True)
        marker = os.path.join(self.path, MARKER_NAME)
        # Several processes may do this at once: all write the same, before anything else is there, and none truncates.
        if set(os.listdir(self.path)) <= {MARKER_NAME}:
            with open(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb") as file:
                file.write(MARKER)
        try:
            content = Path(marker).read_bytes()
        except FileNotFoundError:
            content = b""
        if not content.startswith(SIGNATURE):
            raise OptionError(f"{self.path} is no cache of dataflow: give another folder as cache=, or move it away")
        os.makedirs(self._blocks, exist_ok=True)
        os.makedirs(self.partial_path, exist_ok=True)
        self.sweep()

    def read(self, name: str, length: int) -> bytes:
        """All bytes of a block, which counts as used now; none if there are more or fewer than `length`."""
        descriptor = os.open(os.path.join(self._blocks, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_size != length:
                return b""
            data = os.pread(descriptor, length, 0)
            while len(data) < length and (more := os.pread(descriptor, length - len(data), len(data))):
                data += more  # one call gives at most 2 GiB
            with suppress(OSError):  # of another user, or read-only: it can be read all the same
                os.utime(descriptor)
        finally:
            os.close(descriptor)
        return data

    def has(self, name: str) -> bool:
        """Whether there is such a block."""
        return os.path.lexists(os.path.join(self._blocks, name))

    def write(self, name: str, data: Buffer) -> None:
        """Makes a block appear, whole. Not synced: what a power cut leaves does not pass the check."""
        temporary = os.path.join(self.partial_path, f"{name}.{secrets.token_hex(8)}")
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            os.rename(temporary, os.path.join(self._blocks, name))
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def remove(self, name: str) -> int:
        """Removes a block; returns the bytes that this freed, 0 if another process was first."""
        path = os.path.join(self._blocks, name)
        try:
            size = os.lstat(path).st_size
            os.unlink(path)
        except FileNotFoundError:
            return 0
        return disk_bytes(size)

    def claim(self, name: str) -> bool:
        """Says that this thread fetches a block; False if another thread or process does already."""
        path = os.path.join(self.partial_path, name)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            return True
        except FileExistsError:
            pass
        try:
            if 0 <= time.time() - os.lstat(path).st_mtime < CLAIM_SECONDS:
                return False
            os.utime(path)  # whoever made it is too slow, or was killed
        except FileNotFoundError:
            return False  # it has just ended: the block is there, or can be claimed
        return True

    def end_claim(self, name: str) -> None:
        """Ends what `claim` began."""
        with suppress(OSError):
            os.unlink(os.path.join(self.partial_path, name))

    def stored(self) -> tuple[list[StoredBlock], int]:
        """All blocks, unsorted, and the bytes of those that are being written."""
        blocks = []
        with os.scandir(self._blocks) as items:
            for item in items:
                if _BLOCK.fullmatch(item.name):
                    with suppress(FileNotFoundError):
                        status = item.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            blocks.append(StoredBlock(status.st_mtime, disk_bytes(status.st_size), item.name))
        return blocks, self.sweep()

    def sweep(self) -> int:
        """Removes what killed processes left; returns the bytes of blocks that are being written now."""
        nbytes = 0
        now = time.time()
        with os.scandir(self.partial_path) as items:
            for item in items:
                found = _PARTIAL.fullmatch(item.name)
                if found is None:
                    continue
                with suppress(FileNotFoundError):
                    if abs(now - item.stat(follow_symlinks=False).st_mtime) > LEFT_BEHIND_SECONDS:
                        os.unlink(item.path)
                    elif found[1] and "." in item.name:
                        nbytes += disk_bytes(int(found[1]))
        return nbytes
