from __future__ import annotations

import pytest

from dataflow.errors import OptionError
from dataflow.operations.common_base import common_base


@pytest.mark.parametrize(
    ("urls", "base", "paths"),
    [
        (["/data/a", "/data/b"], "/data", ["a", "b"]),
        (["/data/a", "/data/a/b"], "/data/a", ["", "b"]),
        (["/data/ab", "/data/abc"], "/data", ["ab", "abc"]),
        (["/data/a", "/data/a"], "/data/a", ["", ""]),
        (["/x/a", "/y/a"], "/", ["x/a", "y/a"]),
        (["/", "/y/a"], "/", ["", "y/a"]),
        (["s3://bucket/a/x", "s3://bucket/a/y/z"], "s3://bucket/a", ["x", "y/z"]),
        (["s3://bucket", "s3://bucket/y"], "s3://bucket", ["", "y"]),
        (["s3://bucket/x", "s3://bucket/y"], "s3://bucket", ["x", "y"]),
        (["fsspec+sftp://host/p/x", "fsspec+sftp://host/p"], "fsspec+sftp://host/p", ["x", ""]),
    ],
)
def test_common_base(urls: list[str], base: str, paths: list[str]) -> None:
    assert common_base(urls) == (base, paths)


@pytest.mark.parametrize("other", ["s3://other/a", "gs://bucket/a", "/bucket/a", "s3://bucket2/a"])
def test_different_stores(other: str) -> None:
    with pytest.raises(OptionError, match=f"s3://bucket/a and {other} lie in different stores"):
        common_base(["s3://bucket/a", "s3://bucket/b", other])
