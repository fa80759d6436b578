"""How many bytes a folder holds: counted by all processes of a host together, without a lock and without looking."""

from __future__ import annotations

import os
import secrets
import struct
from hashlib import blake2b
from pathlib import Path

__all__ = ["UsageLog", "UsageUnknown"]

_NUMBER = struct.Struct("<q")
_HEADER = struct.Struct("<8s8sq")


class UsageUnknown(Exception):
    """There is no log that can be trusted: the files have to be counted. Never seen by a user."""


class UsageLog:
    """A file of signed numbers, to which every process appends what it adds and removes.

    The kernel makes appending atomic, and a process reads on from where it last stopped. Counting the files begins a
    new log in place of the old one. A log from before the machine started is not trusted: a power cut may have taken
    its end.

    Not for several threads at once.

    Args:
        path: The file.
        temporary_folder: Where a new log is written before it takes the place of the old one.
    """

    def __init__(self, path: str, temporary_folder: str) -> None:
        self._path = path
        self._temporary_folder = temporary_folder
        self._header = b""
        self._read_to = 0
        self._total = 0

    def add(self, nbytes: int) -> int:
        """Appends a number; returns the bytes in use after it.

        Raises:
            UsageUnknown: There is no log that can be trusted. Nothing was appended.
            OSError: The file cannot be written.
        """
        descriptor = self._open()
        try:
            self._read_on(descriptor)
            if nbytes:
                os.write(descriptor, _NUMBER.pack(nbytes))
            return self._read_on(descriptor)
        finally:
            os.close(descriptor)

    def begin(self) -> int | None:
        """Call before the files are counted: a descriptor of the present log, to be handed to `restart`."""
        try:
            descriptor = self._open()
        except (UsageUnknown, OSError):
            return None
        os.lseek(descriptor, 0, os.SEEK_END)
        return descriptor

    def restart(self, counted: int, previous: int | None) -> int:
        """Begins a new log; returns the bytes in use.

        Args:
            counted: What the files have.
            previous: From `begin`, closed here. What others appended while the files were counted goes over into the
                new log. Some of it may have been counted, too: for a while, rather too much than too little is in use.
        """
        temporary = os.path.join(self._temporary_folder, f"{os.path.basename(self._path)}.{secrets.token_hex(8)}")
        try:
            counted += _numbers_after(previous)
            with open(temporary, "xb") as file:
                file.write(_HEADER.pack(secrets.token_bytes(8), _boot(), counted))
            os.replace(temporary, self._path)
            return self.add(_numbers_after(previous))
        except UsageUnknown:  # somebody removed the file at this moment
            return counted
        finally:
            Path(temporary).unlink(missing_ok=True)
            if previous is not None:
                os.close(previous)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            raise UsageUnknown from None

    def _read_on(self, descriptor: int) -> int:
        header = os.pread(descriptor, _HEADER.size, 0)
        if header != self._header:
            if len(header) < _HEADER.size:
                raise UsageUnknown
            _, boot, self._total = _HEADER.unpack(header)
            if boot != _boot():
                raise UsageUnknown
            self._header, self._read_to = header, _HEADER.size
        size = os.fstat(descriptor).st_size
        if size < self._read_to or (size - _HEADER.size) % _NUMBER.size:
            raise UsageUnknown
        if size > self._read_to:
            data = os.pread(descriptor, size - self._read_to, self._read_to)
            self._total += _sum(data)
            self._read_to += len(data)
        if self._total < 0:
            raise UsageUnknown
        return self._total


def _numbers_after(descriptor: int | None) -> int:
    """The sum of what was appended after the descriptor's position, which moves to the end."""
    if descriptor is None:
        return 0
    total = 0
    while data := os.read(descriptor, 1 << 20):
        total += _sum(data)
    return total


def _sum(data: bytes) -> int:
    whole = len(data) // _NUMBER.size * _NUMBER.size
    return sum(number for (number,) in _NUMBER.iter_unpack(data[:whole]))


def _boot() -> bytes:
    try:
        identity = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        identity = b""
    return blake2b(identity, digest_size=8).digest()
