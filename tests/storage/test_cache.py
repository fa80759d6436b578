"""The node cache: what it keeps, what goes, what it does about a disk that is broken, full or shared."""

from __future__ import annotations

import logging
import os
import pickle
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pytest
import xxhash

import dataflow.storage.cache as cache_module
from dataflow.errors import OptionError, StorageError
from dataflow.storage import cache_folder
from dataflow.storage.cache import BlockCache
from dataflow.storage.sizes import format_size, parse_size

BLOCK = 8192
HOUR = 3600.0


class Blocks:
    """Blocks of random bytes, and a count of how often each was fetched."""

    def __init__(self, count: int, nbytes: int = BLOCK) -> None:
        self.data = [secrets.token_bytes(nbytes) for _ in range(count)]
        self.fetched = [0] * count

    def read(self, cache: BlockCache, number: int) -> bool:
        """Whether a block came from the cache; what comes is always right."""
        data = self.data[number]

        def fetch() -> bytes:
            self.fetched[number] += 1
            return data

        got, hit = cache.read(xxhash.xxh3_128_digest(data), len(data), fetch)
        assert bytes(got) == data
        return hit

    def name(self, number: int) -> str:
        return f"{xxhash.xxh3_128_digest(self.data[number]).hex()}-{len(self.data[number])}"

    def path(self, cache: BlockCache, number: int) -> Path:
        return Path(cache.folder) / "dataflow-blocks" / "blocks" / self.name(number)

    def kept(self, cache: BlockCache) -> set[int]:
        return {number for number in range(len(self.data)) if self.path(cache, number).exists()}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "cache")


def kept_bytes(cache: BlockCache) -> int:
    return sum(int(name.partition("-")[2]) for name in os.listdir(Path(cache.folder) / "dataflow-blocks" / "blocks"))


def leftovers(cache: BlockCache) -> list[str]:
    """What is neither a block nor part of the folder's frame."""
    root = Path(cache.folder) / "dataflow-blocks"
    frame = {"CACHEDIR.TAG", "usage", "blocks", "partial"}
    return [*os.listdir(root / "partial"), *(name for name in os.listdir(root) if name not in frame)]


def age(cache: BlockCache, seconds: float) -> None:
    """As if everything in the cache had been used last, or left there, so long ago."""
    for path in (Path(cache.folder) / "dataflow-blocks").rglob("*"):
        status = path.stat()
        os.utime(path, (status.st_atime - seconds, status.st_mtime - seconds))


def test_a_block_is_fetched_once(folder: str) -> None:
    cache, blocks = BlockCache(folder, 1 << 20), Blocks(3)
    assert [blocks.read(cache, number) for number in (0, 1, 2, 0, 1, 2)] == [False] * 3 + [True] * 3
    assert blocks.fetched == [1, 1, 1]
    assert leftovers(cache) == []


def test_a_later_run_and_a_copy_in_another_process_find_it(folder: str) -> None:
    cache, blocks = BlockCache(folder, 1 << 20), Blocks(1)
    blocks.read(cache, 0)
    assert blocks.read(BlockCache(folder, 1 << 20), 0)
    assert blocks.read(pickle.loads(pickle.dumps(cache)), 0)
    with get_context("fork").Pool(1) as pool:
        assert pool.apply(blocks.read, (cache, 0))


def test_a_block_of_no_bytes(folder: str) -> None:
    cache, blocks = BlockCache(folder, 1 << 20), Blocks(1, nbytes=0)
    assert not blocks.read(cache, 0)
    assert blocks.read(cache, 0)


