from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataflow import _native


def ends_of(*sizes: int) -> np.ndarray:
    return np.cumsum(np.array(sizes, np.int64), dtype=np.int64)


def names_of(*names: str) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=6))
def test_files_lie_one_behind_the_other(tmp_path: Path, contents: list[bytes]) -> None:
    for number, data in enumerate(contents):
        (tmp_path / str(number)).write_bytes(data)
    names = names_of(*(str(number) for number in range(len(contents))))
    buffer = np.zeros(2000, np.uint8)
    assert _native.read_files(bytes(tmp_path), names, ends_of(*map(len, contents)), buffer) == len(contents)
    whole = b"".join(contents)
    assert buffer[: len(whole)].tobytes() == whole
    assert not buffer[len(whole) :].any()


def test_it_stops_at_the_first_file_that_is_missing_or_too_short(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"aaa")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b").write_bytes(b"bb")
    buffer = np.zeros(8, np.uint8)
    for name in ("missing", "folder", "folder/b/c"):
        names = names_of("a", name, "folder/b")
        assert _native.read_files(bytes(tmp_path), names, ends_of(3, 2, 2), buffer) == 1
    assert _native.read_files(bytes(tmp_path), names_of("a", "folder/b", "a"), ends_of(3, 3, 1), buffer) == 1
    assert _native.read_files(bytes(tmp_path / "nowhere"), names_of("a"), ends_of(3), buffer) == 0
    assert buffer.tobytes().startswith(b"aaa")


def test_only_the_first_bytes_of_a_longer_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abcdef")
    buffer = np.zeros(4, np.uint8)
    assert _native.read_files(bytes(tmp_path), names_of("a", "a"), ends_of(3, 1), buffer) == 2
    assert buffer.tobytes() == b"abca"


@pytest.mark.parametrize(
    ("names", "ends", "problem"),
    [
        (names_of("a"), ends_of(3, 1), "a name"),
        (b"a", ends_of(3), "a name"),
        (names_of("a", "b"), ends_of(3), "a name"),
        (names_of("a", "b"), np.array([3, 2]), "must rise"),
        (names_of("a"), np.array([-1]), "must rise"),
        (names_of("a"), ends_of(5), "within the buffer"),
    ],
)
def test_bad_arguments(tmp_path: Path, names: bytes, ends: np.ndarray, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        _native.read_files(bytes(tmp_path), names, ends, np.zeros(4, np.uint8))


def test_other_kinds_of_arguments(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="int64"):
        _native.read_files(bytes(tmp_path), names_of("a"), np.array([1], np.int32), np.zeros(4, np.uint8))
    with pytest.raises((TypeError, BufferError)):
        _native.read_files(bytes(tmp_path), names_of("a"), ends_of(1), b"1234")
