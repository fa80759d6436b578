"""A dataset that grows: a state opens the longer one as its prefix until the epoch ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import dataflow
from dataflow.errors import StateError
from tests.formats.archives import pack


def tar(folder: Path, shard: int, rows: int) -> None:
    members = [(f"{shard:02d}/{row:04d}.txt", bytes([shard, row % 256, 1])) for row in range(rows)]
    (folder / f"{shard:02d}.tar").write_bytes(pack(members))


def batches(loader: dataflow.DataLoader) -> list[list[int]]:
    return [batch["sample_id"].tolist() for batch in loader]


@pytest.fixture
def grown(tmp_path: Path) -> tuple[list[list[int]], dict[str, object], dataflow.Dataset, int]:
    """An epoch's batches, the state after its third, and the dataset after another shard was added."""
    for shard in range(3):
        tar(tmp_path, shard, 50)
    dataflow.index(str(tmp_path), block_bytes=8192)
    loader = dataflow.DataLoader(dataflow.open(str(tmp_path)), batch_size=8, shuffle=True, seed=3)
    straight = batches(loader)
    loader = dataflow.DataLoader(dataflow.open(str(tmp_path)), batch_size=8, shuffle=True, seed=3)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    tar(tmp_path, 3, 70)
    dataflow.index(str(tmp_path), block_bytes=8192)
    return straight, state, dataflow.open(str(tmp_path)), 150


def test_the_epoch_ends_as_it_began_and_the_next_one_has_all(grown) -> None:  # type: ignore[no-untyped-def]
    straight, state, dataset, rows_before = grown
    loader = dataflow.DataLoader(dataset, batch_size=8, shuffle=True, seed=3)
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert batches(loader) == straight[3:]
    assert len(loader) == -(-(rows_before + 70) // 8)
    second = sorted(sample for batch in batches(loader) for sample in batch)
    assert second == list(range(rows_before + 70))
    assert loader.state_dict()["dataset"] == dataset.fingerprint


def test_a_stream_without_end_stays_with_what_it_began_with(grown) -> None:  # type: ignore[no-untyped-def]
    _, _, dataset, rows_before = grown
    shorter = dataset.manifest.chain(3)
    loader = dataflow.DataLoader(dataset, batch_size=8, shuffle=True, steps_per_epoch=40, seed=3)
    loader.load_state_dict(loader.state_dict() | {"dataset": shorter})
    assert max(sample for batch in batches(loader) for sample in batch) < rows_before
    assert loader.state_dict()["dataset"] == shorter


def test_tr10_a_shard_that_was_written_again_is_another_dataset(grown, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    _, state, _, _ = grown
    tar(tmp_path, 1, 49)
    dataflow.index(str(tmp_path), block_bytes=8192)
    with pytest.raises(StateError, match="open the dataset that the state was taken from"):
        dataflow.DataLoader(dataflow.open(str(tmp_path)), batch_size=8, shuffle=True, seed=3).load_state_dict(state)
