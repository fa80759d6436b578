"""JPEG files, and what Pillow makes of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import skimage
import sklearn
from PIL import Image

from dataflow import _native

Array = npt.NDArray[Any]
Window = tuple[int, int, int, int]  # top, left, height, width


@cache
def photographs() -> dict[str, bytes]:
    """The JPEG files that scikit-image and scikit-learn ship, by name."""
    folders = [Path(skimage.__file__).parent / "data", Path(sklearn.__file__).parent / "datasets" / "images"]
    return {path.stem: path.read_bytes() for folder in folders for path in sorted(folder.glob("*.jpg"))}


@cache
def pixels(name: str = "china") -> Image.Image:
    return Image.open(io.BytesIO(photographs()[name])).convert("RGB")


def encoded(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def relabelled(file: bytes, sampling: int, width: int, height: int) -> bytes:
    """The file with other sampling factors (as 0x21) of its first component and another size.

    Where the blocks are as many and in the same order this is a valid file of a way to store colours that Pillow cannot
    write; its picture is the old one with blocks in other places.
    """
    frame = next(at for at in range(len(file)) if file[at] == 0xFF and file[at + 1] in (0xC0, 0xC2))
    changed = bytearray(file)
    changed[frame + 5 : frame + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    changed[frame + 11] = sampling
    return bytes(changed)


@cache
def kinds() -> dict[str, bytes]:
    """One small file of each kind that `decode_jpegs` takes."""
    image = pixels().resize((211, 149), Image.Resampling.BILINEAR)
    even = image.crop((0, 0, 176, 144))
    files = {
        "4:4:4": encoded(image, subsampling="4:4:4", quality=92),
        "4:2:2": encoded(image, subsampling="4:2:2", quality=90),
        "4:2:0": encoded(image, subsampling="4:2:0", quality=90),
        "RGB": encoded(image, keep_rgb=True),
        "grey": encoded(image.convert("L")),
        "progressive 4:2:0": encoded(image, progressive=True, subsampling="4:2:0"),
        "progressive grey": encoded(image.convert("L"), progressive=True),
        "restart markers": encoded(image, restart_marker_blocks=3, subsampling="4:2:0"),
        "restart markers a row": encoded(image, restart_marker_rows=1, subsampling="4:4:4"),
        "optimised": encoded(image, optimize=True, quality=40),
    }
    files["4:4:0"] = relabelled(encoded(even, subsampling="4:2:2"), 0x12, 88, 288)
    files["4:1:1"] = relabelled(encoded(even, subsampling="4:2:0"), 0x41, 352, 72)
    files["grey, 2 x 2"] = relabelled(files["grey"], 0x22, 211, 149)
    return files


def column(files: Sequence[bytes]) -> tuple[list[Array], list[Array], Array, Array]:
    """The arguments `values`, `offsets`, `block` and `row` of all files in one block."""
    offsets = np.cumsum([0, *map(len, files)]).astype(np.int64)
    values = np.frombuffer(b"".join(files), dtype=np.uint8)
    return [values], [offsets], np.zeros(len(files), np.int32), np.arange(len(files), dtype=np.int64)


def headers(files: Sequence[bytes]) -> list[list[int]]:
    found: list[list[int]] = _native.jpeg_headers(*column(files)).tolist()
    return found


def decode(
    files: Sequence[bytes],
    windows: Sequence[Window],
    size: tuple[int, int],
    *,
    flip: Sequence[bool] | None = None,
    dtype: str = "uint8",
    mean: Array | None = None,
    std: Array | None = None,
    channels_last: bool = False,
    threads: int = 1,
) -> tuple[Array, dict[int, str]]:
    """All files decoded, and the failures."""
    count = len(files)
    out = np.zeros((count, *size, 3) if channels_last else (count, 3, *size), dtype)
    failed = _native.decode_jpegs(
        *column(files),
        np.arange(count, dtype=np.int64),
        np.array(windows, np.int32).reshape(count, 4),
        np.array(flip if flip is not None else [False] * count, bool),
        out,
        mean,
        std,
        channels_last,
        threads,
    )
    return out, dict(failed)


def reference(file: bytes, window: Window, size: tuple[int, int]) -> Array:
    """[height, width, 3], uint8, as Pillow decodes and resizes."""
    top, left, height, width = window
    image = Image.open(io.BytesIO(file)).convert("RGB")
    box = (left, top, left + width, top + height)
    return np.asarray(image.resize((size[1], size[0]), Image.Resampling.BILINEAR, box=box))
