"""What every store promises, on local files, on a real S3 server, and on both through fsspec."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dataflow.errors import OptionError, StorageError, StorageNotFoundError
from dataflow.storage import Entry, Store, open_store

DATA = bytes(range(256)) * 64
NAMES = ["a/b.bin", "a-b.bin", "deep/er/x.bin", "sp ace/ü+%41#?.bin", "top.bin"]


def test_reads_exactly_the_range(store: Store) -> None:
    store.put_atomic("a/x.bin", DATA)
    for start, length in [(0, 1), (3, 1000), (len(DATA) - 1, 1), (0, len(DATA)), (7, 0)]:
        assert bytes(store.read_range("a/x.bin", start, length)) == DATA[start : start + length]


def test_reads_many_ranges_in_the_order_given(store: Store) -> None:
    store.put_atomic("x.bin", DATA)
    ranges = [(9000, 10), (0, 5), (0, 0), (5, 5), (3, 4000), (9000, 10)]
    pieces = store.read_ranges("x.bin", ranges)
    assert [bytes(piece) for piece in pieces] == [DATA[start : start + length] for start, length in ranges]
    assert store.read_ranges("x.bin", []) == []


def test_buffers_support_the_buffer_protocol_without_a_copy(store: Store) -> None:
    store.put_atomic("x.bin", DATA)
    view = memoryview(store.read_range("x.bin", 0, 100))
    assert (view.nbytes, view.itemsize, view.contiguous) == (100, 1, True)


def test_lists_everything_below_a_folder_sorted_by_path(store: Store) -> None:
    for name in NAMES:
        store.put_atomic(name, name.encode())
    entries = list(store.list())
    assert [entry.path for entry in entries] == sorted(NAMES)
    assert [entry.size for entry in entries] == [len(name.encode()) for name in sorted(NAMES)]
    assert [entry.path for entry in store.list("a")] == ["a/b.bin"]
    assert [entry.path for entry in store.list("deep/")] == ["deep/er/x.bin"]
    for name in NAMES:
        assert bytes(store.read_range(name, 0, len(name.encode()))) == name.encode()


def test_a_listing_of_nothing_is_empty(store: Store) -> None:
    assert list(store.list()) == []
    assert list(store.list("no/where")) == []


def test_entry_agrees_with_the_listing(store: Store) -> None:
    store.put_atomic("a/x.bin", DATA)
    entry = store.entry("a/x.bin")
    assert (entry.path, entry.size, store.size("a/x.bin")) == ("a/x.bin", len(DATA), len(DATA))
    assert [entry.path for entry in store.list()] == ["a/x.bin"]
    assert entry.version


def test_st14_version_changes_when_an_object_is_replaced(store: Store) -> None:
    store.put_atomic("x.bin", DATA)
    before = store.entry("x.bin"), next(store.list())
    assert (store.entry("x.bin"), next(store.list())) == before
    store.put_atomic("x.bin", DATA[::-1])
    after = store.entry("x.bin"), next(store.list())
    assert before[0].version != after[0].version
    assert before[1].version != after[1].version
    assert after[0].size == len(DATA)


@pytest.mark.parametrize("size", [0, 100, 20 << 20], ids=["empty", "small", "multipart"])
def test_puts_a_local_file(store: Store, tmp_path: Path, size: int) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(os.urandom(size))
    store.put_atomic("big/x.bin", source)
    assert bytes(store.read_range("big/x.bin", 0, size)) == source.read_bytes()
    assert [(entry.path, entry.size) for entry in store.list()] == [("big/x.bin", size)]


def test_puts_a_memoryview_and_replaces(store: Store) -> None:
    store.put_atomic("x.bin", b"old content")
    store.put_atomic("x.bin", memoryview(DATA)[10:20])
    assert bytes(store.read_range("x.bin", 0, 10)) == DATA[10:20]
    assert store.size("x.bin") == 10


def test_a_put_of_a_missing_local_file_leaves_nothing(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"write .*x\.bin"):
        store.put_atomic("x.bin", tmp_path / "missing")
    assert list(store.list()) == []


def test_delete_is_idempotent(store: Store) -> None:
    store.put_atomic("a/x.bin", DATA)
    store.delete("a/x.bin")
    store.delete("a/x.bin")
    assert list(store.list()) == []


def test_missing_objects_are_named(store: Store) -> None:
    for read in (
        lambda: store.size("no/such.bin"),
        lambda: store.read_range("no/such.bin", 0, 10),
        lambda: store.read_ranges("no/such.bin", [(0, 10)]),
    ):
        with pytest.raises(StorageNotFoundError, match=r"no/such\.bin") as caught:
            read()
        assert isinstance(caught.value, FileNotFoundError)


def test_a_range_beyond_the_end_is_an_error_that_says_so(store: Store) -> None:
    store.put_atomic("x.bin", DATA)
    with pytest.raises(StorageError, match=rf"16380-16399 of .*x\.bin.* {len(DATA)}"):
        store.read_range("x.bin", len(DATA) - 4, 20)
    with pytest.raises(StorageError, match=r"x\.bin"):
        store.read_range("x.bin", len(DATA) + 100, 1)
    with pytest.raises(StorageError, match=r"x\.bin"):
        store.read_ranges("x.bin", [(0, 4), (len(DATA) - 4, 20)])


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./x", "a/", "nul\0"])
def test_paths_outside_the_root_are_refused(store: Store, path: str) -> None:
    for use in (
        lambda: store.size(path),
        lambda: store.read_range(path, 0, 1),
        lambda: store.put_atomic(path, b""),
        lambda: store.delete(path),
    ):
        with pytest.raises(OptionError, match="relative path"):
            use()


def test_negative_ranges_are_refused(store: Store) -> None:
    for start, length in [(-1, 5), (0, -5)]:
        with pytest.raises(OptionError, match="negative"):
            store.read_range("x.bin", start, length)


def test_pickles_as_its_url(store: Store) -> None:
    store.put_atomic("x.bin", DATA)
    store.read_range("x.bin", 0, 1)
    pickled = pickle.dumps(store)
    copy: Store = pickle.loads(pickled)
    assert copy.url == store.url
    assert bytes(copy.read_range("x.bin", 5, 10)) == DATA[5:15]
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        secret = os.environ.get(name)
        assert secret is None or secret.encode() not in pickled


def test_many_threads_may_read_at_once(store: Store) -> None:
    store.put_atomic("x.bin", DATA)

    def read(start: int) -> bool:
        return bytes(store.read_range("x.bin", start, 100)) == DATA[start : start + 100]

    with ThreadPoolExecutor(store.concurrency) as threads:
        assert all(threads.map(read, range(200)))


def test_a_store_opened_below_another_sees_the_same_objects(store: Store) -> None:
    store.put_atomic("a/b/x.bin", DATA)
    below = open_store(f"{store.url}/a/")
    assert [entry.path for entry in below.list()] == ["b/x.bin"]
    assert isinstance(next(below.list()), Entry)
    assert bytes(below.read_range("b/x.bin", 1, 2)) == DATA[1:3]
