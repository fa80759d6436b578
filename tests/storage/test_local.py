"""What only local files have: descriptors, links, half-written files and processes that die."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dataflow.errors import OptionError, StorageError, StorageNotFoundError, StorageRangeError
from dataflow.storage import open_store
from dataflow.storage.local import LocalStore


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_sg09_thousands_of_files_and_stores_keep_no_descriptor(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"{number}.bin").write_bytes(b"%04d" % number)
    before = open_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        stores = [open_store(str(tmp_path)) for _ in range(300)]
        for number in range(2000):
            assert stores[number % 300].read_range(f"{number}.bin", 0, 4) == b"%04d" % number
        assert open_descriptors() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_st05_a_writer_killed_half_way_leaves_nothing_to_see(tmp_path: Path) -> None:
    # The source is a pipe that never ends, so that the write is certainly half done when the process is killed.
    source = tmp_path / "source"
    os.mkfifo(source)
    target = tmp_path / "target"
    program = (
        "import sys; from pathlib import Path; from dataflow.storage import open_store;"
        "open_store(sys.argv[1]).put_atomic('x.bin', Path(sys.argv[2]))"
    )
    writer = subprocess.Popen([sys.executable, "-c", program, str(target), str(source)])
    with open(source, "wb", buffering=0) as pipe:
        for _ in range(64):
            pipe.write(bytes(1 << 20))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    store = open_store(str(target))
    assert list(target.iterdir())  # There is a half-written file ...
    assert list(store.list()) == []  # ... that nobody sees.
    store.put_atomic("x.bin", b"whole")
    assert [(entry.path, entry.size) for entry in store.list()] == [("x.bin", 5)]


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(StorageError, match=r"write .*/x\.bin: File too large"):
            store.put_atomic("x.bin", bytes(2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"write .*/file/x\.bin"):
        open_store(str(tmp_path)).put_atomic("file/x.bin", b"data")


def test_links_are_followed_and_cycles_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.bin").write_bytes(b"data")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "root" / "file.bin").symlink_to(tmp_path / "real" / "x.bin")
    (tmp_path / "real" / "cycle").symlink_to(tmp_path / "real")
    (tmp_path / "root" / "dangling").symlink_to(tmp_path / "nowhere")
    entries = list(open_store(str(tmp_path / "root")).list())
    assert [(entry.path, entry.size) for entry in entries] == [("file.bin", 4), ("folder/x.bin", 4)]


def test_new_files_get_the_usual_permissions(tmp_path: Path) -> None:
    open_store(str(tmp_path)).put_atomic("x.bin", b"data")
    (tmp_path / "usual").write_bytes(b"data")
    assert (tmp_path / "x.bin").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_many_files_are_read_into_one_buffer(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    names = ["a b/é", os.fsdecode(b"not-utf8-\xff"), "empty"]
    contents = [b"first", b"second", b""]
    for name, data in zip(names, contents, strict=True):
        (tmp_path / name).write_bytes(data)
    buffer = bytearray(11)
    ends = np.cumsum([len(data) for data in contents])
    LocalStore(str(tmp_path)).read_files(names, ends, memoryview(buffer))
    assert bytes(buffer) == b"firstsecond"


def test_the_file_that_cannot_be_read_among_many_is_named(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"123")
    ends = np.array([3, 7, 10])
    with pytest.raises(StorageRangeError, match=r"b: the file ends at byte 3"):
        store.read_files(["a", "b", "c"], ends, memoryview(bytearray(10)))
    (tmp_path / "b").unlink()
    with pytest.raises(StorageNotFoundError, match="/b: "):
        store.read_files(["a", "b", "c"], ends, memoryview(bytearray(10)))
    with pytest.raises(OptionError, match="no path inside"):
        store.read_files(["a", "../b", "c"], ends, memoryview(bytearray(10)))
