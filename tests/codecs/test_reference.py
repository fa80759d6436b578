"""Photographs against Pillow, cut and resized as torchvision's transforms do it with Pillow's images."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest

import dataflow
from dataflow import _native
from tests.native.jpegs import photographs

pytestmark = pytest.mark.skipif(
    not _native.decode_available(),
    reason="built without libjpeg-turbo: apt-get install libjpeg-dev, then make clean setup",
)

CROPS: dict[str, dict[str, Any]] = {
    "random": {"crop": "random_resized", "flip": 0.5},
    "random, of any area": {"crop": "random_resized", "scale": (0.01, 1.0), "flip": 1.0},
    "centre": {"crop": "center"},
    "none": {"crop": "none"},
}
# From enlarged windows to a sixtieth of the picture's side: the decoder itself reduces by 2, 4 and 8.
SIZES = [(384, 384), (224, 224), (160, 96), (64, 64), (32, 32), (9, 11)]
MOST_LEVELS = 2.0


def reference(image: dataflow.Image, data: bytes, key: int) -> Any:
    """`resized_crop` and `hflip` of torchvision, on an image of Pillow."""
    picture = PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(data))).convert("RGB")
    window, mirrored = image.window(picture.height, picture.width, key)
    box = (window.left, window.top, window.left + window.width, window.top + window.height)
    resized = picture.crop(box).resize((image.width, image.height), PIL.Image.Resampling.BILINEAR)
    return np.asarray(PIL.ImageOps.mirror(resized) if mirrored else resized)


@pytest.mark.parametrize("name", photographs())
@pytest.mark.parametrize("crop", CROPS)
def test_less_than_two_levels_from_pillow_on_the_same_windows(name: str, crop: str) -> None:
    data = photographs()[name]
    worst = 0.0
    for size in [*SIZES, (256, 256)]:
        options = {"resize": 292} if size == (256, 256) and crop == "centre" else {}
        image = dataflow.Image(size, layout="NHWC", **CROPS[crop], **options)
        for key in range(3 if "random" in crop else 1):
            expected = reference(image, data, key).astype(int)
            worst = max(worst, float(np.abs(image.decode(data, key).astype(int) - expected).mean()))
    assert worst < MOST_LEVELS
    assert worst > 0  # else Pillow has decoded both


@pytest.mark.parametrize("crop", CROPS)
def test_floats_are_the_same_levels(crop: str) -> None:
    """In normalized units, levels are as far apart as 1 / 255 over the standard deviation."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    data = photographs()["china"]
    image = dataflow.Image(96, layout="NHWC", dtype="float32", mean=mean, std=std, **CROPS[crop])
    levels = (image.decode(data, 1) * std + mean) * 255
    assert np.abs(levels - reference(image, data, 1)).mean() < MOST_LEVELS
