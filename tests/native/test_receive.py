"""Range reads over a socket: which replies are understood, and as what."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dataflow import _native
from tests.native.exchange import BODY, HEAD, NOT_UNDERSTOOD, REQUEST, Script, ask, head, pieces, served, stalling


@pytest.mark.parametrize("cut", range(len(HEAD + BODY) + 1))
def test_a_reply_may_be_cut_anywhere(cut: int) -> None:
    reply = HEAD + BODY
    result, body = ask(pieces(reply[:cut], reply[cut:], pause=0.001))
    assert result == (206, 10, len(reply), True, b"")
    assert body == BODY


def test_a_reply_may_come_in_single_bytes() -> None:
    reply = HEAD + BODY
    result, body = ask(pieces(*(reply[i : i + 1] for i in range(len(reply))), pause=0.0005))
    assert (result[:2], body) == ((206, 10), BODY)


def test_a_large_body_comes_whole() -> None:
    data = np.random.default_rng(0).integers(0, 256, 5_000_000, np.uint8).tobytes()
    start = head(f"Content-Length: {len(data)}", "Content-Range: bytes 0-4999999/*")
    result, body = ask(pieces(start + data), size=len(data), start=0)
    assert result == (206, len(data), len(start) + len(data), True, b"")
    assert body == data


def test_exchanges_follow_each_other_on_one_connection() -> None:
    def script(server: socket.socket) -> None:
        for number in range(3):
            assert server.recv(1000) == REQUEST
            server.sendall(HEAD + bytes([number]) * 10)

    with served(script) as connection:
        for number in range(3):
            buffer = np.zeros(10, np.uint8)
            result = _native.receive(connection.fileno(), REQUEST, buffer, 7, 5.0)
            assert result == (206, 10, len(HEAD) + 10, True, b"")
            assert buffer.tolist() == [number] * 10


def test_a_shorter_body_is_given_as_it_is() -> None:
    result, body = ask(pieces(HEAD + BODY), size=1000)
    assert result[:2] == (206, 10)
    assert body[:10] == BODY


@pytest.mark.parametrize("empty", [b"", b"1"])
def test_no_body_at_all(empty: bytes) -> None:
    result, _ = ask(pieces(head("Content-Length: 0", "Content-Range: bytes 7-6/9") + empty))
    assert result[:2] == (206, 0)
    assert result[3] == (not empty)


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (("connection:\tkeep-alive",), True),
        (("Connection: close",), False),
        (("CONNECTION: Keep-Alive ,  Close ",), False),
        (("Connection: close", "Connection: keep-alive"), False),
        (("Connection: closed, enclose",), True),
        (("Connection:",), True),
    ],
)
def test_whether_the_connection_is_kept(lines: tuple[str, ...], kept: bool) -> None:
    result, body = ask(pieces(head("content-LENGTH:10", "CONTENT-range: Bytes 7-16/99", *lines) + BODY))
    assert (result[0], result[3], body) == (206, kept, BODY)


def test_more_than_was_announced_ends_the_connection() -> None:
    result, body = ask(pieces(HEAD + BODY + b"more"))
    assert (result[:2], result[3], body) == ((206, 10), False, BODY)


RANGE = "Content-Range: bytes 7-16/99"
LENGTH = "Content-Length: 10"
ODD_HEADS = {
    "whole object": head(LENGTH, status="200 OK"),
    "continue": head(status="100 Continue") + HEAD,
    "elsewhere": head(LENGTH, "Location: /y", status="307 Temporary Redirect"),
    "no length": head(RANGE),
    "no range": head(LENGTH),
    "another range": head(LENGTH, "Content-Range: bytes 8-17/99"),
    "no such range": head(LENGTH, "Content-Range: bytes */99"),
    "other unit": head(LENGTH, "Content-Range: lines 7-16/99"),
    "two ranges": head(LENGTH, RANGE, RANGE),
    "chunked": head(RANGE, "Transfer-Encoding: chunked"),
    "chunked with a length": head(LENGTH, RANGE, "Transfer-Encoding: chunked"),
    "longer than the buffer": head("Content-Length: 11", RANGE),
    "two lengths": head(LENGTH, LENGTH, RANGE),
    "negative length": head("Content-Length: -1", RANGE),
    "signed length": head("Content-Length: +10", RANGE),
    "empty length": head("Content-Length:", RANGE),
    "list of lengths": head("Content-Length: 10, 10", RANGE),
    "hexadecimal length": head("Content-Length: 0xa", RANGE),
    "length of 2**63": head(f"Content-Length: {2**63}", RANGE),
    "length of 2**64 + 10": head(f"Content-Length: {2**64 + 10}", RANGE),
    "longest length": head(f"Content-Length: {10**18 - 1}", RANGE),
    "folded line": head(LENGTH, RANGE, "X: a", " b"),
    "blank in a name": head(LENGTH, RANGE, "X : a"),
    "line without a name": head(LENGTH, RANGE, ": a"),
    "line without a value": head(LENGTH, RANGE, "X"),
    "null byte": head(LENGTH, RANGE, "X: \0"),
    "bare line feed": head(LENGTH, RANGE, "X: a\nY: b"),
    "bare carriage return": head(LENGTH, RANGE, "X: a\rY: b"),
    "blank line first": b"\r\n" + HEAD,
    "only blank lines": b"\r\n\r\n",
    "HTTP/1.0": HEAD.replace(b"1.1", b"1.0"),
    "status of four digits": head(LENGTH, RANGE, status="2060 Partial"),
    "status of two digits": head(LENGTH, RANGE, status="20"),
    "status 999": head(LENGTH, RANGE, status="999 No"),
    "status in words": head(LENGTH, RANGE, status="Partial Content"),
    "garbage": b"\x16\x03\x01\x02\r\n\r\n",
    "too long": head(LENGTH, RANGE, "X: " + "x" * 20_000),
    "without an end": b"x" * 100_000,
}


@pytest.mark.parametrize("reply", ODD_HEADS.values(), ids=ODD_HEADS.keys())
def test_what_is_odd_is_not_understood(reply: bytes) -> None:
    result, _ = ask(pieces(reply + BODY))
    assert (result[0], result[1], result[3], result[4]) == (NOT_UNDERSTOOD, 0, False, b"")
    assert 0 < result[2] <= 16 << 10


@pytest.mark.parametrize("reason", [b"", b" ", b" Partial Content", b" \xff\xfe"])
def test_any_reason_will_do(reason: bytes) -> None:
    result, body = ask(pieces(HEAD.replace(b" Partial Content", reason) + BODY))
    assert (result[0], body) == (206, BODY)


def test_a_head_of_nearly_sixteen_kilobytes_is_read() -> None:
    lines = (LENGTH, RANGE, *(f"X-{number}: {'y' * 100}" for number in range(140)))
    assert ask(pieces(head(*lines) + BODY))[1] == BODY


def test_an_error_brings_what_the_server_said() -> None:
    result, _ = ask(pieces(head("Content-Length: 4", status="404 Not Found") + b"go", b"ne", pause=0.02))
    assert (result[0], result[1], result[3:]) == (404, 0, (False, b"Not Found\ngone"))


@pytest.mark.parametrize("lines", [(), ("Content-Length: 9000",)])
def test_of_a_long_error_only_the_start_is_read(lines: tuple[str, ...]) -> None:
    result, _ = ask(pieces(head(*lines, status="503 Slow Down") + b"e" * 9000))
    assert result[0] == 503
    assert result[4] == b"Slow Down\n" + b"e" * 4096


def test_an_error_in_chunks_ends_with_the_last_one() -> None:
    start = head("Transfer-Encoding: chunked", status="403 Forbidden")
    result, _ = ask(stalling(start + b"4\r\nabcd\r\n0\r\n\r\n"))
    assert (result[0], result[4]) == (403, b"Forbidden\n4\r\nabcd\r\n0\r\n\r\n")


@pytest.mark.parametrize("script", [pieces, stalling])
def test_an_error_stays_an_error_when_its_body_breaks_off(script: Callable[[bytes], Script]) -> None:
    result, _ = ask(script(head("Content-Length: 400", status="500") + b"oh"), idle=0.1)
    assert (result[0], result[4]) == (500, b"\noh")


def test_an_error_without_a_range_says_so() -> None:
    result, _ = ask(pieces(head("Content-Range: bytes */9", "Content-Length: 0", status="416 No")))
    assert (result[0], result[4]) == (416, b"No\n")


FRAGMENTS = st.sampled_from(
    [
        *(line.encode() for line in (LENGTH, RANGE, "Content-Length: ", "Content-Range: bytes ", "Connection: ")),
        *(b"HTTP/1.1 206 OK\r\n", b"HTTP/1.1 404 No\r\n", b"Transfer-Encoding: chunked", HEAD, BODY),
        *(
            b"\r\n",
            b"\r\n\r\n",
            b"\r",
            b"\n",
            b":",
            b",",
            b" ",
            b"\0",
            b"-",
            b"close",
            b"bytes",
            b"99999999999999999999",
        ),
    ]
)


@given(st.lists(FRAGMENTS | st.binary(max_size=30), max_size=12).map(b"".join), st.integers(0, 200))
@example(HEAD + BODY, 10)
def test_no_reply_does_harm(reply: bytes, size: int) -> None:
    (status, length, received, kept, said), body = ask(pieces(reply), size=size)
    assert status in (206, NOT_UNDERSTOOD, -errno.ENODATA) or 400 <= status < 600
    assert 0 <= length <= size
    assert 0 <= received <= len(reply)
    assert len(said) <= (16 << 10) + (4 << 10)
    if status == 206:
        assert body[:length] in reply
    else:
        assert (length, kept) == (0, False)
