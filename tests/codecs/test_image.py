"""The parameters of Image: what they are, what they may be, what a state knows of them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import dataflow
from dataflow.errors import OptionError


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"size": 0}, "size"),
        ({"size": (224,)}, "size"),
        ({"size": 224.0}, "size"),
        ({"size": True}, "size"),
        ({"size": 1 << 20}, "size"),
        ({"crop": "centre"}, "random_resized"),
        ({"scale": (0.0, 1.0)}, "scale"),
        ({"scale": (0.5, 0.2)}, "scale"),
        ({"scale": (0.5, 1.5)}, "scale"),
        ({"scale": 0.5}, "scale"),
        ({"ratio": (0.0, 1.0)}, "ratio"),
        ({"ratio": (1.0, float("inf"))}, "ratio"),
        ({"ratio": (1.0, float("nan"))}, "ratio"),
        ({"flip": 1.5}, "flip"),
        ({"flip": "often"}, "flip"),
        ({"layout": "CHW"}, "NCHW"),
        ({"dtype": "bfloat16"}, "float16"),
        ({"mean": (0.5, 0.5, 0.5)}, "float32"),
        ({"dtype": "float32", "mean": 0.5}, "mean"),
        ({"dtype": "float32", "std": (1.0, 0.0, 1.0)}, "std"),
        ({"resize": 200}, "resize"),
        ({"resize": 256, "crop": "none"}, "resize"),
        ({"orientation": 1}, "orientation"),
        ({"max_pixels": 0}, "max_pixels"),
    ],
)
def test_parameters_that_cannot_be_are_named(parameters: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        dataflow.Image(**{"size": 224, **parameters})


def test_equal_parameters_are_equal() -> None:
    assert dataflow.Image(224) == dataflow.Image((224, 224))
    image = dataflow.Image([8, 9], flip=1, dtype="float16", mean=[0, 0, 0])  # type: ignore[arg-type]
    assert image == dataflow.Image((8, 9), flip=1.0, dtype="float16", mean=(0.0, 0.0, 0.0))
    assert hash(image) == hash(pickle.loads(pickle.dumps(image)))
    assert pickle.loads(pickle.dumps(image)) == image


def test_shapes() -> None:
    assert dataflow.Image((8, 9)).shape == (3, 8, 9)
    assert dataflow.Image((8, 9), layout="NHWC").shape == (8, 9, 3)


def test_every_parameter_that_changes_pixels_is_described() -> None:
    base: dict[str, Any] = {"size": 32, "dtype": "float32", "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    changes: list[dict[str, Any]] = [
        {},
        {"size": 33},
        {"crop": "none"},
        {"crop": "random_resized"},
        {"resize": 40},
        {"scale": (0.1, 1.0)},
        {"ratio": (0.5, 2.0)},
        {"flip": 0.5},
        {"layout": "NHWC"},
        {"dtype": "float16"},
        {"mean": (0.1, 0.0, 0.0)},
        {"std": (1.0, 2.0, 1.0)},
        {"orientation": False},
    ]
    described = {json.dumps(dataflow.Image(**{**base, **change}).describe()) for change in changes}
    assert len(described) == len(changes)
    # A limit that was too low may be raised in the midst of a run.
    assert dataflow.Image(32).describe() == dataflow.Image(32, max_pixels=10).describe()
