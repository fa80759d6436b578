"""A proxy in front of a real HTTP server that breaks replies in the ways that networks do.

The test scripts it: a function sees each request and says which fault its reply gets, if any.
"""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

CHUNK_BYTES = 16 << 10


@dataclass(frozen=True)
class Request:
    """What the proxy saw of one request."""

    number: int  # counts from 0 in order of arrival
    method: str
    path: str
    headers: dict[str, str]  # names in lower case

    @property
    def authorization(self) -> str:
        """How the request is signed: in a header, or in the URL."""
        return self.headers.get("authorization") or unquote(self.path)


@dataclass(frozen=True)
class Fault:
    """How a reply is broken; the defaults break nothing."""

    delay: float = 0.0  # seconds before anything is sent
    status: int | None = None  # answer this instead of asking the server
    body: bytes = b""  # of that answer
    after: int | None = None  # bytes of the body to let through; None is all of them
    end: str = "close"  # what follows them: "close", "reset", "stall"
    headers: bool = True  # False: stall before even the headers
    rewrite_length: bool = False  # announce the short length, so that the reply looks complete
    rate: float | None = None  # bytes/s
    flip: int | None = None  # a bit of this byte of the body is wrong
    shift: int = 0  # the reply says that its range is so many bytes further on
    whole: bool = False  # the range is ignored: 200 and the whole object (zeros where it was not asked for)


def slow_down() -> Fault:
    return Fault(status=503, body=_error("SlowDown", "Please reduce your request rate."))


def error_reply(status: int, code: str, message: str) -> Fault:
    return Fault(status=status, body=_error(code, message))


def _error(code: str, message: str) -> bytes:
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return text.encode()


Script = Callable[[Request], Fault | None]


@dataclass
class FaultProxy:
    """Runs from `with` to the end of the block.

    `script` may be replaced at any time. `requests` lists what arrived, `bytes_sent` counts bodies.
    """

    target: str  # the endpoint of the real server
    script: Script = lambda request: None
    requests: list[Request] = field(default_factory=list)
    bytes_sent: int = 0

    def __enter__(self) -> FaultProxy:
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def each_once(self, *faults: Fault | None, method: str = "GET") -> None:
        """Gives the next requests of `method` these faults in turn, and none to the rest."""
        remaining = list(faults)
        lock = threading.Lock()

        def script(request: Request) -> Fault | None:
            with lock:
                return remaining.pop(0) if remaining and request.method == method else None

        self.script = script

    def count(self, method: str = "GET") -> int:
        with self._lock:
            return sum(request.method == method for request in self.requests)

    def _note(self, method: str, path: str, headers: dict[str, str]) -> Request:
        with self._lock:
            request = Request(len(self.requests), method, path, headers)
            self.requests.append(request)
            return request

    def _sent(self, count: int) -> None:
        with self._lock:
            self.bytes_sent += count


def _broken(fault: Fault, status: int, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    """A reply that is whole, but wrong: its status and its body; changes the headers."""
    if fault.flip is not None and fault.flip < len(body):
        changed = bytearray(body)
        changed[fault.flip] ^= 1
        body = bytes(changed)
    if status == 206 and (fault.shift or fault.whole):
        name = next(name for name in headers if name.lower() == "content-range")
        first, last, size = map(int, re.findall(r"\d+", headers[name]))
        headers[name] = f"bytes {first + fault.shift}-{last + fault.shift}/{size}"
        if fault.whole:
            del headers[name]
            return 200, bytes(first) + body + bytes(size - last - 1)
    return status, body


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    proxy: FaultProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def _serve(self) -> None:
        proxy = self.server.proxy
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        request = proxy._note(self.command, self.path, headers)
        fault = proxy.script(request) or Fault()
        if fault.delay:
            time.sleep(fault.delay)
        if fault.status is not None:
            self._send(fault.status, {}, fault.body, Fault())
            return
        address = urlsplit(proxy.target)
        upstream = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            reply = upstream.getresponse()
            kept = {
                name: value
                for name, value in reply.getheaders()
                if name.lower() not in ("connection", "transfer-encoding", "content-length")
            }
            length = reply.getheader("Content-Length") if self.command == "HEAD" else None
            status, content = _broken(fault, reply.status, kept, reply.read())
            self._send(status, kept, content, fault, length)
        finally:
            upstream.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _send(
        self, status: int, headers: dict[str, str], body: bytes, fault: Fault, head_length: str | None = None
    ) -> None:
        if not fault.headers:
            self._stall()
            return
        through = body if fault.after is None else body[: fault.after]
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", head_length or str(len(through if fault.rewrite_length else body)))
        self.end_headers()
        self.wfile.flush()
        if self.command == "HEAD":
            return
        for start in range(0, len(through), CHUNK_BYTES):
            piece = through[start : start + CHUNK_BYTES]
            self.wfile.write(piece)
            self.server.proxy._sent(len(piece))
            if fault.rate:
                time.sleep(len(piece) / fault.rate)
        if fault.after is None or fault.rewrite_length:
            return
        if fault.end == "stall":
            self._stall()
        elif fault.end == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        self.close_connection = True

    def _stall(self) -> None:
        self.close_connection = True
        self.server.proxy._closed.wait(120)
