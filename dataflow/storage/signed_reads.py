"""Range reads of objects straight into their buffer, by URLs that the object client signs.

The object client hands every body through its own runtime in small pieces, which costs about twice the processor time
of the transfer itself. Range reads are nearly all that a loader does, so they go over the standard library's
connections, in one copy from the socket. What cannot go this way (a proxy, a store or credentials without signed URLs,
a server without ranges) raises `NotServed`, and the object client makes the read.
"""

from __future__ import annotations

import http.client
import os
import ssl
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import numpy as np

__all__ = ["BrokenReplyError", "NotServed", "RefusedError", "SignedReads"]

_PARTIAL_CONTENT = 206
_ERRORS = 400
_MOST_SAID = 4096
_MOST_IDLE = 256


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


class SignedReads:
    """Reads ranges over kept connections, from any thread and any process.

    Args:
        sign: A path to a URL that may be read without further credentials, or an exception.
        idle_seconds: A connection that moves no byte for so long is given up.
    """

    def __init__(self, sign: Callable[[str], str], idle_seconds: float) -> None:
        self._sign = sign
        self._idle_seconds = idle_seconds
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()
        # A proxy is the object client's business.
        self._serves = not any(scheme in urllib.request.getproxies() for scheme in ("http", "https", "all"))
        self._tls = ssl.create_default_context() if self._serves else None

    def read(self, path: str, start: int, length: int) -> memoryview:
        """The bytes from `start` on; fewer than `length` if the store says that it sends fewer.

        Raises:
            NotServed: The read has to go another way.
            BrokenReplyError: The connection failed.
            RefusedError: The store answered with an error.
        """
        if not self._serves:
            raise NotServed
        try:
            url = urlsplit(self._sign(path))
        except Exception as error:
            self._serves = False
            raise NotServed from error
        connection = self._connection(url.scheme, url.netloc)
        try:
            reply = self._request(connection, f"{url.path}?{url.query}", start, length)
            if reply.status >= _ERRORS:
                raise RefusedError(f"{reply.status} {reply.reason}", reply.read(_MOST_SAID).decode(errors="replace"))
            if reply.status != _PARTIAL_CONTENT or reply.length is None:
                raise NotServed
            buffer = np.empty(min(reply.length, length), np.uint8).data
            if reply.readinto(buffer) < len(buffer):
                raise BrokenReplyError("the body ended early")
            reply.close()
        except (ssl.SSLCertVerificationError, http.client.InvalidURL) as error:
            connection.close()
            raise NotServed from error
        except TimeoutError:
            connection.close()
            raise BrokenReplyError("nothing arrived in time") from None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise BrokenReplyError(getattr(error, "strerror", None) or type(error).__name__) from None
        except BaseException:
            connection.close()
            raise
        if len(self._idle) < _MOST_IDLE and not reply.will_close and len(buffer) == length:
            self._idle.append(connection)
        else:
            connection.close()
        return buffer

    def _request(
        self, connection: http.client.HTTPConnection, target: str, start: int, length: int
    ) -> http.client.HTTPResponse:
        kept = connection.sock is not None
        try:
            return _send(connection, target, start, length)
        except (ConnectionError, http.client.BadStatusLine):
            # The store may have closed a kept connection meanwhile, which is no failure.
            connection.close()
            if not kept:
                raise
            return _send(connection, target, start, length)

    def _connection(self, scheme: str, place: str) -> http.client.HTTPConnection:
        if self._process != os.getpid():
            # Connections that a fork brought along belong to the parent.
            self._idle, self._process = [], os.getpid()
        # All objects of a store are in one place.
        with suppress(IndexError):
            return self._idle.pop()
        if scheme == "https":
            return http.client.HTTPSConnection(place, timeout=self._idle_seconds, context=self._tls)
        return http.client.HTTPConnection(place, timeout=self._idle_seconds)


def _send(connection: http.client.HTTPConnection, target: str, start: int, length: int) -> http.client.HTTPResponse:
    connection.putrequest("GET", target, skip_accept_encoding=True)
    connection.putheader("Range", f"bytes={start}-{start + length - 1}")
    connection.endheaders()
    return connection.getresponse()
