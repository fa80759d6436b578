from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import OptionError
from dataflow.storage import join_url, open_store, split_url

NAMES = st.text(st.characters(exclude_characters="/\0%", exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: name not in (".", "..")
)


@pytest.mark.parametrize(
    ("url", "folder", "name"),
    [
        ("/data/train/x.arrow", "/data/train", "x.arrow"),
        ("/x.arrow", "/", "x.arrow"),
        ("x.arrow", ".", "x.arrow"),
        ("file:///data/x.arrow", "file:///data", "x.arrow"),
        ("file:///data/a%20b.arrow", "file:///data", "a b.arrow"),
        ("s3://bucket/x.arrow", "s3://bucket", "x.arrow"),
        ("s3://bucket/deep/er/x.arrow/", "s3://bucket/deep/er", "x.arrow"),
        ("fsspec+s3://bucket/a/x", "fsspec+s3://bucket/a", "x"),
    ],
)
def test_split_url(url: str, folder: str, name: str) -> None:
    assert split_url(url) == (folder, name)


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/", "/", "..", "file:///", "s3://bucket/.."])
def test_split_url_needs_a_name(url: str) -> None:
    with pytest.raises(OptionError, match="names no object"):
        split_url(url)


@given(st.sampled_from(["/data", "s3://bucket", "s3://bucket/a b", "gs://b/c"]), NAMES)
def test_split_undoes_join(root: str, name: str) -> None:
    assert split_url(join_url(root, name)) == (root, name)


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a//", "s3://bucket/a"),
        ("fsspec+memory://box/", "fsspec+memory://box"),
        ("/", "/"),
    ],
)
def test_a_store_says_its_root_without_a_slash(url: str, root: str) -> None:
    assert open_store(url).url == root


def test_local_urls_become_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    here = os.getcwd()
    for url in ("a b", f"file://{here}/a%20b", f"file://localhost{here}/a%20b", "./x/../a b/", "~/a b"):
        assert open_store(url).url == f"{here}/a b"


def test_file_urls_of_other_hosts_are_refused() -> None:
    with pytest.raises(OptionError, match="another host"):
        open_store("file://server/share")


def test_an_empty_url_is_refused() -> None:
    with pytest.raises(OptionError, match="empty"):
        open_store("")


@pytest.mark.parametrize("url", ["s3://key:hunter2@bucket/a", "fsspec+ftp://me:hunter2@host/a"])
def test_urls_with_a_password_are_refused_without_repeating_it(url: str) -> None:
    for use in (open_store, split_url):
        with pytest.raises(OptionError, match="password") as caught:
            use(url)
        assert "hunter2" not in str(caught.value)


def test_unknown_schemes_are_refused() -> None:
    with pytest.raises(OptionError, match="carrier-pigeon"):
        open_store("carrier-pigeon://loft/a")


def test_importing_and_opening_is_light() -> None:
    program = (
        "import sys, dataflow; before = set(sys.modules); from dataflow.storage import open_store;"
        "open_store('/tmp'); open_store('s3://bucket/a');"
        "heavy = {'s3fs', 'fsspec', 'botocore', 'obstore', 'tenacity', 'asyncio'} & (set(sys.modules) - before);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
