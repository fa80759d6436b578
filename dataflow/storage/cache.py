"""The node cache: blocks of remote datasets on a local disk, shared by all processes of a host.

Blocks are named by their checksum and length, so that what is found is always what the manifest means, whatever was
written to the dataset's URL since. Nothing is locked: files appear whole, are checked whenever they are read, and may
be removed by anybody at any time, since what is missing is fetched again.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import xxhash

from dataflow.errors import OptionError
from dataflow.storage.cache_folder import CLAIM_SECONDS, CacheFolder, disk_bytes
from dataflow.storage.cache_usage import UsageLog, UsageUnknown
from dataflow.storage.location import local_path, scheme_of
from dataflow.storage.sizes import format_size
from dataflow.storage.store import Buffer

__all__ = ["BlockCache", "disk_bytes"]

logger = logging.getLogger(__name__)

_entering = threading.Lock()

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_TRIES = 3
# Counting all files takes a second for some hundred thousand: make room for many blocks at a time, and where there is
# nothing to remove, look again only after many times what looking took.
_SPARE_SHARE = 0.05
_REST_FACTOR = 30.0
_REST_SECONDS = 1.0
_REST_AFTER_ERROR_SECONDS = 60.0
# The kernel dates files by the last tick of its clock.
_DATED_LATE_SECONDS = 0.01
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02


class BlockCache:
    """Keeps blocks below a folder, up to a limit of bytes. For all threads, and across forks; pickles as its arguments.

    Where there is no room, the blocks that were used least recently go, by whichever process or earlier run. Blocks
    that were used since this object was made stay: an epoch larger than the cache would else remove each block just
    before its next use. So a dataset that does not fit is served from the cache for the part that does.

    An error of the disk is never an error of a read: it is warned about once, and blocks come from the store.

    Args:
        folder: A folder on a local disk; made when first used.
        limit: Most bytes on the disk. While blocks are being written, it may be passed by one block for each thread of
            each process that writes at this moment.

    Raises:
        OptionError: `folder` is the URL of something else than a local folder.
    """

    def __init__(self, folder: str, limit: int) -> None:
        if scheme_of(folder) not in ("", "file") or not folder:
            raise OptionError(f"cache is {folder!r}: give a folder on a local disk")
        self.folder = local_path(folder)
        self.limit = limit
        self._files = CacheFolder(self.folder)
        self._since = time.time() - _DATED_LATE_SECONDS
        self._warned = False
        self._process = -1
        self._lock = threading.Lock()
        self._usage = UsageLog(self._files.usage_path, self._files.partial_path)
        self._room = limit
        self._rest_until = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockCache, (self.folder, self.limit)

    def __repr__(self) -> str:
        return f"BlockCache({self.folder!r}, {format_size(self.limit)})"

    def prepare(self) -> None:
        """Makes the folder, to tell now what would be warned about later.

        Raises:
            OptionError: The folder cannot be used; says why.
        """
        try:
            self._files.prepare()
        except OSError as error:
            raise OptionError(
                f"cache={self.folder!r} cannot be used: {error}. Give a folder that can be written to"
            ) from error

    def read(self, checksum: bytes, length: int, fetch: Callable[[], Buffer]) -> tuple[Buffer, bool]:
        """The bytes of a block, and whether they came from the cache.

        Args:
            checksum: xxh3-128 digest of the block.
            length: Bytes of the block.
            fetch: Brings the block from its store, and checks it.
        """
        self._enter()
        name = f"{checksum.hex()}-{length}"
        data = self._find(name, checksum, length)
        if data is not None:
            return data, True
        if self._resting:
            return fetch(), False
        claimed, data = self._wait(name, checksum, length)
        if data is not None:
            return data, True
        try:
            fetched = fetch()
            self._keep(name, fetched)
        finally:
            if claimed:
                self._files.end_claim(name)
        return fetched, False

    @property
    def _resting(self) -> bool:
        return time.monotonic() < self._rest_until

    def _enter(self) -> None:
        """Begins anew in each process: another thread may have held the lock when this one was forked."""
        if self._process == os.getpid():
            return
        with _entering:
            if self._process == os.getpid():
                return
            self._lock = threading.Lock()
            self._usage = UsageLog(self._files.usage_path, self._files.partial_path)
            try:
                self._files.prepare()
                self._reserve(0)  # an earlier run may have left more than is allowed now
            except (OSError, OptionError) as error:
                # A full disk is met again, where something can be done about it.
                if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
                    self._give_up(error, 0)
            self._process = os.getpid()

    def _find(self, name: str, checksum: bytes, length: int) -> Buffer | None:
        try:
            data = self._files.read(name, length)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(error, length)
            return None
        if len(data) == length and xxhash.xxh3_128_digest(data) == checksum:
            return data
        logger.warning("%s: block %s is damaged, fetching it again", self._files.path, name)
        with suppress(OSError, UsageUnknown):
            freed = self._files.remove(name)
            with self._lock:
                self._usage.add(-freed)
        return None

    def _wait(self, name: str, checksum: bytes, length: int) -> tuple[bool, Buffer | None]:
        """Waits while another process fetches the block. Returns whether it is this thread's turn, and the block."""
        deadline = time.monotonic() + CLAIM_SECONDS
        pause = _SHORTEST_PAUSE
        try:
            while not self._files.claim(name):
                if time.monotonic() > deadline:
                    return False, None
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                data = self._find(name, checksum, length)
                if data is not None:
                    return False, data
        except OSError:
            return False, None  # it is only about fetching twice; if the disk is broken, writing will tell
        # It may have come between the look and the claim.
        data = self._find(name, checksum, length)
        if data is not None:
            self._files.end_claim(name)
            return False, data
        return True, None

    def _keep(self, name: str, data: Buffer) -> None:
        size = disk_bytes(len(data))
        try:
            for attempt in range(_TRIES):
                room = self._room
                try:
                    if not self._resting and not self._files.has(name) and self._reserve(size):
                        self._write(name, data, size)
                    return
                except FileNotFoundError:
                    self._files.prepare()  # somebody removed the folder, which is allowed
                except OSError as error:
                    # Other processes write to the same disk: that there was room a moment ago says nothing.
                    if error.errno not in _NO_ROOM or attempt == _TRIES - 1 or not self._shrink(size, room):
                        raise
        except (OSError, OptionError) as error:
            self._give_up(error, len(data))

    def _write(self, name: str, data: Buffer, size: int) -> None:
        try:
            self._files.write(name, data)
        except BaseException:
            with suppress(OSError, UsageUnknown), self._lock:
                self._usage.add(-size)
            raise

    def _reserve(self, size: int) -> bool:
        """Counts a block as written before it is; False if it does not fit and nothing can go."""
        with self._lock:
            if size and self._resting:
                return False
            with suppress(UsageUnknown):
                if self._usage.add(size) <= self._room:
                    return True
                # Taken back, since the files are counted now, and this one is not there yet.
                self._usage.add(-size)
            started = time.monotonic()
            used = self._count_and_evict(size, self._since)
            if used + size <= self._room:
                with suppress(UsageUnknown):
                    self._usage.add(size)
                return True
            now = time.monotonic()
            self._rest_until = now + max(_REST_SECONDS, _REST_FACTOR * (now - started))
            return False

    def _shrink(self, size: int, room: int) -> bool:
        """The disk is full below the limit: keeps less from now on. False if there is nothing to remove."""
        with self._lock:
            if self._room < room:
                return True  # another thread met the same
            blocks, _ = self._files.stored()
            before = sum(block.size for block in blocks)
            if before == 0:
                return False
            self._room = int(before * (1 - _SPARE_SHARE))
            self._warn(
                f"there is no room for a block of {size} bytes in {self._files.path}: the disk is full while the cache "
                f"has {format_size(before)} of the {format_size(self.limit)} that it may have"
            )
            return self._count_and_evict(size, float("inf")) < before

    def _count_and_evict(self, size: int, before: float) -> int:
        """Makes room for `size` bytes by removing blocks used before a time, the oldest first; returns what is used."""
        previous = self._usage.begin()
        try:
            blocks, partial = self._files.stored()
            used = partial + sum(block.size for block in blocks)
            if used + size > self._room:
                # Some more than needed, so that this is not done for every block; but only what is not in use.
                target = self._room - max(size, int(self._room * _SPARE_SHARE))
                for block in sorted(blocks):
                    if used <= target or block.used_at >= before:
                        break
                    with suppress(PermissionError):
                        self._files.remove(block.name)
                        used -= block.size
        except BaseException:
            if previous is not None:
                os.close(previous)
            raise
        return self._usage.restart(used, previous)

    def _give_up(self, error: Exception, length: int) -> None:
        """Goes on without the cache for a while."""
        self._rest_until = time.monotonic() + _REST_AFTER_ERROR_SECONDS
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        block = f"keep or find a block of {length} bytes in" if length else "use"
        self._warn(f"could not {block} {self._files.path}: {reason}")

    def _warn(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "%s. Reading goes on, from the store where need be. Make room on that disk, or give another cache= or "
                "a smaller cache_limit=",
                problem,
            )


def _renew_lock() -> None:
    global _entering
    _entering = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_renew_lock)
