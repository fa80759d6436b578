from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dataflow import _native
from tests.native.jpegs import column, encoded, headers, kinds, photographs, pixels

ORIENTATION = 0x0112


@pytest.mark.parametrize("name", list(photographs()))
def test_photographs_have_the_size_that_pillow_sees(name: str) -> None:
    width, height = Image.open(io.BytesIO(photographs()[name])).size
    assert headers([photographs()[name]]) == [[height, width, 1, 1]]


def test_all_kinds_are_taken() -> None:
    files = list(kinds().values())
    sizes = [Image.open(io.BytesIO(file)).size for file in files]
    assert headers(files) == [[height, width, 1, 1] for width, height in sizes]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("byte_order", ["II", "MM"])
def test_orientation_is_that_of_exif(orientation: int, byte_order: str) -> None:  # IM-05
    endian = "<" if byte_order == "II" else ">"
    entries = [(0x0100, 4, 1, 40), (ORIENTATION, 3, 1, orientation if byte_order == "II" else orientation << 16)]
    exif = byte_order.encode() + struct.pack(endian + "HIH", 42, 8, len(entries))
    exif += b"".join(struct.pack(endian + "HHII", *entry) for entry in entries) + bytes(4)
    file = encoded(Image.new("RGB", (40, 30)), exif=b"Exif\0\0" + exif)
    assert Image.open(io.BytesIO(file)).getexif()[ORIENTATION] == orientation
    assert headers([file]) == [[30, 40, 1, orientation]]


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_none(value: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = value
    assert headers([encoded(Image.new("RGB", (40, 30)), exif=exif)]) == [[30, 40, 1, 1]]


def test_other_files_are_not_taken() -> None:  # IM-04 IM-08 IM-09
    image = pixels().resize((40, 30))
    files = [encoded(image.convert("CMYK")), b"", b"\xff", b"\xff\xd8", b"\xff\xd8\xff\xd9", b"<html>404</html>"]
    for form in ("PNG", "WEBP", "GIF", "BMP", "TIFF"):
        file = io.BytesIO()
        image.save(file, form)
        files.append(file.getvalue())
    found = headers(files)
    assert found[0] == [30, 40, 0, 1]
    assert found[1:] == [[0, 0, 0, 1]] * (len(files) - 1)


def test_twelve_bits_arithmetic_and_lossless_are_not_taken() -> None:
    file = encoded(Image.new("RGB", (40, 30)))
    frame = file.index(b"\xff\xc0")
    for code in (0xC3, 0xC5, 0xC7, 0xC9, 0xCA, 0xCB, 0xCF):
        assert headers([file[:frame] + bytes([0xFF, code]) + file[frame + 2 :]]) == [[30, 40, 0, 1]]
    assert headers([file[: frame + 4] + b"\x0c" + file[frame + 5 :]]) == [[30, 40, 0, 1]]


@pytest.mark.parametrize("keep", [0.999, 0.5, 0.1])
def test_a_file_that_is_cut_off_is_not_taken(keep: float) -> None:  # IM-01
    file = photographs()["china"]
    assert headers([file[: int(len(file) * keep)]])[0][2] == 0


def test_data_after_the_end_is_allowed() -> None:
    file = photographs()["flower"]
    assert headers([file + bytes(1000)])[0][2] == 1
    assert headers([file + bytes(100_000)])[0][2] == 0


def test_every_prefix_is_read_within_its_bounds() -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    file = encoded(Image.new("RGB", (16, 8)), exif=exif)
    # Each in memory of its own, so that a sanitizer sees what lies beyond it.
    for size in range(len(file)):
        offsets = np.array([0, size], np.int32)
        found = _native.jpeg_headers(
            [np.array(list(file[:size]), np.uint8)], [offsets], np.zeros(1, np.int32), np.zeros(1, np.int64)
        )
        assert found[0, 2] == 0
    assert headers([file]) == [[8, 16, 1, 6]]


@given(st.data())
def test_any_bytes_are_read_within_their_bounds(data: st.DataObject) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 3
    file = bytearray(encoded(Image.new("RGB", (16, 8)), exif=exif))
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(file) - 1), st.integers(0, 255)), max_size=8)):
        file[at] = value
    for height, width, kind, orientation in headers([bytes(file)]):
        assert 0 <= height < 1 << 16
        assert 0 <= width < 1 << 16
        assert kind in (0, 1)
        assert 1 <= orientation <= 8


def test_rows_are_checked_before_they_are_followed() -> None:
    values, offsets, block, row = column([encoded(Image.new("RGB", (16, 8)))])
    with pytest.raises(ValueError, match="position 0: block 0, row 1: the block has 1 rows"):
        _native.jpeg_headers(values, offsets, block, row + 1)
    with pytest.raises(TypeError, match="values must be bytes, not int32"):
        _native.jpeg_headers([np.zeros(4, np.int32)], offsets, block, row)
