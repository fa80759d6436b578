"""Resizing against Pillow's."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from dataflow import _native
from tests.native.jpegs import Window, decode, encoded, kinds, photographs, pixels, reference

pytestmark = pytest.mark.skipif(
    not _native.decode_available(),
    reason="built without libjpeg-turbo: apt-get install libjpeg-dev, then make clean setup",
)


def difference(file: bytes, window: Window, size: tuple[int, int]) -> np.ndarray:
    out, failed = decode([file], [window], size, channels_last=True)
    assert not failed
    return abs(out[0].astype(int) - reference(file, window, size))


@given(st.data())
@pytest.mark.parametrize("kind", ["4:4:4", "4:2:0", "grey"])
def test_any_window_to_any_size(kind: str, data: st.DataObject) -> None:
    file = kinds()[kind]
    width, height = Image.open(io.BytesIO(file)).size
    top, left = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    window = (top, left, data.draw(st.integers(1, height - top)), data.draw(st.integers(1, width - left)))
    # Not so small that the decoder reduces the picture first.
    size = (
        data.draw(st.integers(max(1, window[2] // 4 + 1), 300)),
        data.draw(st.integers(max(1, window[3] // 4 + 1), 300)),
    )
    assert difference(file, window, size).max() <= 1


@pytest.mark.parametrize("name", list(photographs()))
def test_photographs(name: str) -> None:
    file = photographs()[name]
    width, height = Image.open(io.BytesIO(file)).size
    window = (height // 9, width // 7, height * 3 // 4, width * 2 // 3)
    size = window[2] * 2 // 5, window[3] * 2 // 5
    found = difference(file, window, size)
    assert found.max() <= 1
    assert found.mean() < 0.25


@pytest.mark.parametrize("name", list(photographs()))
@pytest.mark.parametrize("times", [2, 4, 8])
def test_large_windows_are_reduced_by_the_decoder(name: str, times: int) -> None:
    file = photographs()[name]
    width, height = Image.open(io.BytesIO(file)).size
    window = (13, 21, height - 30, width - 40)
    size = window[2] // (2 * times), window[3] // (2 * times)
    out, failed = decode([file], [window], size, channels_last=True)
    assert not failed
    # As Pillow's decoder reduces; the box is the window in what is left.
    image = Image.open(io.BytesIO(file))
    image.draft("RGB", (width // times, height // times))
    assert image.size == (math.ceil(width / times), math.ceil(height / times))
    top, left, rows, columns = (side / times for side in window)
    box = (left, top, left + columns, top + rows)
    reduced = np.asarray(image.convert("RGB").resize(size[::-1], Image.Resampling.BILINEAR, box=box))
    assert abs(out[0].astype(int) - reduced).max() <= 1
    assert difference(file, window, size).mean() < 1.5


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (3, 5), (800, 700)])
@pytest.mark.parametrize("level", [0, 1, 128, 254, 255])
def test_a_plain_picture_stays_plain(size: tuple[int, int], level: int) -> None:
    file = encoded(Image.new("L", (333, 219), level), quality=100)
    out, failed = decode([file], [(1, 2, 200, 300)], size)
    assert not failed
    assert (out == level).all()


def test_extreme_shapes() -> None:
    for width, height in ((20_000, 2), (2, 20_000), (65_500, 1)):
        file = encoded(pixels().resize((width, height)), quality=95)
        for size in ((1, 1), (7, 5), (224, 224)):
            assert difference(file, (0, 0, height, width), size).mean() < 1


def test_flips_are_the_mirror_image_for_every_width() -> None:
    file = kinds()["4:2:0"]
    for width in range(1, 40):
        arguments = ([file, file], [(3, 4, 101, 90)] * 2, (5, width))
        out, _ = decode(*arguments, flip=[False, True])
        np.testing.assert_array_equal(out[1], out[0, :, :, ::-1])
