"""Range reads of objects straight into their buffer, by URLs that the object client signs.

The object client hands every body through its own runtime in small pieces, which costs about twice the processor time
of the transfer itself. Range reads are nearly all that a loader does, so over plain http each is one native call, with
one copy from the socket. What cannot go this way (https, a proxy, a store or credentials without signed URLs, a server
without ranges) raises `NotServed`, and the object client makes the read.
"""

from __future__ import annotations

import errno
import os
import socket
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np

from dataflow import _native

__all__ = ["BrokenReplyError", "NotServed", "RefusedError", "SignedReads"]

_NOT_UNDERSTOOD = 0
_PARTIAL_CONTENT = 206
_MOST_IDLE = 256
# Signatures are valid for longer; the range is not part of what is signed.
_SIGNED_SECONDS = 300.0
_MOST_SIGNED = 4096


class NotServed(Exception):
    """This read has to go another way. Never seen by a user."""


class BrokenReplyError(Exception):
    """A connection that failed before the whole body had arrived. Its text holds nothing of the signed URL."""


class RefusedError(Exception):
    """A reply other than success.

    Attributes:
        status: Code and reason.
        body: The start of what the store said.
    """

    def __init__(self, status: str, body: str) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class _Signed:
    """A signed request of one object, all but the range."""

    host: str
    port: int
    request: bytes  # up to the value of the last header, Range


class SignedReads:
    """Reads ranges over kept connections, from any thread and any process.

    Args:
        sign: A path to a URL that may be read without further credentials, or an exception.
        idle_seconds: A connection that moves no byte for so long is given up.
    """

    def __init__(self, sign: Callable[[str], str], idle_seconds: float) -> None:
        self._sign = sign
        self._idle_seconds = idle_seconds
        self._idle: list[socket.socket] = []
        self._signed: dict[str, _Signed] = {}
        self._signed_since = 0.0
        self._process = os.getpid()
        # A proxy is the object client's business.
        self._serves = not any(scheme in urllib.request.getproxies() for scheme in ("http", "https", "all"))

    def read(self, path: str, start: int, length: int) -> memoryview:
        """The bytes from `start` on; fewer than `length` if the store says that it sends fewer.

        Raises:
            NotServed: The read has to go another way.
            BrokenReplyError: The connection failed.
            RefusedError: The store answered with an error.
        """
        if not self._serves:
            raise NotServed
        signed = self._request(path)
        request = b"%s%d-%d\r\n\r\n" % (signed.request, start, start + length - 1)
        buffer = np.empty(length, np.uint8).data
        kept = self._kept()
        if kept is not None:
            # The store may have closed a kept connection meanwhile, which is no failure.
            with suppress(_ClosedBeforeReplyError):
                return self._exchange(kept, request, start, buffer)
        return self._exchange(self._connect(signed), request, start, buffer)

    def _exchange(self, connection: socket.socket, request: bytes, start: int, buffer: memoryview) -> memoryview:
        keep = False
        try:
            status, length, received, keep, said = _native.receive(
                connection.fileno(), request, buffer, start, self._idle_seconds
            )
        finally:
            if keep and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
            else:
                connection.close()
        if status == _PARTIAL_CONTENT:
            return buffer[:length]
        if status == _NOT_UNDERSTOOD:
            # Whoever answers so once will do so again.
            self._serves = False
            raise NotServed
        if status > 0:
            reason, _, body = said.decode(errors="replace").partition("\n")
            raise RefusedError(f"{status} {reason}", body)
        if received == 0 and status != -errno.ETIMEDOUT:
            raise _ClosedBeforeReplyError(_reason(-status))
        raise BrokenReplyError(_reason(-status))

    def _request(self, path: str) -> _Signed:
        # The time of day, as the store has it: a machine may have slept. All are dropped at once, which needs no lock.
        if not 0 <= time.time() - self._signed_since < _SIGNED_SECONDS or len(self._signed) >= _MOST_SIGNED:
            self._signed, self._signed_since = {}, time.time()
        signed = self._signed.get(path)
        if signed is None:
            try:
                signed = _split(self._sign(path))
            except Exception as error:
                self._serves = False
                raise NotServed from error
            self._signed[path] = signed
        return signed

    def _kept(self) -> socket.socket | None:
        if self._process != os.getpid():
            # Connections that a fork brought along belong to the parent, as far as they are not closed here.
            self._idle, self._process = [], os.getpid()
        # All objects of a store are in one place. The last one used is the least likely to have been closed.
        with suppress(IndexError):
            return self._idle.pop()
        return None

    def _connect(self, signed: _Signed) -> socket.socket:
        try:
            connection = socket.create_connection((signed.host, signed.port), timeout=self._idle_seconds)
        except TimeoutError:
            raise BrokenReplyError(_reason(errno.ETIMEDOUT)) from None
        except OSError as error:
            raise BrokenReplyError(error.strerror or type(error).__name__) from None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


class _ClosedBeforeReplyError(BrokenReplyError):
    """Nothing of a reply had arrived."""


def _split(signed_url: str) -> _Signed:
    url = urlsplit(signed_url)
    if url.scheme != "http" or not url.hostname or "@" in url.netloc:
        # TLS in Python takes the interpreter's lock for every 16 KiB, so that the object client is the faster one.
        raise ValueError(f"not read here: {url.scheme}")
    request = f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nRange: bytes="
    return _Signed(url.hostname, url.port or 80, request.encode("ascii"))


def _reason(number: int) -> str:
    if number == errno.ETIMEDOUT:
        return "nothing arrived in time"
    if number == errno.ENODATA:
        return "the reply ended early"
    return os.strerror(number)
