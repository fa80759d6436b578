from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc

from dataflow.dataset import Manifest, index, read_block
from dataflow.errors import CorruptDataError, DatasetError, OptionError
from dataflow.formats import Skipped
from dataflow.storage import open_store
from tests.formats.archives import pack


def archive(shard: int, rows: int = 20) -> bytes:
    return pack(
        [(f"{shard:02d}{i:04d}.{kind}", f"{shard} {i}".encode()) for i in range(rows) for kind in ("jpg", "cls")]
    )


def keys(manifest: Manifest) -> list[str]:
    store = open_store(manifest.base_url)
    blocks = (read_block(store, manifest, number) for number in range(manifest.num_blocks))
    return [key for block in blocks for key in block.column("key").to_pylist()]


def test_shards_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for shard in (3, 0, 11, 2):
        folder = tmp_path / ("b" if shard > 2 else "a")
        folder.mkdir(exist_ok=True)
        (folder / f"{shard:02d}.tar").write_bytes(archive(shard))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.tar")}
    manifest = index(str(tmp_path), block_bytes=4096)
    assert [manifest.shard_path(shard) for shard in range(4)] == ["a/00.tar", "a/02.tar", "b/03.tar", "b/11.tar"]
    assert keys(manifest) == [f"{shard:02d}{i:04d}" for shard in (0, 2, 3, 11) for i in range(20)]
    assert manifest.format == "webdataset"
    assert manifest.num_blocks > 16
    assert manifest.shard_size(0) == len(archive(0))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.tar")} == before
    assert index(str(tmp_path), block_bytes=4096).fingerprint == manifest.fingerprint


def test_the_manifest_in_another_place(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.tar").write_bytes(archive(1))
    manifest = index(str(tmp_path / "source"), out=str(tmp_path / "out"))
    assert [path.name for path in (tmp_path / "source").iterdir()] == ["a.tar"]
    assert manifest.url == str(tmp_path / "out")
    assert manifest.base_url == str(tmp_path / "source")
    assert len(keys(Manifest.open(str(tmp_path / "out")))) == 20


def test_columns_are_the_union_over_all_tars(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(pack([("1.jpg", b"x")]))
    (tmp_path / "b.tar").write_bytes(pack([("2.txt", b"y")]))
    manifest = index(str(tmp_path))
    assert manifest.schema.names == ["key", "jpg", "txt"]
    store = open_store(str(tmp_path))
    assert read_block(store, manifest, 0).to_pylist() == [{"key": "1", "jpg": b"x", "txt": None}]
    assert read_block(store, manifest, 1).to_pylist() == [{"key": "2", "jpg": None, "txt": b"y"}]


def test_what_is_left_out_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.tar").write_bytes(pack([("1.jpg", b"x"), ("._1.jpg", b"y"), ("README", b"z")]))
    (tmp_path / "b.tar.gz").write_bytes(b"x")
    (tmp_path / "notes.txt").write_bytes(b"x")
    skipped: list[Skipped] = []
    index(str(tmp_path), on_skip=skipped.append)
    assert {(item.name, item.reason[:20]) for item in skipped} == {
        ("b.tar.gz", "a compressed archive"),
        ("notes.txt", "taken for a note bes"),
        ("a.tar: ._1.jpg", "metadata of macOS (A"),
        ("a.tar: README", "a name without an ex"),
    }
    assert "left out 4 files, members and columns" in caplog.text


def test_sh15_a_broken_shard_among_many_is_named(tmp_path: Path) -> None:
    for shard in range(200):
        (tmp_path / f"{shard:03d}.tar").write_bytes(archive(shard, 3))
    assert index(str(tmp_path)).num_rows == 600
    (tmp_path / "manifest.arrow").unlink()
    (tmp_path / "123.tar").write_bytes(archive(123, 3)[:3000])
    with pytest.raises(CorruptDataError, match=r"/123\.tar: cut off"):
        index(str(tmp_path))
    assert not (tmp_path / "manifest.arrow").exists()


def test_sh15_nothing_to_index(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no shards \(\.arrow, .*\.tar, .*\.txt\) at .*Check the URL"):
        index(str(tmp_path / "missing"))
    (tmp_path / "a.jpg").write_bytes(b"x")
    with pytest.raises(DatasetError, match=r"skipped a\.jpg: no shard format has this suffix"):
        index(str(tmp_path))
    (tmp_path / "a.tar").write_bytes(bytes(10240))
    with pytest.raises(DatasetError, match="hold no rows"):
        index(str(tmp_path))
    with pytest.raises(OptionError, match="block_bytes is 0"):
        index(str(tmp_path), block_bytes=0)


def test_shards_of_two_formats(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(archive(1))
    with ipc.new_file(str(tmp_path / "b.arrow"), pa.schema([("x", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"x": [1, 2]}))
    with pytest.raises(DatasetError, match=r"two formats \(a\.tar and b\.arrow\)\. Give format="):
        index(str(tmp_path))
    assert index(str(tmp_path), format="arrow").num_rows == 2
    assert index(str(tmp_path), format="webdataset").num_rows == 20
    with pytest.raises(DatasetError, match="no shard format is called 'parquets'"):
        index(str(tmp_path), format="parquets")


def test_arrow_shards_that_do_not_go_together(tmp_path: Path) -> None:
    for name, kind in (("a", pa.int64()), ("b", pa.int32())):
        with ipc.new_file(str(tmp_path / f"{name}.arrow"), pa.schema([("x", kind)])) as writer:
            writer.write_batch(pa.record_batch({"x": pa.array([1], kind)}))
    with pytest.raises(DatasetError, match=r"b\.arrow has column 'x' as int32, earlier shards have int64 .*a\.arrow"):
        index(str(tmp_path))


def test_a_damaged_manifest_does_not_stop_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(archive(1))
    (tmp_path / "manifest.arrow").write_bytes(b"damaged")
    assert index(str(tmp_path)).num_rows == 20


def test_in_an_object_store(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = open_store(s3_url)
    for shard in range(3):
        store.put_atomic(f"part/{shard}.tar", archive(shard))
    manifest = index(s3_url, block_bytes=4096)
    assert len(keys(manifest)) == 60
    assert manifest.base_url == s3_url
    elsewhere = index(s3_url, out=str(tmp_path / "out"), block_bytes=4096)
    assert elsewhere.base_url == s3_url
    assert elsewhere.fingerprint == manifest.fingerprint
    assert elsewhere.shard_version(0)  # the ETag


def test_sg11_the_copy_of_a_manifest_on_a_node(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = open_store(s3_url)
    store.put_atomic("0.tar", archive(0))
    index(s3_url)
    [copy] = (tmp_path / "cache").rglob("*.arrow")
    age = copy.stat().st_mtime_ns
    assert Manifest.open(s3_url).num_rows == 20
    assert copy.stat().st_mtime_ns == age  # taken from the node
    copy.write_bytes(b"")  # what a full disk may leave
    assert Manifest.open(s3_url).num_rows == 20
    store.put_atomic("1.tar", archive(1))
    assert index(s3_url).num_rows == 40  # another version, another copy
    assert Manifest.open(s3_url).num_rows == 40
    assert not list((tmp_path / "cache").rglob("*.partial"))
