"""Broken replies: what is tried again, for how long, and what is said in the end."""

from __future__ import annotations

import secrets
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock

import pytest

from dataflow.errors import StorageError
from dataflow.storage import RetryPolicy, Store, open_store
from tests.servers.proxy import Fault, FaultProxy, Request, error_reply, slow_down

DATA = secrets.token_bytes(300_000)
FAST = RetryPolicy(attempts=3, idle_seconds=10.0, first_wait_seconds=0.01)
IDLE_SECONDS = 1.0

BODY_FAULTS = {
    "short": Fault(after=4000),
    "empty": Fault(after=0),
    "complete-looking": Fault(after=4000, rewrite_length=True),
    "reset": Fault(after=4000, end="reset"),
    "503": slow_down(),
    "500": error_reply(500, "InternalError", "We encountered an internal error."),
    "429": error_reply(429, "TooManyRequests", "Too many."),
}
RANGE_FAULTS = {"another range": Fault(shift=100), "the whole object": Fault(whole=True)}


SILENCES = {"in the body": Fault(after=150_000, end="stall"), "before the headers": Fault(headers=False)}


@pytest.fixture(params=["", "fsspec+"], ids=["obstore", "fsspec"])
def store(request: pytest.FixtureRequest, s3_url: str, fault_proxy: FaultProxy) -> Store:
    opened = open_store(f"{request.param}{s3_url}", FAST)
    opened.put_atomic("x.bin", DATA)
    return opened


@pytest.mark.parametrize("fault", BODY_FAULTS.values(), ids=BODY_FAULTS.keys())
def test_sg02_a_broken_reply_is_read_again(store: Store, fault_proxy: FaultProxy, fault: Fault) -> None:
    fault_proxy.each_once(fault, fault)
    before = fault_proxy.count()
    assert bytes(store.read_range("x.bin", 1000, 200_000)) == DATA[1000:201_000]
    assert fault_proxy.count() - before == 3


@pytest.mark.parametrize("fault", BODY_FAULTS.values(), ids=BODY_FAULTS.keys())
def test_sg02_tries_are_bounded_and_the_error_says_what_where_and_how_often(
    store: Store, fault_proxy: FaultProxy, fault: Fault
) -> None:
    fault_proxy.script = lambda request: fault if request.method == "GET" else None
    before = fault_proxy.count()
    with pytest.raises(StorageError, match=r"read bytes 1000-200999 of .*s3://.*/x\.bin: .*attempts: 3, \d+\.\d s"):
        store.read_range("x.bin", 1000, 200_000)
    assert fault_proxy.count() - before == 3


@pytest.mark.parametrize("fault", RANGE_FAULTS.values(), ids=RANGE_FAULTS.keys())
def test_a_reply_with_another_range_is_never_taken(s3_url: str, fault_proxy: FaultProxy, fault: Fault) -> None:
    store = open_store(s3_url, FAST)
    store.put_atomic("x.bin", DATA)
    for _ in range(2):
        fault_proxy.each_once(fault, fault)
        assert bytes(store.read_range("x.bin", 1000, 200_000)) == DATA[1000:201_000]
    fault_proxy.script = lambda request: fault if request.method == "GET" else None
    with pytest.raises(StorageError, match=r"read bytes 1000-200999 of .*s3://.*/x\.bin: .*attempts: 3, \d+\.\d s"):
        store.read_range("x.bin", 1000, 200_000)


