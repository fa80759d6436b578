from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from dataflow.storage import Store, open_store

KINDS = ["local", "s3", "fsspec-s3", "fsspec-file"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    kind = request.param
    if kind == "local":
        return open_store(str(tmp_path / "root"))
    if kind == "fsspec-file":
        return open_store(f"fsspec+file://{tmp_path}/root")
    request.getfixturevalue("s3")
    url = request.getfixturevalue("s3_server").url
    prefix = "fsspec+" if kind == "fsspec-s3" else ""
    return open_store(f"{prefix}{url}/{secrets.token_hex(6)}")
