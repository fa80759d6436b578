"""Whether images are whole, told by decoding them."""

from __future__ import annotations

import io
import sys

import numpy as np
import PIL.ImageFile
import pytest
from PIL import Image

from dataflow.codecs.pillow_guard import load_pillow
from dataflow.errors import OptionError
from dataflow.operations.images import ImageSize, image_problem, image_size, names_images
from tests.operations.photographs import animation, black_png, encoded, photograph, picture


def ramp(kind: str) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(np.tile(np.linspace(0, 65535, 256).astype(np.uint16), (4, 1))).save(sink, kind)
    return sink.getvalue()


@pytest.mark.parametrize("cut", [54, 4339, len(photograph()) // 2])
def test_im01_a_truncated_jpeg_whose_header_is_fine(cut: int) -> None:
    data = photograph()[:-cut]
    assert image_size(data) == ImageSize(640, 427, "RGB")
    assert image_problem(data, decode=False) == ""
    assert "cannot be decoded (OSError: image file is truncated" in image_problem(data)
    assert image_problem(photograph()) == ""


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_im01_other_truncated_files(kind: str) -> None:
    data = encoded(kind)
    assert image_problem(data) == ""
    assert "cannot be decoded" in image_problem(data[: len(data) // 2])


def test_im01_im09_nothing_at_all() -> None:
    assert image_problem(b"") == "is empty"
    assert image_size(b"") is None


def test_im02_the_flag_that_hides_damage_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    load_pillow()
    monkeypatch.setattr(PIL.ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(OptionError, match="truncated images would pass for whole ones"):
        load_pillow()


def test_pillow_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.ImageFile", None)
    with pytest.raises(OptionError, match=r"pip install 'dataflow-loader\[images\]'"):
        load_pillow()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(ramp("PNG"), id="im03 16-bit PNG"),
        pytest.param(ramp("TIFF"), id="im03 16-bit TIFF"),
        pytest.param(encoded("JPEG", mode="CMYK"), id="im04 CMYK"),
        pytest.param(encoded("JPEG", mode="L"), id="grey"),
        pytest.param(encoded("JPEG", progressive=True), id="progressive"),
        pytest.param(animation("GIF"), id="im11 GIF"),
        pytest.param(animation("WEBP"), id="im11 WebP"),
    ],
)
def test_unusual_images_are_whole(data: bytes) -> None:
    assert image_problem(data) == ""


def test_im07_bombs_are_refused_and_large_images_are_not() -> None:
    problem = image_problem(black_png(14_000))
    assert "is too large to decode (Image size (196000000 pixels) exceeds limit" in problem
    with pytest.warns(Image.DecompressionBombWarning):
        assert image_problem(black_png(9_500)) == ""


@pytest.mark.parametrize("kind", ["WEBP", "PNG", "GIF", "BMP"])
def test_im08_content_counts(kind: str) -> None:
    assert image_problem(encoded(kind)) == ""


def test_im08_what_is_no_image_is_named() -> None:
    assert image_problem(b"<!DOCTYPE html><title>404</title>") == "is HTML or XML"
    assert image_problem(b"hello") == "is no image (it begins with b'hello')"


def test_im11_later_frames_count() -> None:
    data = animation("WEBP", 5)
    broken = bytearray(data)
    last = data.rindex(b"VP8 ")
    broken[last + 8 : last + 40] = bytes(32)
    assert "cannot be decoded" in image_problem(bytes(broken))


def test_im11_further_pictures_of_a_jpeg_do_not_count() -> None:
    sink = io.BytesIO()
    picture().save(sink, "MPO", save_all=True, append_images=[picture().rotate(90)])
    assert Image.open(sink).format == "MPO"
    assert image_problem(sink.getvalue()[:-5000]) == ""


def test_sizes_come_from_headers() -> None:
    assert image_size(encoded("PNG", (31, 7), "LA")) == ImageSize(31, 7, "LA")
    assert image_size(b"\xff\xd8\xff\xe0 and no more") is None


@pytest.mark.parametrize(
    ("column", "promised"),
    [("image", True), ("jpg", True), ("left.PNG", True), ("depth.tiff", True), ("cls", False), ("image.txt", False)],
)
def test_columns_that_promise_images(column: str, promised: bool) -> None:
    assert names_images(column) == promised
