"""The real servers that tests share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest
from hypothesis import settings

from dataflow.cli.s3_server import S3Server
from tests.servers.nginx import INSTALL, Nginx, nginx_program
from tests.servers.proxy import FaultProxy

# Each run draws others; tests that need more say so themselves.
settings.register_profile("quick", max_examples=40)
settings.load_profile("quick")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One S3 server for the session; nothing in the environment points to it."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The S3 server, with the environment of this test pointing to it."""
    use_store(monkeypatch, s3_server.environment)
    return s3_server


@pytest.fixture
def s3_url(s3: S3Server) -> str:
    """A place in the S3 server that no other test uses."""
    return f"{s3.url}/{secrets.token_hex(6)}"


@pytest.fixture
def fault_proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy that can break replies; the environment of this test points to it, not to the server behind."""
    with FaultProxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


@pytest.fixture(scope="session")
def nginx_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """nginx over a folder for the session: write files below `folder / "bucket"`, read them at `s3://bucket`."""
    if nginx_program() is None:
        pytest.skip(f"nginx is not installed: {INSTALL}")
    folder = tmp_path_factory.mktemp("nginx")
    (folder / "bucket").mkdir()
    with Nginx(folder) as server:
        yield server


@pytest.fixture
def nginx_store(nginx_server: Nginx, monkeypatch: pytest.MonkeyPatch) -> Nginx:
    """nginx, with the environment of this test pointing to it; it counts bytes and requests."""
    use_store(monkeypatch, nginx_server.environment)
    return nginx_server


def use_store(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Points the AWS variables of a test to one server, and shuts out what the machine has set up."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
