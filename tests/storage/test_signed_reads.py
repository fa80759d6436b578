"""Range reads by signed URLs: when they serve, and when the object client has to."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dataflow.storage import open_store, signed_reads
from dataflow.storage.signed_reads import BrokenReplyError, NotServed, RefusedError, SignedReads
from tests.servers.proxy import FaultProxy

DATA = secrets.token_bytes(100_000)


def test_reads_share_kept_connections(s3_url: str, fault_proxy: FaultProxy) -> None:
    store = open_store(s3_url)
    store.put_atomic("x.bin", DATA)
    for start in range(0, 100_000, 10_000):
        assert bytes(store.read_range("x.bin", start, 10_000)) == DATA[start : start + 10_000]
    assert len(store._signed._idle) == 1  # type: ignore[attr-defined]


def test_a_proxy_is_left_to_the_object_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with pytest.raises(NotServed):
        SignedReads(lambda path: "http://127.0.0.1/x?y", 1.0).read("x", 0, 1)


def test_without_signed_urls_the_object_client_reads() -> None:
    def sign(path: str) -> str:
        raise ValueError("no key to sign with")

    reads = SignedReads(sign, 1.0)
    with pytest.raises(NotServed):
        reads.read("x", 0, 1)


def test_https_is_left_to_the_object_client() -> None:
    reads = SignedReads(lambda path: f"https://127.0.0.1:1/{path}?signature", 1.0)
    with pytest.raises(NotServed):
        reads.read("x", 0, 1)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    reads = SignedReads(lambda path: f"http://127.0.0.1:{port}/{path}?signature", 1.0)
    with pytest.raises(BrokenReplyError, match="refused"):
        reads.read("x", 0, 1)


class OddStore(BaseHTTPRequestHandler):
    """Replies that are not what was asked for; closes every connection after its reply without saying so."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, body, announced = {
            "/whole": (200, DATA, len(DATA)),
            "/part": (206, b"0123456789", 10),
            "/more": (206, DATA, len(DATA)),
            "/fewer": (206, b"0123", 4),
            "/broken": (206, b"0123", 10),
            "/refused": (403, b"<Code>AccessDenied</Code>", 25),
        }[self.path.partition("?")[0]]
        self.send_response(status)
        self.send_header("Content-Length", str(announced))
        if status == 206:
            self.send_header("Content-Range", f"bytes 0-{announced - 1}/{len(DATA)}")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, *arguments: object) -> None:
        """Say nothing on the terminal of the tests."""


@pytest.fixture
def odd_store() -> Iterator[SignedReads]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OddStore)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SignedReads(lambda path: f"http://127.0.0.1:{server.server_port}/{path}?signature", 5.0)
    server.shutdown()
    server.server_close()


def test_a_store_without_ranges_is_not_served(odd_store: SignedReads) -> None:
    with pytest.raises(NotServed):
        odd_store.read("whole", 0, 10)
    with pytest.raises(NotServed):
        odd_store.read("part", 0, 10)  # not asked again


@pytest.mark.parametrize(("path", "start"), [("part", 5), ("more", 0)])
def test_another_range_than_asked_for_is_not_served(odd_store: SignedReads, path: str, start: int) -> None:
    with pytest.raises(NotServed):
        odd_store.read(path, start, 10)


def test_a_signature_serves_many_reads_of_an_object(odd_store: SignedReads) -> None:
    signed: list[str] = []
    sign = odd_store._sign

    def counted(path: str) -> str:
        signed.append(path)
        return sign(path)

    odd_store._sign = counted
    for path in ("part", "fewer", "part", "part", "fewer"):
        odd_store.read(path, 0, 10)
    assert signed == ["part", "fewer"]


def test_old_signatures_are_renewed_and_their_number_is_bounded(
    odd_store: SignedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed: list[str] = []
    sign = odd_store._sign

    def counted(path: str) -> str:
        signed.append(path)
        return sign(path.rstrip("0123456789"))

    odd_store._sign = counted
    monkeypatch.setattr(signed_reads, "_MOST_SIGNED", 3)
    for number in range(7):
        odd_store.read(f"part{number}", 0, 10)
        assert len(odd_store._signed) <= 3
    monkeypatch.setattr(signed_reads, "_SIGNED_SECONDS", 0.0)
    odd_store.read("part6", 0, 10)
    assert signed == [f"part{number}" for number in (0, 1, 2, 3, 4, 5, 6, 6)]


def test_a_kept_connection_that_the_store_closed_is_no_failure(odd_store: SignedReads) -> None:
    for _ in range(5):
        assert bytes(odd_store.read("part", 0, 10)) == b"0123456789"


def test_a_shorter_part_is_given_as_it_is(odd_store: SignedReads) -> None:
    assert bytes(odd_store.read("fewer", 0, 10)) == b"0123"


def test_a_body_that_breaks_off_is_told(odd_store: SignedReads) -> None:
    with pytest.raises(BrokenReplyError, match="ended early"):
        odd_store.read("broken", 0, 10)


def test_a_refusal_carries_what_the_store_said(odd_store: SignedReads) -> None:
    with pytest.raises(RefusedError, match="403") as caught:
        odd_store.read("refused", 0, 10)
    assert caught.value.body == "<Code>AccessDenied</Code>"