def damage_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a byte": damage_byte,
    "cut": lambda path: os.truncate(path, 100),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: os.truncate(path, BLOCK + 1),
    "another block": lambda path: path.write_bytes(secrets.token_bytes(BLOCK)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_st02_sg11_a_damaged_file_is_fetched_again(  # ST-02, SG-11
    folder: str, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    cache, blocks = BlockCache(folder, 1 << 20), Blocks(1)
    blocks.read(cache, 0)
    damage(blocks.path(cache, 0))
    assert not blocks.read(cache, 0)
    assert "is damaged, fetching it again" in caplog.text
    assert blocks.read(cache, 0)
    assert blocks.fetched == [2]


def test_st05_nothing_is_left_by_a_fetch_that_fails(folder: str) -> None:  # ST-05
    cache, blocks = BlockCache(folder, 1 << 20), Blocks(1)

    def fail() -> bytes:
        raise StorageError("no")

    with pytest.raises(StorageError, match="no"):
        cache.read(xxhash.xxh3_128_digest(blocks.data[0]), BLOCK, fail)
    assert leftovers(cache) == []
    assert blocks.kept(cache) == set()
    started = time.monotonic()
    assert not blocks.read(cache, 0)
    assert time.monotonic() - started < 1  # nobody waits for the one that failed


def test_the_least_recently_used_goes_first(folder: str) -> None:
    blocks = Blocks(12)
    earlier = BlockCache(folder, 10 * BLOCK)
    for number in range(10):
        blocks.read(earlier, number)
        age(earlier, 1)
    assert blocks.read(earlier, 0)
    age(earlier, HOUR)
    now = BlockCache(folder, 10 * BLOCK)
    blocks.read(now, 10)
    assert blocks.kept(now) == set(range(11)) - {1}
    blocks.read(now, 11)
    assert blocks.kept(now) == set(range(12)) - {1, 2}


def test_a_dataset_that_does_not_fit_is_served_for_the_part_that_does(folder: str) -> None:
    # The least recently used of an epoch is just what comes next: all would be fetched in every epoch.
    cache, blocks = BlockCache(folder, 60 * BLOCK), Blocks(100)
    epochs = [sum(blocks.read(cache, number) for number in range(100)) for _ in range(4)]
    assert epochs == [0, 60, 60, 60]


def test_st10_what_an_earlier_run_left_counts(folder: str) -> None:  # ST-10
    blocks = Blocks(40)
    earlier = BlockCache(folder, 40 * BLOCK)
    for number in range(30):
        blocks.read(earlier, number)
    age(earlier, HOUR)
    later = BlockCache(folder, 10 * BLOCK)
    for number in range(25, 40):
        blocks.read(later, number)
        assert kept_bytes(later) <= 10 * BLOCK
    assert blocks.kept(later) <= set(range(25, 40))
    assert len(blocks.kept(later)) == 10


def test_st10_a_smaller_limit_holds_though_nothing_is_added(folder: str) -> None:  # ST-10
    blocks = Blocks(30)
    earlier = BlockCache(folder, 30 * BLOCK)
    for number in range(30):
        blocks.read(earlier, number)
    age(earlier, HOUR)
    later = BlockCache(folder, 10 * BLOCK)
    blocks.read(later, 29)
    assert kept_bytes(later) <= 10 * BLOCK


def test_st09_many_threads_stay_under_the_limit(folder: str) -> None:  # ST-09
    blocks = Blocks(300)
    threads = 8
    for run in range(3):
        cache = BlockCache(folder, 100 * BLOCK)
        with ThreadPoolExecutor(threads) as pool:
            for number, _ in enumerate(pool.map(lambda n, cache=cache: blocks.read(cache, n), range(300))):  # type: ignore[misc]
                if number % 10 == 0:
                    assert kept_bytes(cache) <= (100 + threads) * BLOCK
        assert 90 * BLOCK <= kept_bytes(cache) <= (100 + threads) * BLOCK, run
        age(cache, HOUR)
    assert leftovers(cache) == []


def test_room_is_counted_as_the_disk_counts(folder: str) -> None:
    cache, blocks = BlockCache(folder, 100 * 4096), Blocks(200, nbytes=10)
    for number in range(200):
        blocks.read(cache, number)
    used = sum(path.stat().st_blocks * 512 for path in (Path(folder) / "dataflow-blocks" / "blocks").iterdir())
    assert len(blocks.kept(cache)) == 100
    assert used <= 100 * 4096


def test_putting_does_not_look_through_the_folder(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks(250, nbytes=10)
    cache = BlockCache(folder, 1 << 30)
    blocks.read(cache, 0)
    looked = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(path) or scandir(path))
    for number in range(100):
        blocks.read(cache, number)
    later = BlockCache(folder, 1 << 30)  # nor does a later run
    for number in range(100, 200):
        blocks.read(later, number)
    # A full cache looks now and then, for what has not been used for long.
    full = BlockCache(folder, 200 * 4096)
    assert not any(path.endswith("/blocks") for path in looked)
    for number in range(200, 250):
        blocks.read(full, number)
    assert sum(path.endswith("/blocks") for path in looked) < 8


def test_the_count_survives_a_lost_or_damaged_log(folder: str) -> None:
    blocks = Blocks(60)
    for harm in (os.unlink, lambda path: os.truncate(path, 3), lambda path: Path(path).write_bytes(bytes(64))):
        cache = BlockCache(folder, 20 * BLOCK)
        for number in range(20):
            blocks.read(cache, number)
        age(cache, HOUR)
        harm(str(Path(folder) / "dataflow-blocks" / "usage"))
        for later in (cache, BlockCache(folder, 20 * BLOCK)):
            for number in range(20, 60):
                blocks.read(later, number)
                assert kept_bytes(later) <= 20 * BLOCK
        age(cache, HOUR)


def test_st08_a_block_that_was_evicted_is_fetched_again(folder: str) -> None:  # ST-08
    cache, blocks = BlockCache(folder, 1 << 20), Blocks(2)
    blocks.read(cache, 0)
    blocks.path(cache, 0).unlink()
    assert not blocks.read(cache, 0)
    assert blocks.read(cache, 0)


def test_a_folder_that_is_removed_meanwhile_comes_back(folder: str, caplog: pytest.LogCaptureFixture) -> None:
    cache, blocks = BlockCache(folder, 1 << 20), Blocks(2)
    blocks.read(cache, 0)
    shutil.rmtree(folder)
    assert not blocks.read(cache, 1)
    assert blocks.read(cache, 1)
    assert caplog.text == ""


def test_st06_files_of_others_are_never_touched(tmp_path: Path) -> None:  # ST-06
    mine = {tmp_path / "photos" / "a.jpg": b"1" * 9000, tmp_path / "blocks": b"2" * 9000}
    (tmp_path / "photos").mkdir()
    blocks, cache = Blocks(50), BlockCache(str(tmp_path), 10 * BLOCK)
    blocks.read(cache, 0)
    inside = tmp_path / "dataflow-blocks" / "blocks"
    mine |= {
        inside / "notes.txt": b"3" * 9000,
        inside / (blocks.name(1) + ".bak"): b"4" * 9000,
        tmp_path / "dataflow-blocks" / "partial" / "x.partial": b"5",
    }
    for path, content in mine.items():
        path.write_bytes(content)
        os.utime(path, (0, 0))
    link = inside / blocks.name(2)
    target = tmp_path / "target"
    target.write_bytes(blocks.data[2])
    link.symlink_to(target)
    os.utime(link, (0, 0), follow_symlinks=False)
    mine[target] = blocks.data[2]
    for _ in range(2):
        for number in range(3, 50):
            blocks.read(cache, number)
        age_of = BlockCache(str(tmp_path), 5 * BLOCK)
        for number in range(3, 50):
            blocks.read(age_of, number)
    assert {path: path.read_bytes() for path in mine} == mine
    assert link.is_symlink()


def test_st06_a_folder_of_this_name_that_is_not_ours_is_refused(tmp_path: Path) -> None:  # ST-06
    (tmp_path / "dataflow-blocks").mkdir()
    (tmp_path / "dataflow-blocks" / "thesis.tex").write_text("x")
    with pytest.raises(OptionError, match=r"dataflow-blocks is no cache of dataflow"):
        BlockCache(str(tmp_path), 1 << 20).prepare()
    blocks = Blocks(1)
    assert not blocks.read(BlockCache(str(tmp_path), 1 << 20), 0)  # a process that was not told reads on without it
    assert os.listdir(tmp_path / "dataflow-blocks") == ["thesis.tex"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OptionError, match=r"cannot be used: .*Not a directory.*Give a folder that can be written to"):
        BlockCache(str(tmp_path / "file" / "cache"), 1 << 20).prepare()
    with pytest.raises(OptionError, match="local disk"):
        BlockCache("s3://bucket/cache", 1 << 20)


def test_sg09_no_descriptor_stays_open(folder: str) -> None:  # SG-09
    cache, blocks = BlockCache(folder, 1 << 30), Blocks(500, nbytes=100)
    before = len(os.listdir("/proc/self/fd"))
    for number in [*range(500), *range(500)]:
        blocks.read(cache, number)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_killed_processes_left_is_removed_when_it_is_old(folder: str) -> None:
    blocks, cache = Blocks(2), BlockCache(folder, 1 << 20)
    blocks.read(cache, 0)
    partial = Path(folder) / "dataflow-blocks" / "partial"
    for name in (blocks.name(1), f"{blocks.name(1)}.{'0' * 16}", f"usage.{'0' * 16}"):
        (partial / name).write_bytes(b"x")
    BlockCache(folder, 1 << 20).prepare()
    assert len(os.listdir(partial)) == 3  # somebody may be at it
    age(cache, HOUR)
    BlockCache(folder, 1 << 20).prepare()
    assert os.listdir(partial) == []


def test_a_claim_is_waited_for_but_not_for_ever(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cache_module, cache_folder):
        monkeypatch.setattr(module, "CLAIM_SECONDS", 0.5)
    blocks, cache = Blocks(2), BlockCache(folder, 1 << 20)
    blocks.read(cache, 0)
    (Path(folder) / "dataflow-blocks" / "partial" / blocks.name(1)).touch()
    started = time.monotonic()
    assert not blocks.read(cache, 1)
    assert 0.3 < time.monotonic() - started < 3
    assert leftovers(cache) == []


def test_threads_that_want_one_block_fetch_it_once(folder: str) -> None:
    cache, blocks = BlockCache(folder, 1 << 20), Blocks(20)
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            assert sum(pool.map(lambda _, n=number: blocks.read(cache, n), range(8))) == 7  # type: ignore[misc]
    assert blocks.fetched == [1] * 20


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    place = tmp_path / "tiny"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system needs root and the right to mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_sg11_a_full_disk_is_no_error(tiny_disk: Path, caplog: pytest.LogCaptureFixture) -> None:  # SG-11
    cache, blocks = BlockCache(str(tiny_disk), 1 << 30), Blocks(40, nbytes=100_000)
    epochs = [sum(blocks.read(cache, number) for number in range(40)) for _ in range(3)]
    assert epochs[0] == 0
    assert epochs[1] == epochs[2] >= 17  # of the 20 that the disk holds
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert str(tiny_disk) in warning
    assert "102400 bytes" in warning
    assert leftovers(cache) == []
    free = os.statvfs(tiny_disk)
    assert free.f_bavail * free.f_bsize > 0  # others need some, too
    again = BlockCache(str(tiny_disk), 1 << 30)
    for number in range(40):
        blocks.read(again, number)
    assert sum(blocks.read(again, number) for number in range(40)) >= 15


def test_sg11_a_disk_that_others_have_filled(tiny_disk: Path, caplog: pytest.LogCaptureFixture) -> None:  # SG-11
    cache, blocks = BlockCache(str(tiny_disk / "cache"), 1 << 30), Blocks(3, nbytes=100_000)
    cache.prepare()
    with suppress(OSError), open(tiny_disk / "full", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert [blocks.read(cache, number) for number in (0, 1, 2, 0)] == [False] * 4
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "100000 bytes" in warning
    assert "No space left on device" in warning
    assert leftovers(cache) == []
    (tiny_disk / "full").unlink()
    later = BlockCache(str(tiny_disk / "cache"), 1 << 30)
    assert [blocks.read(later, number) for number in (0, 0)] == [False, True]


def test_sg12_processes_that_fill_a_disk_together(tiny_disk: Path) -> None:  # SG-12
    blocks = Blocks(60, nbytes=100_000)
    cache = BlockCache(str(tiny_disk), 1 << 30)
    with get_context("fork").Pool(4) as pool:
        for _ in range(3):
            pool.starmap(blocks.read, [(cache, number) for number in range(60)], chunksize=1)
    assert leftovers(cache) == []
    assert all(path.stat().st_size == 100_000 for path in (tiny_disk / "dataflow-blocks" / "blocks").iterdir())
    assert len(blocks.kept(cache)) >= 8


def test_a_limit_on_the_size_of_files_is_no_error(folder: str) -> None:
    script = (
        "import logging, resource, xxhash\n"
        "from dataflow.storage.cache import BlockCache\n"
        "logging.basicConfig()\n"
        f"cache = BlockCache({folder!r}, 1 << 30)\n"
        "cache.prepare()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "data = bytes(20_000)\n"
        "for _ in range(3):\n"
        "    got, hit = cache.read(xxhash.xxh3_128_digest(data), len(data), lambda: data)\n"
        "    assert got == data and not hit\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("WARNING") == 1
    assert "File too large" in done.stderr
    assert leftovers(BlockCache(folder, 1)) == []


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [(5, 5), ("0", 0), ("200GiB", 200 << 30), ("1.5 TB", 1_500_000_000_000), ("10k", 10_000), ("64 mib", 64 << 20)],
)
def test_sizes_as_people_write_them(text: int | str, nbytes: int) -> None:
    assert parse_size(text, "cache_limit") == nbytes


@pytest.mark.parametrize("text", ["", "lots", "-1", -1, 1.5, True, None, "5 iB", "1e9", "GiB"])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(OptionError, match=r"cache_limit is .*'200GiB'"):
        parse_size(text, "cache_limit")  # type: ignore[arg-type]


def test_sizes_for_people() -> None:
    sizes = [format_size(n) for n in (0, 1023, 1024, 3 << 19, 200 << 30, 5 << 50)]
    assert sizes == ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 MiB", "200.0 GiB", "5120.0 TiB"]
