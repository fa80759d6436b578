"""What the work of a loader takes on this machine: epochs of the real loader, in fresh processes.

Rows that differ in size, in blocks that differ in size, come from nginx on loopback; the processor seconds of the
loader's process are put down to bytes, blocks and rows by least squares. Photographs come from the disk: decoding them
takes so much longer than reading.
"""

from __future__ import annotations

import io
import statistics
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

import dataflow
from bench.measure import run_python
from bench.raw_rows import warm
from bench.scale.costs import Costs
from tests.operations.photographs import photograph
from tests.servers.nginx import Nginx, environment_for

# Rows of so many bytes, in blocks of so many rows, so many blocks.
_KINDS = ((110_000, 19, 64), (110_000, 1, 600), (2_000, 32, 600), (2_000, 1000, 16))
_PHOTOGRAPHS = 256
_WIDTH, _HEIGHT = 500, 375


def calibrate(data: Path, rounds: int) -> Costs:
    """Measure.

    Args:
        data: Where datasets are kept from run to run.
        rounds: Repeats; the medians count.
    """
    folders = [write_rows(data / f"scale-{'-'.join(map(str, kind))}", *kind) for kind in _KINDS]
    photographs = write_photographs(data / "scale-photographs")
    runs = []
    with Nginx(data.parent) as server:
        urls = [f"s3://{data.name}/{folder.name}" for folder in folders]
        environment = {**environment_for(server.endpoint), "XDG_CACHE_HOME": str(data / "cache")}
        for _ in range(rounds):
            for folder in (photographs, *folders):
                warm(folder)
            arguments = ("-m", "bench.scale.calibrate_client", str(photographs), *urls)
            runs.append(run_python(*arguments, environment=environment))
    seconds = [statistics.median(values) for values in zip(*(run["seconds"] for run in runs), strict=True)]
    per_gb, per_block, per_row = fit(np.array(_KINDS, np.float64), np.array(seconds))
    per_photograph = statistics.median(run["seconds_per_photograph"] for run in runs)
    return Costs(per_gb, per_block, per_photograph, per_row, statistics.median(run["memory_mb"] for run in runs))


def fit(kinds: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, float, float]:
    """Seconds per GB, block and row that explain best what datasets took, none of them negative.

    Args:
        kinds: float64[n, 3]: bytes of a row, rows of a block, blocks.
        seconds: float64[n].
    """
    rows = kinds[:, 1] * kinds[:, 2]
    work = np.stack([kinds[:, 0] * rows / 1e9, kinds[:, 2], rows], axis=1)
    # Relative errors count alike, whatever a dataset took.
    work, ones = work / seconds[:, None], np.ones(len(seconds))
    best, least = np.zeros(3), float("inf")
    for kept in product((False, True), repeat=3):
        found = np.zeros(3)
        found[list(kept)] = np.linalg.lstsq(work[:, list(kept)], ones, rcond=None)[0]
        error = float(np.square(work @ found - ones).sum())
        if found.min() >= 0 and error < least:
            best, least = found, error
    return float(best[0]), float(best[1]), float(best[2])


def write_rows(folder: Path, row_bytes: int, rows_per_block: int, blocks: int) -> Path:
    """Write rows of bytes that do not compress, unless they are there."""
    if (folder / "manifest.arrow").is_file():
        return folder
    noise = np.random.default_rng(0).bytes(4 << 20)
    starts = np.random.default_rng(1).integers(0, len(noise) - row_bytes, rows_per_block * blocks).tolist()
    schema = pa.schema([("label", pa.int64()), ("image", pa.binary())])
    with dataflow.ShardWriter(str(folder), schema, rows_per_block=rows_per_block) as writer:
        for number, start in enumerate(starts):
            writer.write({"label": number, "image": noise[start : start + row_bytes]})
    return folder


def write_photographs(folder: Path) -> Path:
    """Write JPEG files of 500 x 375 pixels, cut from two photographs, unless they are there."""
    if (folder / "manifest.arrow").is_file():
        return folder
    pictures = [Image.open(io.BytesIO(photograph(name))) for name in ("china", "flower")]
    generator = np.random.default_rng(0)
    schema = pa.schema([("image", pa.binary())])
    with dataflow.ShardWriter(str(folder), schema) as writer:
        for number in range(_PHOTOGRAPHS):
            picture = pictures[number % 2]
            left, top = (int(generator.integers(most)) for most in (picture.width - _WIDTH, picture.height - _HEIGHT))
            sink = io.BytesIO()
            picture.crop((left, top, left + _WIDTH, top + _HEIGHT)).save(sink, "JPEG", quality=95)
            writer.write({"image": sink.getvalue()})
    return folder