def test_sg02_a_broken_reply_to_many_ranges_is_read_again(store: Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.each_once(Fault(after=10), slow_down())
    pieces = store.read_ranges("x.bin", [(0, 1000), (250_000, 1000)])
    assert [bytes(piece) for piece in pieces] == [DATA[:1000], DATA[250_000:251_000]]


def test_sg03_resets_lose_and_repeat_nothing(store: Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.script = lambda request: Fault(after=500, end="reset") if request.number % 3 == 1 else None
    pieces = [bytes(store.read_range("x.bin", start, 30_000)) for start in range(0, 300_000, 30_000)]
    assert b"".join(pieces) == DATA


@pytest.mark.parametrize("prefix", ["", "fsspec+"], ids=["obstore", "fsspec"])
def test_sg04_slow_down_with_many_readers_ends_well(prefix: str, s3_url: str, fault_proxy: FaultProxy) -> None:
    store = open_store(f"{prefix}{s3_url}", RetryPolicy(first_wait_seconds=0.005, longest_wait_seconds=0.2))
    store.put_atomic("x.bin", DATA)
    refused: dict[str, int] = {}
    lock = Lock()

    def up_to_eight_times(request: Request) -> Fault | None:
        key = request.headers.get("range", "")
        with lock:
            refused[key] = refused.get(key, 0) + 1
            return slow_down() if refused[key] <= hash(key) % 8 + 1 else None

    fault_proxy.script = up_to_eight_times
    with ThreadPoolExecutor(32) as readers:
        pieces = readers.map(lambda start: bytes(store.read_range("x.bin", start, 3000)), range(0, 96_000, 3000))
        assert b"".join(pieces) == DATA[:96_000]


def test_sg04_a_permanent_slow_down_is_named(store: Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.script = lambda request: slow_down()
    with pytest.raises(StorageError, match=r"SlowDown.*attempts: 3"):
        store.read_range("x.bin", 0, 10)


def test_the_time_budget_ends_the_tries(s3_url: str, fault_proxy: FaultProxy) -> None:
    store = open_store(s3_url, RetryPolicy(attempts=1000, budget_seconds=1.0, first_wait_seconds=0.05))
    store.put_atomic("x.bin", DATA)
    fault_proxy.script = lambda request: slow_down()
    started = time.monotonic()
    with pytest.raises(StorageError, match="SlowDown"):
        store.read_range("x.bin", 0, 10)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    "fault",
    [error_reply(403, "AccessDenied", "Access Denied"), error_reply(404, "NoSuchKey", "gone")],
    ids=["403", "404"],
)
def test_what_will_not_pass_is_not_tried_again(store: Store, fault_proxy: FaultProxy, fault: Fault) -> None:
    fault_proxy.script = lambda request: fault
    before = fault_proxy.count()
    with pytest.raises(StorageError, match="attempts: 1"):
        store.read_range("x.bin", 0, 10)
    assert fault_proxy.count() - before == 1


def test_a_range_beyond_the_end_is_not_tried_again(store: Store, fault_proxy: FaultProxy) -> None:
    before = fault_proxy.count()
    with pytest.raises(StorageError, match="attempts: 1"):
        store.read_range("x.bin", len(DATA) + 1, 10)
    assert fault_proxy.count() - before == 1


@pytest.fixture
def impatient(store: Store) -> Store:
    """The same store with a short idle timeout."""
    return open_store(store.url, replace(FAST, attempts=2, idle_seconds=IDLE_SECONDS))


@pytest.mark.parametrize("fault", SILENCES.values(), ids=SILENCES.keys())
def test_st12_silence_ends_by_the_idle_timeout(impatient: Store, fault_proxy: FaultProxy, fault: Fault) -> None:
    fault_proxy.each_once(fault)
    started = time.monotonic()
    assert bytes(impatient.read_range("x.bin", 0, len(DATA))) == DATA
    assert IDLE_SECONDS * 0.9 < time.monotonic() - started < IDLE_SECONDS + 3


@pytest.mark.parametrize("fault", SILENCES.values(), ids=SILENCES.keys())
def test_st12_silence_for_ever_is_an_error(impatient: Store, fault_proxy: FaultProxy, fault: Fault) -> None:
    fault_proxy.script = lambda request: fault
    with pytest.raises(StorageError, match=r"read bytes .*x\.bin.*([Tt]imeout|in time).*attempts: 2"):
        impatient.read_range("x.bin", 0, len(DATA))


def test_st13_a_slow_body_that_flows_is_healthy(impatient: Store, fault_proxy: FaultProxy) -> None:
    # Three times the idle timeout, at 100 KB/s: only a timeout of the whole request would end this.
    fault_proxy.script = lambda request: Fault(rate=100_000)
    before = fault_proxy.count()
    started = time.monotonic()
    assert bytes(impatient.read_range("x.bin", 0, len(DATA))) == DATA
    assert time.monotonic() - started > 2.5 * IDLE_SECONDS
    assert fault_proxy.count() - before == 1


def test_st05_a_failed_upload_shows_nothing_and_is_repeated(store: Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.each_once(slow_down(), Fault(after=0, end="reset"), method="PUT")
    store.put_atomic("y.bin", DATA)
    assert bytes(store.read_range("y.bin", 0, len(DATA))) == DATA
    fault_proxy.script = lambda request: slow_down() if request.method == "PUT" else None
    with pytest.raises(StorageError, match=r"write .*z\.bin.*SlowDown"):
        store.put_atomic("z.bin", DATA)
    assert [entry.path for entry in store.list()] == ["x.bin", "y.bin"]


def test_st05_a_part_of_a_large_upload_is_repeated_alone(s3_url: str, fault_proxy: FaultProxy) -> None:
    store = open_store(s3_url, FAST)
    data = secrets.token_bytes(1 << 20) * 20
    fault_proxy.script = lambda request: slow_down() if request.number == 2 else None
    store.put_atomic("big.bin", data)
    parts = [request for request in fault_proxy.requests if "partNumber" in request.path]
    assert len(parts) == 4  # three parts, one of them twice
    assert bytes(store.read_range("big.bin", 0, len(data))) == data


def test_a_listing_survives_a_refused_page(store: Store, fault_proxy: FaultProxy) -> None:
    fault_proxy.each_once(slow_down())
    assert [entry.path for entry in store.list()] == ["x.bin"]


def test_errors_never_show_credentials(store: Store, fault_proxy: FaultProxy, s3_url: str) -> None:
    secret_headers: list[str] = []

    def echo(request: Request) -> Fault:
        # As AWS does when a signature does not match: the reply repeats the request, credentials and all.
        secret_headers.append(request.authorization)
        leak = f"<CanonicalRequest>{request.authorization}</CanonicalRequest>"
        reply = error_reply(403, "SignatureDoesNotMatch", "The signature does not match.")
        return Fault(status=403, body=reply.body.replace(b"</Error>", leak.encode() + b"</Error>"))

    fault_proxy.script = echo
    with pytest.raises(StorageError, match=r"SignatureDoesNotMatch|signature does not match") as caught:
        store.read_range("x.bin", 0, 10)
    shown = "".join(traceback.format_exception(caught.value))
    signature = secret_headers[0].rpartition("Signature=")[2].partition("&")[0]
    assert signature
    assert signature not in shown
    assert "Credential=" not in shown
