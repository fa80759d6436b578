"""The servers that other tests rely on do what they say."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dataflow.cli.s3_server import S3Server
from dataflow.storage import open_store
from tests.servers.haproxy import INSTALL, DelayProxy, haproxy_program
from tests.servers.nginx import Nginx, Served


def test_two_s3_servers_run_side_by_side(s3_server: S3Server) -> None:
    with S3Server(bucket="other") as other:
        assert other.endpoint != s3_server.endpoint
        assert other.url == "s3://other"


def test_nginx_counts_the_bytes_it_sends(nginx_store: Nginx) -> None:
    folder = Path(nginx_store.folder) / "bucket" / "counted"
    folder.mkdir()
    (folder / "x.bin").write_bytes(bytes(10_000))
    store = open_store("s3://bucket/counted")
    before = nginx_store.bytes_sent()
    for start in range(0, 10_000, 1000):
        store.read_range("x.bin", start, 1000)
    assert nginx_store.bytes_sent() - before == 10_000
    assert nginx_store.served()[-1] == Served("GET", 206, 1000, "/bucket/counted/x.bin", "bytes=9000-9999")


def test_haproxy_adds_latency(nginx_store: Nginx, monkeypatch: pytest.MonkeyPatch) -> None:
    if haproxy_program() is None:
        pytest.skip(f"haproxy is not installed: {INSTALL}")
    (Path(nginx_store.folder) / "bucket" / "late.bin").write_bytes(bytes(100))
    with DelayProxy(nginx_store.endpoint, milliseconds=25) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        store = open_store("s3://bucket")
        store.read_range("late.bin", 0, 100)
        started = time.monotonic()
        for _ in range(4):
            store.read_range("late.bin", 0, 100)
        assert 0.1 <= time.monotonic() - started < 1
