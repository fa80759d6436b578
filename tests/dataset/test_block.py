from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dataflow.dataset import Manifest, ShardWriter, decode_block, fetch_block, index, read_block
from dataflow.errors import CorruptDataError, StorageError
from dataflow.storage import open_store
from tests.formats.archives import pack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with ShardWriter(str(tmp_path), rows_per_block=10, shard_bytes=20_000) as writer:
        for i in range(200):
            writer.write({"x": b"%03d" % i * 100, "i": i})
    return tmp_path


def test_blocks_in_two_steps_or_one(folder: Path) -> None:
    manifest, store = Manifest.open(str(folder)), open_store(str(folder))
    data = fetch_block(store, manifest, 3)
    assert len(memoryview(data)) == manifest.lengths[3]
    batch = decode_block(manifest, 3, data)
    assert batch.column("i").to_pylist() == list(range(30, 40))
    assert batch.equals(read_block(store, manifest, 3))


def test_st03_a_changed_byte_names_shard_block_rows_and_both_checksums(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest, store = Manifest.open(str(folder)), open_store(str(folder))
    block = 7
    path = folder / manifest.shard_path(manifest.shard_of(block))
    start, end = int(manifest.starts[block]), int(manifest.starts[block] + manifest.lengths[block])
    content = bytearray(path.read_bytes())
    content[end - 5] ^= 1
    path.write_bytes(content)
    expected = manifest.checksum(block).hex()
    place = rf"block 7 \({path}, bytes {start}-{end - 1}, rows 70-79\)"
    with pytest.raises(CorruptDataError, match=rf"{place}: xxh3-128 is [0-9a-f]{{32}}, the manifest says {expected}"):
        read_block(store, manifest, block)
    assert "reading it again" in caplog.text
    assert read_block(store, manifest, block, verify=False).num_rows == 10
    assert read_block(store, manifest, block - 1).num_rows == 10


def test_a_checksum_that_is_right_the_second_time(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    manifest = Manifest.open(str(folder))
    path = folder / manifest.shard_path(0)
    right = path.read_bytes()
    wrong = bytearray(right)
    wrong[int(manifest.starts[0]) + 200] ^= 1
    path.write_bytes(wrong)

    class Repair(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            path.write_bytes(right)  # what was wrong on the way is right when it is sent again

    handler = Repair()
    logger = logging.getLogger("dataflow.dataset.block")
    logger.addHandler(handler)
    try:
        assert read_block(open_store(str(folder)), manifest, 0).num_rows == 10
    finally:
        logger.removeHandler(handler)


def test_st03_a_shard_that_was_cut_names_both_sizes(folder: Path) -> None:
    manifest, store = Manifest.open(str(folder)), open_store(str(folder))
    path = folder / manifest.shard_path(0)
    content = path.read_bytes()
    last = int(manifest.first_blocks[1]) - 1
    path.write_bytes(content[: int(manifest.starts[last]) + 100])
    message = rf"block {last} \({path}.*cannot be read; the shard has \d+ bytes, the manifest says {len(content)}"
    with pytest.raises(CorruptDataError, match=message):
        read_block(store, manifest, last)
    assert read_block(store, manifest, last - 1).num_rows == 10


def test_st03_shards_that_were_swapped(folder: Path) -> None:
    manifest, store = Manifest.open(str(folder)), open_store(str(folder))
    first, second = folder / manifest.shard_path(0), folder / manifest.shard_path(1)
    first.rename(folder / "x")
    second.rename(first)
    (folder / "x").rename(second)
    with pytest.raises(CorruptDataError, match=rf"block 0 \({first}"):
        read_block(store, manifest, 0)


def test_a_missing_shard_is_an_error_of_the_store(folder: Path) -> None:
    manifest, store = Manifest.open(str(folder)), open_store(str(folder))
    (folder / manifest.shard_path(1)).unlink()
    with pytest.raises(StorageError, match=manifest.shard_path(1)):
        read_block(store, manifest, int(manifest.first_blocks[1]))


def test_st03_another_number_of_rows_than_the_manifest_says(tmp_path: Path) -> None:
    data = pack([(f"{i}.txt", b"x") for i in range(10)])
    (tmp_path / "a.tar").write_bytes(data)
    manifest = index(str(tmp_path))
    with pytest.raises(CorruptDataError, match=r"block 0 .*: has 9 rows, the manifest says 10"):
        decode_block(manifest, 0, data[:9216])
    with pytest.raises(CorruptDataError, match=r"block 0 .*: .*tar header"):
        decode_block(manifest, 0, b"x" * 1024)
