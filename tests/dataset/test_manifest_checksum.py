"""Every byte of a manifest counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.dataset import Manifest, ShardWriter
from dataflow.dataset.manifest_file import MANIFEST_NAME
from dataflow.errors import DatasetError


@pytest.fixture(scope="module")
def manifest_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("written")
    with ShardWriter(
        str(folder), rows_per_block=2, properties={"classes": ["dataflow-xxh3-128:" + "0" * 32]}
    ) as writer:
        for number in range(9):
            writer.write({"number": number})
    return (folder / MANIFEST_NAME).read_bytes()


def test_a_flipped_bit_anywhere_is_found(manifest_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / MANIFEST_NAME
    for place in range(len(manifest_bytes)):
        damaged = bytearray(manifest_bytes)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(DatasetError, match="damaged"):
            Manifest.open(str(tmp_path))
    path.write_bytes(manifest_bytes)
    assert Manifest.open(str(tmp_path)).num_rows == 9


def test_the_error_has_both_checksums(manifest_bytes: bytes, tmp_path: Path) -> None:
    damaged = bytearray(manifest_bytes)
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / MANIFEST_NAME).write_bytes(damaged)
    with pytest.raises(DatasetError, match=r"xxh3-128 is [0-9a-f]{32}, it says [0-9a-f]{32}\)"):
        Manifest.open(str(tmp_path))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_piece_of_a_manifest_is_none(
    manifest_bytes: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("piece")
    start = data.draw(st.integers(0, len(manifest_bytes)))
    end = data.draw(st.integers(start, len(manifest_bytes)))
    piece = manifest_bytes[start:end] + data.draw(st.binary(max_size=40))
    (folder / MANIFEST_NAME).write_bytes(piece)
    if piece != manifest_bytes:
        with pytest.raises(DatasetError):
            Manifest.open(str(folder))


def test_a_damaged_copy_on_the_node_is_downloaded_again(
    s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with ShardWriter(s3_url) as writer:
        writer.write({"number": 1})
    assert Manifest.open(s3_url).num_rows == 1
    (copy,) = (tmp_path / "dataflow" / "manifests").glob("*.arrow")
    whole = copy.read_bytes()
    copy.write_bytes(bytes(len(whole)))
    assert Manifest.open(s3_url).num_rows == 1
    assert copy.read_bytes() == whole
