"""A dataset of rows like photographs: 50 to 110 KB of bytes that do not compress, a key, a label."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dataflow

MEAN_ROW_BYTES = 80_000


def write_rows(folder: Path, total_bytes: int) -> Path:
    """Write the dataset unless it is there; the same bytes each time."""
    if (folder / "manifest.arrow").is_file():
        return folder
    generator = np.random.default_rng(0)
    noise = generator.bytes(4 << 20)
    with dataflow.ShardWriter(str(folder), total_bytes=total_bytes) as writer:
        for number in range(max(1, total_bytes // MEAN_ROW_BYTES)):
            start, length = int(generator.integers(4 << 20) // 2), int(generator.integers(50_000, 110_000))
            writer.write({"key": f"{number:09d}", "label": number % 1000, "image": noise[start : start + length]})
    return folder


def warm(folder: Path) -> None:
    """Read every file, so that the page cache has it."""
    for path in sorted(folder.iterdir()):
        with open(path, "rb") as file:
            while file.read(8 << 20):
                pass
