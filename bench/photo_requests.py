"""Photographs as a dataset, and what a loader decodes of it in some epochs, for decoders without a loader."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

import dataflow
from bench.peers.photographs import SIZE
from dataflow.dataset import Manifest, read_block
from dataflow.sampling.random import SampleKey, value_key
from dataflow.sharding import ShardOptions, Step, shard
from dataflow.storage import open_store

SEED = 0
BLOCK_BYTES = 2 << 20  # as a dataset of 8 GiB and more has them
# As stored: the other decoders know nothing of orientations.
IMAGE = dataflow.Image(SIZE, crop="random_resized", flip=0.5, orientation=False)


def write_photographs(photos: Path, folder: Path, epochs: int, steps: tuple[Step, ...] = ()) -> tuple[str, Path]:
    """Shards the photographs, and writes each as a file again, with the windows and flips of all its rows and epochs.

    Returns:
        The dataset's URL, and the file of requests.
    """
    manifest = shard(
        str(photos), str(folder / "dataset"), ShardOptions(labels=False, steps=steps, block_bytes=BLOCK_BYTES)
    )
    return manifest.url, _write_requests(manifest, folder, epochs)


def _write_requests(manifest: Manifest, folder: Path, epochs: int) -> Path:
    store = open_store(manifest.base_url)
    files: list[tuple[str, int, int, int, int]] = []
    for block in range(manifest.num_blocks):
        for row, data in enumerate(read_block(store, manifest, block).column("image").to_pylist()):
            path = folder / f"{block}-{row}.jpg"
            path.write_bytes(data)
            files.append((str(path), block, row, *_size(data)))
    # In another order than they are stored, as a loader has them.
    order = np.random.default_rng(SEED).permutation(len(files))
    requests = [(epoch, *files[at]) for epoch in range(epochs) for at in order.tolist()]
    cuts = [
        IMAGE.window(height, width, value_key(SampleKey(SEED, "", epoch, block, row), "image"))
        for epoch, _, block, row, height, width in requests
    ]
    path = folder / "requests.npz"
    names = np.array([name for _, name, *_ in requests])
    windows, flips = zip(*cuts, strict=True)
    np.savez(path, names=names, windows=np.array(windows, np.int32), flips=np.array(flips, bool))
    return path


def _size(data: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(data)) as image:
        return image.height, image.width
