"""Range reads over a socket: silences, early ends, signals and wrong arguments."""

from __future__ import annotations

import errno
import signal
import socket
import threading
import time
from collections.abc import Iterable

import numpy as np
import pytest

from dataflow import _native
from tests.native.exchange import BODY, HEAD, REQUEST, ask, pieces, served, stalling


@pytest.mark.parametrize("after", [0, 1, 20, len(HEAD) - 1, len(HEAD), len(HEAD) + 9])
def test_an_early_end_is_told(after: int) -> None:
    result, _ = ask(pieces((HEAD + BODY)[:after]))
    assert result == (-errno.ENODATA, 0, after, False, b"")


def test_a_peer_that_is_gone_is_told() -> None:
    with served(lambda server: None) as connection:
        while connection.recv(1):
            pass
        for expected in (errno.ENODATA, errno.EPIPE):  # what was sent into the void is noticed by the next one
            result = _native.receive(connection.fileno(), REQUEST, np.zeros(10, np.uint8), 7, 5.0)
            assert result == (-expected, 0, 0, False, b"")


def test_what_is_no_socket_is_told() -> None:
    assert _native.receive(-1, REQUEST, np.zeros(10, np.uint8), 7, 5.0)[0] == -errno.EBADF


@pytest.mark.parametrize("after", [0, 20, len(HEAD), len(HEAD) + 9])
@pytest.mark.parametrize("blocking", [True, False])
def test_silence_ends_the_exchange(after: int, blocking: bool) -> None:
    started = time.monotonic()
    with served(stalling((HEAD + BODY)[:after])) as connection:
        connection.setblocking(blocking)
        result = _native.receive(connection.fileno(), REQUEST, np.zeros(10, np.uint8), 7, 0.2)
    assert result == (-errno.ETIMEDOUT, 0, after, False, b"")
    assert 0.19 <= time.monotonic() - started < 2


def test_a_peer_that_reads_nothing_is_silent_too() -> None:
    here, there = socket.socketpair()
    with here, there:
        result = _native.receive(here.fileno(), b"x" * 10_000_000, np.zeros(10, np.uint8), 7, 0.1)
    assert result == (-errno.ETIMEDOUT, 0, 0, False, b"")


def test_a_body_that_flows_may_take_longer_than_the_longest_silence() -> None:
    reply = HEAD + BODY
    parts: Iterable[bytes] = (reply[i : i + 8] for i in range(0, len(reply), 8))
    started = time.monotonic()
    result, body = ask(pieces(*parts, pause=0.1), idle=0.5)
    assert (result[0], body) == (206, BODY)
    assert time.monotonic() - started > 1.0


def test_st13_a_body_that_trickles_is_not_silent() -> None:
    # No wait is ended by so few bytes, so each lasts as long as a silence may.
    started = time.monotonic()
    result, body = ask(pieces(HEAD, *(BODY[i : i + 1] for i in range(10)), pause=0.1), idle=0.25)
    assert (result[0], body) == (206, BODY)
    assert time.monotonic() - started > 0.9


def test_other_threads_run_meanwhile() -> None:
    turns = 0

    def script(server: socket.socket) -> None:
        nonlocal turns
        server.recv(1000)
        for _ in range(50):
            turns += 1
            time.sleep(0.002)
        server.sendall(HEAD + BODY)

    assert ask(script)[1] == BODY
    assert turns == 50


class Interruption(Exception):
    """What the handler of a signal raises."""


def test_signals_are_handled_meanwhile() -> None:
    main = threading.get_ident()
    seen: list[int] = []

    def interrupting(server: socket.socket) -> None:
        server.recv(1000)
        for byte in HEAD + BODY:
            signal.pthread_kill(main, signal.SIGUSR1)
            server.sendall(bytes([byte]))

    previous = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        assert ask(interrupting)[1] == BODY
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert seen


def test_what_a_signal_raises_ends_the_exchange() -> None:
    main = threading.get_ident()

    def interrupting(server: socket.socket) -> None:
        server.recv(1000)
        time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGUSR1)
        server.recv(1)

    def interrupt(number: int, frame: object) -> None:
        raise Interruption

    previous = signal.signal(signal.SIGUSR1, interrupt)
    started = time.monotonic()
    try:
        with pytest.raises(Interruption):
            ask(interrupting)
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert time.monotonic() - started < 4


@pytest.mark.parametrize("idle", [0.0, -1.0, float("nan"), float("inf")])
def test_the_longest_silence_is_checked(idle: float) -> None:
    with pytest.raises(ValueError, match="idle_seconds"):
        _native.receive(0, REQUEST, np.zeros(10, np.uint8), 7, idle)


@pytest.mark.parametrize("buffer", [b"0123456789", np.zeros(10, np.int16), np.zeros(20, np.uint8)[::2]])
def test_the_buffer_is_checked(buffer: bytes) -> None:
    with pytest.raises(TypeError, match="buffer"):
        _native.receive(0, REQUEST, buffer, 7, 5.0)
