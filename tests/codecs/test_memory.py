"""Memory does not grow with the number of decoded batches, and a batch that is kept keeps its content."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import psutil
import pytest
import torch

import dataflow
from tests.codecs.pictures import jpeg, many, saved, smooth, write

# What allocators give and take; a leak of a kilobyte a batch would be 8 MB in 8,000 batches.
_NOISE_BYTES = 4 << 20


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Small images: plain JPEGs, turned ones, and some that go through Pillow."""
    images: list[bytes | None] = [*many(60)]
    images[5::20] = [jpeg(80, 60, orientation=6)] * 3
    images[7::20] = [saved(smooth(40, 30))] * 3
    images[9] = b""
    return write(Path(tmp_path_factory.mktemp("memory")) / "images", images)


def check_flat(url: str, batches: int) -> None:
    image = dataflow.Image(24, crop="random_resized", flip=0.5, dtype="float16")
    dataset = dataflow.open(url).decode(image=image)
    loader = dataflow.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, on_error="skip", epochs=batches)
    process = psutil.Process(os.getpid())
    sizes = []
    kept: list[torch.Tensor] = []
    copies: list[torch.Tensor] = []
    # All that ever is allocated once has been after a fifth.
    first, every = batches // 5, batches // 10
    for number, batch in enumerate(itertools.islice(loader, batches), 1):
        assert batch["image"].shape == (4, 3, 24, 24)
        if number in (1, 2, first // 2):
            kept.append(batch["image"])
            copies.append(batch["image"].clone())
        if number >= first and number % every == 0:
            sizes.append(process.memory_info().rss)
    assert number == batches
    assert all(torch.equal(held, copy) for held, copy in zip(kept, copies, strict=True))
    third = len(sizes) // 3
    assert min(sizes[-third:]) - min(sizes[:third]) < _NOISE_BYTES
    assert max(sizes) - sizes[0] < 2 * _NOISE_BYTES
    assert loader.stats()["slabs"]["count"] <= len(kept) + 4 + 2 + 2


def test_memory_is_flat_over_five_hundred_batches(url: str) -> None:
    check_flat(url, 500)


@pytest.mark.soak
def test_memory_is_flat_over_ten_thousand_batches(url: str) -> None:
    check_flat(url, 10_000)
