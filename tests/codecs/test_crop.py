"""Windows: torchvision's distributions, from random numbers that are a function of the sample."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp

import dataflow
from dataflow.codecs.crop import Window, center_window
from dataflow.sampling.random import Draws, SampleKey, value_key

MASK = (1 << 64) - 1
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
sides = st.integers(1, 3000)


def splitmix(state: int, count: int) -> list[int]:
    """SplitMix64 as published (Steele, Lea, Flood 2014)."""
    values = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        value = state
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        values.append(value ^ (value >> 31))
    return values


def torchvision_window(height: int, width: int, rng: random.Random) -> tuple[int, int, int, int]:
    """RandomResizedCrop.get_params of torchvision 0.20, with other random numbers."""
    area = height * width
    log_ratio = (math.log(RATIO[0]), math.log(RATIO[1]))
    for _ in range(10):
        target_area = area * rng.uniform(*SCALE)
        aspect_ratio = math.exp(rng.uniform(*log_ratio))
        w = round(math.sqrt(target_area * aspect_ratio))
        h = round(math.sqrt(target_area / aspect_ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, height - h), rng.randint(0, width - w), h, w
    in_ratio = float(width) / float(height)
    if in_ratio < min(RATIO):
        w = width
        h = round(w / min(RATIO))
    elif in_ratio > max(RATIO):
        h = height
        w = round(h * max(RATIO))
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


def test_draws_are_splitmix64() -> None:
    # The first outputs for seed 1234567, as other implementations list them.
    assert splitmix(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    draws = Draws(1234567)
    expected = [value >> 11 for value in splitmix(1234567, 40)]
    assert [round(draws.uniform(number) * 2**53) for number in range(40)] == expected


def test_reference_values() -> None:
    """These never change: a state of an older release has to give the same pixels."""
    key = value_key(SampleKey(0, "", 0, 0, 0), "image")
    other = value_key(SampleKey(7, "photos", 3, 123_456, 78), "image")
    assert (key, other) == REFERENCE_KEYS
    image = dataflow.Image(224, crop="random_resized", flip=0.5)
    assert [image.window(375, 500, key) for key in REFERENCE_KEYS] == REFERENCE_WINDOWS


def test_every_part_of_a_key_counts() -> None:
    base = SampleKey(1, "a", 2, 3, 4)
    keys = [base, base._replace(seed=2), base._replace(source="b"), base._replace(epoch=3)]
    keys += [base._replace(block=4), base._replace(row=5), base._replace(block=4, row=3)]
    assert len({value_key(key, "image") for key in keys} | {value_key(base, "depth")}) == 8


def test_keys_of_neighbours_are_independent() -> None:
    keys = [value_key(SampleKey(0, "", 0, block, row), "image") for block in range(100) for row in range(100)]
    assert len(set(keys)) == len(keys)
    values = np.array([Draws(key).uniform(0) for key in keys]).reshape(100, 100)
    assert abs(values.mean() - 0.5) < 0.015
    for axis in (0, 1):
        shifted = np.roll(values, 1, axis)
        assert abs(np.corrcoef(values.ravel(), shifted.ravel())[0, 1]) < 0.04


@pytest.mark.parametrize(("height", "width"), [(375, 500), (500, 375), (100, 1000), (1000, 20), (7, 5)])
def test_windows_are_distributed_as_torchvisions(height: int, width: int) -> None:
    image = dataflow.Image(224, crop="random_resized", scale=SCALE, ratio=RATIO)
    ours = np.array([image.window(height, width, key)[0] for key in range(4000)])
    rng = random.Random(0)
    theirs = np.array([torchvision_window(height, width, rng) for _ in range(4000)])
    for number, name in enumerate(Window._fields):
        assert ks_2samp(ours[:, number], theirs[:, number]).pvalue > 1e-4, name
    assert ks_2samp(ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3]).pvalue > 1e-4


@given(sides, sides, st.integers(0, MASK), st.sampled_from(["random_resized", "center", "none"]))
def test_windows_lie_in_the_picture(height: int, width: int, key: int, crop: str) -> None:
    window, _ = dataflow.Image((24, 13), crop=crop).window(height, width, key)
    assert 0 <= window.top <= height - window.height < height
    assert 0 <= window.left <= width - window.width < width


def test_flips_come_as_often_as_asked_and_leave_windows_alone() -> None:
    plain, flipping = (dataflow.Image(8, crop="random_resized", flip=flip) for flip in (0.0, 0.3))
    pairs = [(plain.window(50, 60, key), flipping.window(50, 60, key)) for key in range(4000)]
    assert all(one[0] == other[0] and not one[1] for one, other in pairs)
    assert abs(sum(other[1] for _, other in pairs) / 4000 - 0.3) < 0.03
    assert all(dataflow.Image(8, flip=1.0).window(50, 60, key)[1] for key in range(100))


@pytest.mark.parametrize(
    ("height", "width", "size", "resize", "expected"),
    [
        (400, 600, (224, 224), None, (0, 100, 400, 400)),
        (600, 400, (224, 224), None, (100, 0, 400, 400)),
        (256, 512, (224, 224), 256, (16, 144, 224, 224)),  # torchvision: Resize(256), CenterCrop(224)
        (512, 512, (224, 224), 256, (32, 32, 448, 448)),
        (100, 100, (50, 100), None, (25, 0, 50, 100)),
        (100, 100, (50, 100), 100, (25, 0, 50, 100)),
        (1, 1, (8, 8), None, (0, 0, 1, 1)),
        (1, 1000, (8, 8), 9, (0, 499, 1, 1)),
    ],
)
def test_center(
    height: int, width: int, size: tuple[int, int], resize: int | None, expected: tuple[int, int, int, int]
) -> None:
    assert center_window(height, width, size, resize) == expected
    assert dataflow.Image(size, resize=resize).window(height, width, 5) == (expected, False)


REFERENCE_KEYS = (4322963698982262347, 2553656614219573459)
REFERENCE_WINDOWS = [((3, 27, 367, 417), False), ((69, 195, 262, 300), False)]
