from __future__ import annotations

import ctypes
import io
import mmap
import random

import numpy as np
import pytest
from PIL import Image

from dataflow import _native
from tests.native.jpegs import Array, column, decode, encoded, headers, kinds, photographs, pixels

pytestmark = pytest.mark.skipif(
    not _native.decode_available(),
    reason="built without libjpeg-turbo: apt-get install libjpeg-dev, then make clean setup",
)


def test_failures_are_listed_and_others_are_unharmed() -> None:  # IM-01 IM-08 IM-09
    good = photographs()["china"]
    bad = {
        1: (good[: len(good) // 2], "corrupt JPEG data: Premature end of JPEG file"),
        2: (b"", "corrupt JPEG data: Premature end of JPEG file"),
        4: (b"<html>404</html>", "corrupt JPEG data: Not a JPEG file"),
        6: (encoded(pixels().convert("CMYK")), "JPEG with 4 components: only 1 and 3 are decoded here"),
        7: (good[:-4339], "corrupt JPEG data: Premature end of JPEG file"),
    }
    files = [bad[position][0] if position in bad else good for position in range(9)]
    out, failed = decode(files, [(0, 0, 427, 640)] * len(files), (50, 60), threads=2)
    assert set(failed) == set(bad)
    for position, (_, message) in bad.items():
        assert failed[position].startswith(message)
    expected, _ = decode([good], [(0, 0, 427, 640)], (50, 60))
    for position in {0, 3, 5, 8}:
        np.testing.assert_array_equal(out[position], expected[0])


def test_damage_in_the_scan_is_a_failure() -> None:  # IM-02
    file = bytearray(photographs()["flower"])
    middle = len(file) // 2
    file[middle : middle + 300] = b"\xff\xd5" * 150
    _, failed = decode([bytes(file)], [(0, 0, 427, 640)], (50, 60))
    assert failed[0].startswith("corrupt JPEG data: ")


def test_windows_outside_the_picture_are_refused() -> None:
    file = kinds()["4:4:4"]
    cuts = [(0, 0, 149, 211), (-1, 0, 9, 9), (0, -1, 9, 9), (0, 0, 0, 9), (0, 0, 9, 0), (1, 0, 149, 9), (0, 1, 9, 211)]
    extremes = [(2**31 - 1, 0, 2**31 - 1, 9), (0, 0, 2**31 - 1, 2**31 - 1), (-(2**31), 0, 2**31 - 1, 9), (0, 0, -5, 9)]
    _, failed = decode([file] * 11, cuts + extremes, (8, 8))
    assert sorted(failed) == list(range(1, 11))
    assert failed[5] == "the window of 149 x 9 at 1 x 0 is not within the 149 x 211 pixels of the JPEG"


def test_a_file_without_tables_is_not_decoded_with_those_of_another() -> None:
    good = kinds()["4:4:4"]
    tables = good.index(b"\xff\xdb")
    length = int.from_bytes(good[tables + 2 : tables + 4], "big")
    _, failed = decode([good, good[:tables] + good[tables + 2 + length :]], [(0, 0, 9, 9)] * 2, (8, 8))
    assert list(failed) == [1]


@pytest.mark.parametrize("progressive", [False, True])
def test_claimed_sizes_take_no_memory(progressive: bool) -> None:  # IM-07
    file = bytearray(encoded(Image.new("RGB", (16, 16)), progressive=progressive))
    frame = file.index(b"\xff\xc2" if progressive else b"\xff\xc0")
    for size, message in (
        (65_000, "at most 178956970 are decoded"),
        (13_000, "bytes cannot hold 13000 x 13000 pixels"),
    ):
        file[frame + 5 : frame + 9] = size.to_bytes(2, "big") * 2
        assert headers([bytes(file)])[0][:2] == [size, size]
        _, failed = decode([bytes(file)], [(0, 0, size, size)], (8, 8))
        assert message in failed[0]


def test_endless_scans_are_given_up() -> None:
    file = encoded(pixels().resize((640, 480)), progressive=True)
    last = file.rindex(b"\xff\xda")
    _, failed = decode([file[:-2] + file[last:-2] * 200 + file[-2:]], [(0, 0, 480, 640)], (8, 8))
    assert list(failed) == [0]


def before_a_guard(file: bytes) -> Array:
    """A copy right before a page that nobody may read: libjpeg has no sanitizer in it."""
    pages = -(-len(file) // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    array = np.frombuffer(memory, np.uint8)
    guard = array.ctypes.data + pages * mmap.PAGESIZE
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), mmap.PAGESIZE, 0) == 0
    place = array[pages * mmap.PAGESIZE - len(file) : pages * mmap.PAGESIZE]
    place[:] = np.frombuffer(file, np.uint8)
    return place


def mutated(file: bytes, generator: random.Random) -> bytes:
    changed = bytearray(file)
    kind = generator.random()
    if kind < 0.1:
        return bytes(changed[: generator.randrange(len(changed))])
    # Most of what a decoder decides on lies in the first bytes.
    end = min(700, len(changed)) if kind < 0.7 else len(changed)
    for _ in range(generator.choice((1, 1, 2, 3, 8))):
        at = generator.randrange(min(end, len(changed)))
        match generator.randrange(4):
            case 0:
                changed[at] = generator.randrange(256)
            case 1:
                changed[at] ^= 1 << generator.randrange(8)
            case 2:
                changed[at : at + 1] = bytes([0xFF, generator.randrange(0xC0, 0x100)])
            case _:
                del changed[at : at + generator.randrange(1, 20)]
    return bytes(changed)


def check_mutations(count: int, seed: int) -> None:
    generator = random.Random(seed)
    small = [*kinds().values(), encoded(pixels().resize((61, 47)).convert("CMYK"))]
    decoded = 0
    for _ in range(count // 20):
        files = [mutated(generator.choice(small), generator) for _ in range(20)]
        found = headers(files)
        cuts = []
        for height, width, _kind, _orientation in found:
            top, left = generator.randrange(max(height, 1)), generator.randrange(max(width, 1))
            cuts.append(
                (
                    top,
                    left,
                    max(1, generator.randrange(height - top + 1)),
                    max(1, generator.randrange(width - left + 1)),
                )
            )
        size = generator.choice(((1, 1), (8, 5), (32, 32), (100, 3)))
        values = [before_a_guard(file) for file in files]
        offsets = [np.array([0, len(file)], np.int64) for file in files]
        out = np.zeros((20, 3, *size), np.uint8)
        places = np.arange(20, dtype=np.int64)
        failed = _native.decode_jpegs(
            values,
            offsets,
            np.arange(20, dtype=np.int32),
            np.zeros(20, np.int64),
            places,
            np.array(cuts, np.int32),
            np.zeros(20, bool),
            out,
            None,
            None,
            False,
            2,
        )
        assert all(reason for _, reason in failed)
        decoded += 20 - len(failed)
    assert 0.02 < decoded / count < 0.98


def test_mutated_files_fail_or_decode() -> None:
    check_mutations(400, seed=1)


@pytest.mark.soak
def test_mutated_files_fail_or_decode_ten_thousand_times() -> None:
    check_mutations(10_000, seed=2)


def test_mutations_do_no_harm_to_the_next_file() -> None:
    generator = random.Random(3)
    good = kinds()["progressive 4:2:0"]
    image = Image.open(io.BytesIO(good))
    cut = (0, 0, image.height, image.width)
    expected, _ = decode([good], [cut], (40, 40))
    for _ in range(30):
        out, failed = decode([mutated(good, generator), good], [(0, 0, 1, 1), cut], (40, 40))
        assert 1 not in failed
        np.testing.assert_array_equal(out[1], expected[0])


def test_gathering_checks_come_first() -> None:
    values, offsets, block, row = column([kinds()["grey"]])
    with pytest.raises(ValueError, match="position 0: block 5, row 0: there are 1 blocks"):
        _native.decode_jpegs(
            values,
            offsets,
            block + 5,
            row,
            np.zeros(0, np.int64),
            np.zeros((0, 4), np.int32),
            np.zeros(0, bool),
            np.zeros((1, 3, 8, 8), np.uint8),
            None,
            None,
            False,
            1,
        )
