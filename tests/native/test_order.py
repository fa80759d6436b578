from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow import _native

WORD = 2**64 - 1
GOLDEN_RATIO = 0x9E3779B97F4A7C15
keys = st.integers(0, WORD)


def mix64(z: int) -> int:
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & WORD
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & WORD
    return z ^ (z >> 31)


def feistel(x: int, n: int, key: int) -> int:
    half = 0
    while 4**half < n:
        half += 1
    mask = (1 << half) - 1
    while True:
        a, b = x >> half, x & mask
        for i in range(8):
            round_key = mix64((key + (i + 1) * GOLDEN_RATIO) & WORD)
            a, b = b, a ^ ((mix64((b + round_key) & WORD) >> 17) & mask)
        x = (a << half) | b
        if x < n:
            return x


def rows_by_hash(n: int, key: int) -> list[int]:
    return sorted(range(n), key=lambda row: mix64((key + (row + 1) * GOLDEN_RATIO) & WORD))


@pytest.mark.parametrize(
    ("value", "mixed"), [(0, 0), (1, 6238072747940578789), (9223372036854775808, 2720858781877447050)]
)
def test_mix64_reference(value: int, mixed: int) -> None:
    assert _native.mix64(value) == mixed


@pytest.mark.parametrize(
    ("n", "key", "image"),
    [
        (1, 0, [0]),
        (2, 1, [1, 0]),
        (5, 1, [4, 0, 1, 2, 3]),
        (16, 2, [9, 10, 2, 14, 6, 8, 1, 11, 4, 0, 12, 13, 5, 7, 3, 15]),
        (17, 3, [0, 7, 1, 13, 8, 12, 14, 2, 6, 11, 9, 3, 4, 5, 10, 16, 15]),
    ],
)
def test_permute_reference(n: int, key: int, image: list[int]) -> None:
    assert _native.permute(np.arange(n), n, key).tolist() == image
    assert _native.unpermute(np.array(image), n, key).tolist() == list(range(n))


@pytest.mark.parametrize(
    ("n", "key", "position", "image"),
    [
        (10**6, 1, 999999, 211672),
        (10**12, 1, 123456789012, 18695229368),
        (2**62 + 1, 1, 5, 1181621129534315363),
    ],
)
def test_permute_reference_of_large_ranges(n: int, key: int, position: int, image: int) -> None:
    assert _native.permute(np.array([position]), n, key).tolist() == [image]
    assert _native.unpermute(np.array([image]), n, key).tolist() == [position]


@given(n=st.integers(1, 3000), key=keys)
def test_permute_is_a_permutation_with_an_inverse(n: int, key: int) -> None:
    image = _native.permute(np.arange(n), n, key)
    assert image.dtype == np.int64
    assert np.array_equal(np.sort(image), np.arange(n))
    assert np.array_equal(_native.unpermute(image, n, key), np.arange(n))


@given(data=st.data(), n=st.integers(1, 2**63), key=keys)
def test_permute_agrees_with_the_definition(data: st.DataObject, n: int, key: int) -> None:
    positions = data.draw(st.lists(st.integers(0, n - 1), max_size=20))
    image = _native.permute(np.array(positions, dtype=np.uint64), n, key)
    assert image.tolist() == [feistel(position, n, key) for position in positions]
    assert _native.unpermute(image, n, key).tolist() == positions


@pytest.mark.parametrize("bad", [-1, 10, 2**62])
def test_permute_refuses_positions_outside(bad: int) -> None:
    positions = np.array([3, 4, bad])
    with pytest.raises(ValueError, match=rf"position {bad} at index 2 is outside 0\.\.9"):
        _native.permute(positions, 10, 0)
    with pytest.raises(ValueError, match="index 2"):
        _native.unpermute(positions, 10, 0)


def test_permute_refuses_what_is_not_a_range_or_not_integers() -> None:
    with pytest.raises(ValueError, match=r"n must be 1 to 2\*\*63"):
        _native.permute(np.arange(1), 0, 0)
    with pytest.raises(ValueError, match=r"n must be 1 to 2\*\*63"):
        _native.permute(np.arange(1), 2**63 + 1, 0)
    with pytest.raises(TypeError, match="positions must be"):
        _native.permute(np.zeros(3, dtype=np.int32), 10, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="positions must be a C-contiguous array"):
        _native.permute(np.arange(10)[::2], 10, 0)


@pytest.mark.parametrize(
    ("n", "key", "image"),
    [
        (0, 0, []),
        (1, 0, [0]),
        (7, 1, [4, 3, 0, 1, 5, 6, 2]),
        (16, 2, [15, 8, 4, 10, 5, 13, 11, 12, 0, 2, 6, 9, 7, 1, 3, 14]),
    ],
)
def test_row_permutation_reference(n: int, key: int, image: list[int]) -> None:
    rows = _native.row_permutation(n, key)
    assert rows.dtype == np.int32
    assert rows.tolist() == image


@given(n=st.integers(0, 400), key=keys)
def test_row_permutation_agrees_with_the_definition(n: int, key: int) -> None:
    assert _native.row_permutation(n, key).tolist() == rows_by_hash(n, key)


@settings(max_examples=20)
@given(n=st.integers(10_000, 300_000), key=keys)
def test_row_permutation_of_large_blocks_sorts_the_hashes(n: int, key: int) -> None:
    with np.errstate(over="ignore"):
        z = np.uint64(key) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(GOLDEN_RATIO)
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    assert np.array_equal(_native.row_permutation(n, key), np.argsort(z, kind="stable"))


@given(blocks=st.lists(st.tuples(st.integers(0, 60), keys), max_size=20))
def test_row_permutations_are_those_of_each_block(blocks: list[tuple[int, int]]) -> None:
    counts = np.array([count for count, _ in blocks], dtype=np.int64)
    block_keys = np.array([key for _, key in blocks], dtype=np.uint64)
    expected = [row for count, key in blocks for row in _native.row_permutation(count, key).tolist()]
    assert _native.row_permutations(counts, block_keys).tolist() == expected


@pytest.mark.parametrize("bad", [-1, 2**31, 2**62, -(2**63)])
def test_row_permutations_refuse_impossible_counts(bad: int) -> None:
    with pytest.raises(ValueError, match=f"count {bad} at index 1"):
        _native.row_permutations(np.array([1, bad]), np.zeros(2, dtype=np.uint64))
    with pytest.raises(ValueError, match=f"count {bad}"):
        _native.row_permutation(bad, 0)


def test_row_permutations_refuse_lists_of_differing_length() -> None:
    with pytest.raises(ValueError, match="2 counts, but 1 keys"):
        _native.row_permutations(np.array([1, 2]), np.zeros(1, dtype=np.uint64))


def test_other_threads_run_during_a_call() -> None:
    progress = 0
    done = threading.Event()

    def count() -> None:
        nonlocal progress
        while not done.is_set():
            progress += 1
            time.sleep(0)  # hand over the GIL at once, so that a held one would show as no progress

    counter = threading.Thread(target=count)
    counter.start()
    try:
        before = progress
        _native.row_permutation(3_000_000, 1)
        assert progress > before + 100
    finally:
        done.set()
        counter.join()
