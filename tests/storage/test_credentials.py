"""Where S3 credentials come from, and what happens when they expire in the middle of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dataflow.cli.s3_server import S3Server
from dataflow.errors import OptionError, StorageError
from dataflow.storage import open_store
from dataflow.storage.amazon import AmazonSettings, amazon_settings
from tests.servers.proxy import Fault, FaultProxy, Request, error_reply

KEY_NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


def write_files(folder: Path, credentials: str = "", config: str = "") -> dict[str, str]:
    (folder / "credentials").write_text(credentials)
    (folder / "config").write_text(config)
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        "AWS_CONFIG_FILE": str(folder / "config"),
    }


def test_settings_from_the_environment() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://general:1",
        "AWS_ENDPOINT_URL_S3": "http://special:1",
        "HOME": "/nonexistent",
    }
    assert amazon_settings(environment) == AmazonSettings("eu-west-1", "http://special:1", "id", "secret", "token")
    assert amazon_settings({"HOME": "/nonexistent"}) == AmazonSettings("us-east-1")


def test_settings_from_files(tmp_path: Path) -> None:
    files = write_files(
        tmp_path,
        "[default]\naws_access_key_id = a\naws_secret_access_key = b%c\n[team]\naws_access_key_id = d\n"
        "aws_secret_access_key = e\naws_session_token = f\n",
        "[default]\nregion = eu-north-1\n[profile team]\nregion = eu-south-1\nendpoint_url = http://x:1\n"
        "s3 =\n    max_concurrent_requests = 20\n",
    )
    assert amazon_settings(files) == AmazonSettings("eu-north-1", None, "a", "b%c")
    assert amazon_settings(files | {"AWS_PROFILE": "team"}) == AmazonSettings("eu-south-1", "http://x:1", "d", "e", "f")


def test_the_usual_place_of_the_files(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    write_files(tmp_path / ".aws", "[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    assert amazon_settings({"HOME": str(tmp_path)}).access_key_id == "a"


def test_the_environment_wins_over_the_files_as_a_whole(tmp_path: Path) -> None:
    files = write_files(
        tmp_path, "[default]\naws_access_key_id = a\naws_secret_access_key = b\naws_session_token = c\n"
    )
    settings = amazon_settings(files | {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"})
    assert settings == AmazonSettings("us-east-1", None, "id", "secret", None)


def test_a_missing_profile_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="'nobody'"):
        amazon_settings(write_files(tmp_path) | {"AWS_PROFILE": "nobody"})


def test_a_profile_with_keys_elsewhere_says_what_to_do(tmp_path: Path) -> None:
    files = write_files(tmp_path, "", "[profile sso]\nsso_session = corp\n")
    with pytest.raises(OptionError, match="export-credentials"):
        amazon_settings(files | {"AWS_PROFILE": "sso"})


def test_a_broken_file_is_named_without_its_content(tmp_path: Path) -> None:
    files = write_files(tmp_path, "[default]\nhunter2 hunter2\n")
    with pytest.raises(OptionError, match=r"credentials, line|credentials:") as caught:
        amazon_settings(files)
    assert "hunter2" not in str(caught.value)


def test_secrets_are_not_in_the_repr() -> None:
    assert "hunter2" not in repr(AmazonSettings("r", None, "hunter2", "hunter2", "hunter2"))


@pytest.mark.parametrize("prefix", ["", "fsspec+"], ids=["obstore", "fsspec"])
def test_reads_with_a_profile_of_the_files(
    prefix: str, s3: S3Server, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = (os.environ[name] for name in KEY_NAMES)
    files = write_files(
        tmp_path,
        f"[team]\naws_access_key_id={key}\naws_secret_access_key={secret}\n",
        f"[profile team]\nendpoint_url={s3.endpoint}\nregion=us-east-1\n",
    )
    for name in (*KEY_NAMES, "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name)
    for name, value in files.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_PROFILE", "team")
    store = open_store(f"{prefix}{s3_url}")
    store.put_atomic("x.bin", b"content")
    assert bytes(store.read_range("x.bin", 0, 7)) == b"content"


def test_wrong_keys_fail_at_once(s3: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageError, match=r"403.*SignatureDoesNotMatch.*attempts: 1") as caught:
        open_store(s3_url).read_range("x.bin", 0, 7)
    assert "wrong" not in str(caught.value)


def expired(request: Request) -> Fault:
    if request.method == "HEAD":
        return Fault(status=400)  # No body, so no reason.
    return error_reply(400, "ExpiredToken", "The provided token has expired.")


@pytest.mark.parametrize("prefix", ["", "fsspec+"], ids=["obstore", "fsspec"])
def test_sg05_expired_credentials_are_read_anew(
    prefix: str, fault_proxy: FaultProxy, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = (os.environ[name] for name in KEY_NAMES)
    good = f"[default]\naws_access_key_id={key}\naws_secret_access_key={secret}\n"
    store = open_store(f"{prefix}{s3_url}")
    store.put_atomic("x.bin", b"content")
    for name in KEY_NAMES:
        monkeypatch.delenv(name)
    for name, value in write_files(tmp_path, good.replace(key, "OLDKEY")).items():
        monkeypatch.setenv(name, value)
    fault_proxy.script = lambda request: expired(request) if "OLDKEY" in request.authorization else None
    store = open_store(f"{prefix}{s3_url}")
    with pytest.raises(StorageError, match=r"expired.*attempts: 2"):
        store.read_range("x.bin", 0, 7)
    write_files(tmp_path, good)
    assert bytes(store.read_range("x.bin", 0, 7)) == b"content"
    assert store.size("x.bin") == 7


@pytest.mark.parametrize("prefix", ["", "fsspec+"], ids=["obstore", "fsspec"])
def test_sg05_a_client_with_old_credentials_goes_on_with_new_ones(
    prefix: str, fault_proxy: FaultProxy, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(f"{prefix}{s3_url}")
    store.put_atomic("x.bin", b"content")
    assert bytes(store.read_range("x.bin", 0, 7)) == b"content"
    # The server has one pair of keys only, so the region in the signature tells the old client from the new one.
    fault_proxy.script = lambda request: None if "/eu-west-9/" in request.authorization else expired(request)
    monkeypatch.setenv("AWS_REGION", "eu-west-9")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-9")
    before = len(fault_proxy.requests)
    for _ in range(3):
        assert bytes(store.read_range("x.bin", 0, 7)) == b"content"
    assert len(fault_proxy.requests) - before == 4


def test_sg05_a_bare_400_to_a_head_mentions_the_credentials(fault_proxy: FaultProxy, s3_url: str) -> None:
    fault_proxy.script = expired
    with pytest.raises(StorageError, match=r"400.*credentials have expired.*attempts: 2"):
        open_store(s3_url).size("x.bin")


def test_no_credentials_at_all_is_said_soon(
    s3: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch, fault_proxy: FaultProxy
) -> None:
    for name in KEY_NAMES:
        monkeypatch.delenv(name)
    # The service that gives instances their credentials, which here knows none.
    fault_proxy.script = lambda request: Fault(status=404)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", fault_proxy.endpoint)
    with pytest.raises(StorageError, match=r"no credentials: set AWS_ACCESS_KEY_ID.*attempts: 2"):
        open_store(s3_url).read_range("x.bin", 0, 7)
