"""A connection whose other end a test writes by hand."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from dataflow import _native

REQUEST = b"GET /x HTTP/1.1\r\nHost: here\r\nRange: bytes=7-16\r\n\r\n"
BODY = b"0123456789"
HEAD = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\nContent-Range: bytes 7-16/99\r\n\r\n"
NOT_UNDERSTOOD = 0
Result = tuple[int, int, int, bool, bytes]
Script = Callable[[socket.socket], None]


@contextmanager
def served(script: Script) -> Iterator[socket.socket]:
    """A socket whose other end a thread serves by `script`, and then closes."""
    # TCP, as in use: not every kind of socket knows from how many bytes on a wait ends.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname())
        there, _ = listener.accept()

    def serve() -> None:
        # The client may be gone before all is sent.
        with there, suppress(OSError):
            script(there)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with here:
            yield here
    finally:
        thread.join()


def ask(script: Script, *, size: int = 10, start: int = 7, idle: float = 5.0) -> tuple[Result, bytes]:
    """The result, and the whole buffer, which is followed by a guard."""
    memory = np.full(size + 64, 0xEE, np.uint8)
    with served(script) as connection:
        result = _native.receive(connection.fileno(), REQUEST, memory[:size], start, idle)
    assert (memory[size:] == 0xEE).all()
    return result, memory[:size].tobytes()


def pieces(*data: bytes, pause: float = 0.0) -> Script:
    """Takes the request and sends these, one after another."""

    def script(server: socket.socket) -> None:
        assert server.recv(1000) == REQUEST
        for piece in data:
            server.sendall(piece)
            time.sleep(pause)

    return script


def head(*lines: str, status: str = "206 Partial Content") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *lines, "", "")).encode()


def stalling(data: bytes) -> Script:
    """Sends this and nothing more until the client leaves."""

    def script(server: socket.socket) -> None:
        server.recv(1000)
        server.sendall(data)
        server.recv(1)

    return script
