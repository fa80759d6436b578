"""Sources of many kinds of rows, and datasets compared byte for byte."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dataflow.sharding
from dataflow.storage import open_store
from tests.formats.archives import pack

Fill = Callable[[dict[str, bytes]], Path]

#: In this process, where a test does not say otherwise: processes take a second to start.
shard = functools.partial(dataflow.sharding.shard, workers=1)
shard_splits = functools.partial(dataflow.sharding.shard_splits, workers=1)


def picture(number: int) -> bytes:
    """A JPEG of a few KiB that differs from those with other numbers."""
    pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), np.uint8)
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, "JPEG", quality=50 + number % 50)
    return sink.getvalue()


def images(count: int) -> dict[str, bytes]:
    """Files of images in three classes, their sizes uneven, a few of them bad."""
    return {f"{n % 3}/{n:04d}.jpg": b"" if n % 97 == 5 else picture(n) + bytes(n * 37 % 3000) for n in range(count)}


def tars(count: int, samples: int) -> dict[str, bytes]:
    """Tars of images with a text each; a few images are bad."""
    return {
        f"{tar:03d}.tar": pack(
            member
            for sample in range(tar * samples, (tar + 1) * samples)
            for member in (
                (f"{sample:05d}.jpg", b"<html>" if sample % 89 == 7 else picture(sample)),
                (f"{sample:05d}.txt", b"x" * (1 + sample % 50)),
            )
        )
        for tar in range(count)
    }


@pytest.fixture
def fill(tmp_path: Path) -> Fill:
    """Writes files below a new source folder and returns it."""
    folders = (tmp_path / f"source-{number}" for number in range(100))

    def write(files: dict[str, bytes]) -> Path:
        folder = next(folders)
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return folder

    return write


def contents(url: object) -> dict[str, bytes]:
    """Every object of a dataset."""
    store = open_store(str(url))
    return {entry.path: bytes(store.read_range(entry.path, 0, entry.size)) for entry in store.list()}
