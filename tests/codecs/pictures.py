"""Pictures whose parts can be told apart, in files of many kinds, and datasets of them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

import dataflow
from tests.operations.photographs import picture

SCHEMA = pa.schema([("image", pa.binary()), ("label", pa.int64()), ("key", pa.string())])

Pixels = NDArray[np.uint8]


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    sink = io.BytesIO()
    image.save(sink, kind, **options)
    return sink.getvalue()


def smooth(width: int = 96, height: int = 64) -> Image.Image:
    """A photograph in which no part looks like its mirror image."""
    return picture().resize((width, height), Image.Resampling.BILINEAR)


def jpeg(width: int = 96, height: int = 64, orientation: int = 1, **options: Any) -> bytes:
    exif = Image.Exif()
    if orientation != 1:
        exif[0x0112] = orientation
    return saved(smooth(width, height), "JPEG", quality=95, exif=exif, **options)


def pixels(data: bytes) -> Pixels:
    """What Pillow makes of it, as stored."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def many(count: int) -> list[bytes]:
    """JPEGs of many sizes, each different."""
    source = picture()
    boxes = [(7 * n % 300, 5 * n % 200) for n in range(count)]
    return [
        saved(source.crop((left, top, left + 60 + n % 90, top + 50 + n % 70)), "JPEG", quality=90)
        for n, (left, top) in enumerate(boxes)
    ]


def write(folder: Path, images: Sequence[bytes | None], rows_per_block: int = 4) -> str:
    """A dataset of images; labels are row numbers."""
    rows: list[Mapping[str, Any]] = [
        {"image": data, "label": number, "key": f"picture-{number}"} for number, data in enumerate(images)
    ]
    with dataflow.ShardWriter(str(folder), SCHEMA, rows_per_block=rows_per_block, shard_bytes=1 << 20) as writer:
        for row in rows:
            writer.write(row)
    return str(folder)
