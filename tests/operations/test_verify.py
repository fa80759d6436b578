"""Every byte of a dataset is looked at, and everything that is wrong is listed."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

import dataflow
from dataflow.dataset import Manifest, ShardWriter
from dataflow.errors import DatasetError, OptionError
from dataflow.operations.exclude import exclude
from dataflow.operations.fault import Fault
from dataflow.operations.verify import verify
from dataflow.storage import open_store
from tests.dataset.written import write
from tests.formats.archives import pack
from tests.operations.photographs import animation, black_png, encoded, photograph
from tests.servers import proxy
from tests.servers.proxy import FaultProxy, error_reply

RNG = np.random.default_rng(0)


def numbers(url: Path | str, rows: int = 60, seed: int = 0) -> Manifest:
    """Three shards of 20 rows in blocks of 4."""
    rng = np.random.default_rng(seed)
    return write(
        url,
        [{"key": f"k{number:02d}", "data": rng.bytes(320)} for number in range(rows)],
        rows_per_block=4,
        shard_bytes=7700,
    )


def photographs(url: Path | str, files: dict[str, bytes], **options: int) -> Manifest:
    return write(url, [{"key": name, "image": data} for name, data in files.items()], **options)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def kinds(faults: list[Fault]) -> list[tuple[str, int | None]]:
    return [(fault.kind, fault.block) for fault in faults]


def test_a_sound_dataset_and_its_progress(tmp_path: Path) -> None:
    manifest = numbers(tmp_path)
    assert manifest.num_shards == 3
    done: list[tuple[int, int]] = []
    assert verify(str(tmp_path), on_progress=lambda rows, nbytes: done.append((rows, nbytes))).faults == []
    assert sum(rows for rows, _ in done) == 60
    assert sum(nbytes for _, nbytes in done) == manifest.num_bytes


def test_an_error_in_the_middle_ends_it_soon(tmp_path: Path) -> None:
    numbers(tmp_path, rows=2000)
    threads = threading.active_count()
    seen: list[int] = []

    def fail(rows: int, nbytes: int) -> None:
        seen.append(rows)
        if len(seen) >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(str(tmp_path), workers=1, on_progress=fail)
    assert len(seen) < 20
    assert threading.active_count() == threads


@pytest.mark.parametrize("workers", [1, 3])
def test_all_bad_blocks_of_all_shards_are_listed_with_both_sums(tmp_path: Path, workers: int) -> None:
    manifest = numbers(tmp_path)
    for block in (1, 3, 11):
        flip(tmp_path / manifest.shard_path(manifest.shard_of(block)), int(manifest.starts[block]) + 400)
    faults = verify(str(tmp_path), workers=workers).faults
    assert kinds(faults) == [("checksum", 1), ("checksum", 3), ("checksum", 11)]
    for fault in faults:
        assert fault.block is not None
        assert fault.expected == manifest.checksum(fault.block).hex()
        assert fault.found != fault.expected
        assert str(fault.found) in fault.message
        assert f"block {fault.block} ({fault.shard}, bytes " in fault.message


def test_st03_a_shard_that_was_cut(tmp_path: Path) -> None:
    manifest = numbers(tmp_path)
    path = tmp_path / manifest.shard_path(1)
    size = path.stat().st_size
    os.truncate(path, size - 1024 * 2)
    faults = verify(str(tmp_path)).faults
    assert {fault.shard for fault in faults} == {str(path)}
    assert (faults[0].kind, faults[0].expected, faults[0].found) == ("size", size, size - 2048)
    assert faults[1].kind == "structure"
    assert "cut off" in faults[1].message
    first, last = int(manifest.first_blocks[1]), int(manifest.first_blocks[2])
    ends = manifest.starts + manifest.lengths
    lost = [block for block in range(first, last) if ends[block] > size - 2048]
    assert lost
    assert kinds(faults)[2:] == [("block", block) for block in lost]
    assert f"is not within the shard, which has {size - 2048} bytes" in faults[2].message


def test_st03_shards_that_were_swapped(tmp_path: Path) -> None:
    manifest = numbers(tmp_path)
    one, two = tmp_path / manifest.shard_path(0), tmp_path / manifest.shard_path(1)
    one.rename(tmp_path / "x")
    two.rename(one)
    (tmp_path / "x").rename(two)
    faults = verify(str(tmp_path)).faults
    assert kinds(faults) == [("checksum", block) for block in range(int(manifest.first_blocks[2]))]


def test_st03_another_number_of_samples(tmp_path: Path) -> None:
    def tar(rows: int) -> None:
        (tmp_path / "a.tar").write_bytes(pack((f"{n:03d}.txt", str(n).encode()) for n in range(rows)))

    tar(100)
    dataflow.index(str(tmp_path))
    assert verify(str(tmp_path)).faults == []
    tar(85)
    rows = [fault for fault in verify(str(tmp_path)).faults if fault.kind == "rows"]
    assert [(fault.expected, fault.found) for fault in rows] == [(100, 85)]
    assert "a.tar holds 85 rows, the manifest says 100" in rows[0].message


def test_st14_a_dataset_that_was_overwritten_below_its_manifest(tmp_path: Path) -> None:
    manifest = numbers(tmp_path / "one")
    numbers(tmp_path / "two", seed=1)
    for shard in range(3):
        shutil.copy(tmp_path / "two" / manifest.shard_path(shard), tmp_path / "one")
    faults = verify(str(tmp_path / "one")).faults
    assert kinds(faults) == [("checksum", block) for block in range(manifest.num_blocks)]


def test_a_shard_that_is_gone(tmp_path: Path) -> None:
    manifest = numbers(tmp_path)
    (tmp_path / manifest.shard_path(1)).unlink()
    flip(tmp_path / manifest.shard_path(2), int(manifest.starts[-1]) + 400)
    faults = verify(str(tmp_path)).faults
    assert kinds(faults) == [("missing", None), ("checksum", manifest.num_blocks - 1)]
    assert f"{manifest.shard_path(1)} is not there: 5 blocks are lost" in faults[0].message


def test_bytes_around_the_blocks_of_an_arrow_file(tmp_path: Path) -> None:
    manifest = write(tmp_path, [{"x": number} for number in range(3)])
    path = tmp_path / manifest.shard_path(0)
    whole = path.read_bytes()
    start, end = int(manifest.starts[0]), int(manifest.starts[0] + manifest.lengths[0])
    found = 0
    for place in [*range(start), *range(end, len(whole))]:
        flip(path, place)
        faults = verify(str(tmp_path)).faults
        assert {fault.kind for fault in faults} <= {"structure"}
        found += len(faults)
        path.write_bytes(whole)
    assert found > (len(whole) - int(manifest.lengths[0])) / 2  # the rest is padding


def test_bytes_around_the_blocks_of_a_tar(tmp_path: Path) -> None:
    tar = pack([("a.txt", b"1"), ("._b.txt", b"hidden" * 100), ("c.txt", b"3")])
    (tmp_path / "a.tar").write_bytes(tar)
    dataflow.index(str(tmp_path), block_bytes=1)
    flip(tmp_path / "a.tar", 1024 + 20)  # in the header of the hidden member, which is in no block
    (fault,) = verify(str(tmp_path)).faults
    assert fault.kind == "structure"
    (tmp_path / "a.tar").write_bytes(tar[:-512] + b"x" * 512)
    assert [fault.kind for fault in verify(str(tmp_path)).faults] == ["structure"]


def write_parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, row_group_size=100)


def write_csv(path: Path, table: pa.Table) -> None:
    csv.write_csv(table, path)


def write_lines(path: Path, table: pa.Table) -> None:
    lines = "".join(f"{json.dumps(row)}\n" for row in table.to_pylist())
    path.write_bytes(gzip.compress(lines.encode()) if path.suffix == ".gz" else lines.encode())


@pytest.mark.parametrize(
    ("name", "write_file"),
    [("a.parquet", write_parquet), ("a.jsonl", write_lines), ("a.jsonl.gz", write_lines), ("a.csv", write_csv)],
)
def test_shards_of_other_formats(tmp_path: Path, name: str, write_file: Callable[[Path, pa.Table], None]) -> None:
    table = pa.table(
        {"key": [f"k{number}" for number in range(1000)], "text": ["word " * (n % 50) for n in range(1000)]}
    )
    path = tmp_path / name
    write_file(path, table)
    manifest = dataflow.index(str(tmp_path), block_bytes=20_000)
    assert verify(str(tmp_path)).faults == []
    exclude(str(tmp_path), ["k500"])
    assert verify(str(tmp_path)).faults == []
    whole = path.read_bytes()
    block = manifest.num_blocks // 2
    flip(path, int(manifest.starts[block] + manifest.lengths[block] // 2))
    faults = [fault for fault in verify(str(tmp_path)).faults if fault.kind != "structure"]
    assert kinds(faults) == [("checksum", block)]
    path.write_bytes(whole[: len(whole) // 2])
    assert "size" in {fault.kind for fault in verify(str(tmp_path)).faults}
    write_file(path, table.slice(0, 900))
    assert ("rows", 1000, 900) in [(fault.kind, fault.expected, fault.found) for fault in verify(str(tmp_path)).faults]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_byte_of_any_block(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("flip")
    manifest = numbers(folder)
    bad = sorted(data.draw(st.sets(st.integers(0, manifest.num_blocks - 1), max_size=5)))
    for block in bad:
        place = int(manifest.starts[block]) + data.draw(st.integers(0, int(manifest.lengths[block]) - 1))
        flip(folder / manifest.shard_path(manifest.shard_of(block)), place)
    faults = [fault for fault in verify(str(folder)).faults if fault.kind != "structure"]
    assert kinds(faults) == [("checksum", block) for block in bad]


def test_the_manifest_has_a_seal(tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    numbers(s3_url)
    assert verify(s3_url).faults == []
    store = open_store(s3_url)
    data = bytearray(store.read_range("manifest.arrow", 0, store.size("manifest.arrow")))
    data[len(data) // 2] ^= 1
    store.put_atomic("manifest.arrow", bytes(data))
    with pytest.raises(DatasetError, match="it is damaged"):
        verify(s3_url)


FILES = {
    "whole.jpg": photograph(),
    "cut.jpg": photograph()[:-54],
    "empty.jpg": b"",
    "page.jpg": b"<html>404</html>",
    "really.png": encoded("JPEG"),
    "moving.gif": animation("GIF"),
    "bomb.png": black_png(14_000),
    "flower.jpg": photograph("flower"),
}


def test_im01_im07_im08_im09_im11_bad_images_are_named(tmp_path: Path) -> None:
    photographs(tmp_path, FILES, rows_per_block=3)
    faults = verify(str(tmp_path)).faults
    assert [(fault.kind, fault.block, fault.row, fault.key, fault.column) for fault in faults] == [
        ("value", 0, 1, "cut.jpg", "image"),
        ("value", 0, 2, "empty.jpg", "image"),
        ("value", 1, 3, "page.jpg", "image"),
        ("value", 2, 6, "bomb.png", "image"),
    ]
    ends = ["truncated", "is empty", "is HTML or XML", "too large to decode"]
    for fault, end in zip(faults, ends, strict=True):
        assert f"row {fault.row} ({fault.key!r}): 'image' " in fault.message
        assert end in fault.message
    assert [fault.key for fault in verify(str(tmp_path), decode=False).faults] == ["empty.jpg", "page.jpg"]


def test_bad_images_that_were_excluded_are_no_fault_and_rows_keep_their_numbers(tmp_path: Path) -> None:
    photographs(tmp_path, FILES, rows_per_block=3)
    exclude(str(tmp_path), ["cut.jpg", "empty.jpg"])
    faults = verify(str(tmp_path)).faults
    assert [(fault.row, fault.key) for fault in faults] == [(1, "page.jpg"), (4, "bomb.png")]
    dataset = dataflow.open(str(tmp_path))
    for fault in faults:
        assert fault.row is not None
        assert dataset[fault.row]["key"] == fault.key


def test_images_in_columns_of_any_name_and_in_tars(tmp_path: Path) -> None:
    members = [("1.seg.png", encoded("PNG")[:900]), ("1.cls", b"3"), ("2.left", photograph()[:-99]), ("2.cls", b"4")]
    (tmp_path / "a.tar").write_bytes(pack(members))
    dataflow.index(str(tmp_path))
    faults = verify(str(tmp_path)).faults
    assert {(fault.row, fault.key, fault.column) for fault in faults} == {(0, "1", "seg.png"), (1, "2", "left")}


def test_null_images_and_text_columns_are_fine(tmp_path: Path) -> None:
    write(tmp_path, [{"image": None if number % 2 else photograph(), "jpg": "not an image"} for number in range(4)])
    assert verify(str(tmp_path)).faults == []


def test_im02_damage_may_not_be_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import PIL.ImageFile

    photographs(tmp_path, {"cut.jpg": photograph()[:-54]})
    monkeypatch.setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(OptionError, match="LOAD_TRUNCATED_IMAGES is set"):
        verify(str(tmp_path))


def test_pillow_is_needed_for_images_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photographs(tmp_path / "images", {"whole.jpg": photograph()})
    write(tmp_path / "text", [{"text": "x"}])
    monkeypatch.setitem(sys.modules, "PIL.ImageFile", None)
    assert verify(str(tmp_path / "text")).faults == []
    assert verify(str(tmp_path / "images"), decode=False).faults == []
    with pytest.raises(OptionError, match="Pillow, which is not installed"):
        verify(str(tmp_path / "images"))


def test_each_byte_is_read_once(fault_proxy: FaultProxy, s3_url: str) -> None:
    with ShardWriter(s3_url, rows_per_block=50, shard_bytes=9 << 20) as writer:
        for _ in range(1000):
            writer.write({"data": RNG.bytes(20_000)})
    manifest = Manifest.open(s3_url)
    assert manifest.num_shards == 2
    before = fault_proxy.bytes_sent
    assert verify(s3_url).faults == []
    size = sum(manifest.shard_size(shard) for shard in range(2)) + open_store(s3_url).size("manifest.arrow")
    # A block that lies across the end of a window begins the next one.
    assert size <= fault_proxy.bytes_sent - before <= 1.2 * size


def test_what_went_wrong_on_the_way_is_no_fault(fault_proxy: FaultProxy, s3_url: str) -> None:
    manifest = numbers(s3_url)
    broken: list[str] = []

    def flip_once(request: proxy.Request) -> proxy.Fault | None:
        if "shard-00001" in request.path and request.method == "GET" and not broken:
            broken.append(request.path)
            return proxy.Fault(flip=int(manifest.starts[0]) + 400)
        return None

    fault_proxy.script = flip_once
    assert verify(s3_url).faults == []
    assert broken


def test_a_shard_that_the_store_refuses(fault_proxy: FaultProxy, s3_url: str) -> None:
    manifest = numbers(s3_url)
    fault_proxy.script = lambda request: (
        error_reply(403, "AccessDenied", "no") if "shard-00001" in request.path and request.method == "GET" else None
    )
    faults = verify(s3_url).faults
    assert kinds(faults) == [("unreadable", None)]
    assert f"{s3_url}/{manifest.shard_path(1)} could not be read" in faults[0].message
