"""restore(): any sample as it was delivered, with the random numbers that it had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dataflow
from dataflow.errors import CorruptDataError, OptionError
from tests.codecs.pictures import jpeg, many, write

IMAGE = dataflow.Image((24, 20), crop="random_resized", flip=0.5)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> dataflow.Dataset:
    return dataflow.open(write(tmp_path_factory.mktemp("restore") / "images", many(40)))


def draw(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**row, "drawn": int(rng.integers(1 << 40))}


@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 12}])
@pytest.mark.parametrize("processes", [None, 1])
def test_every_sample_of_a_run_comes_again(
    dataset: dataflow.Dataset, options: dict[str, Any], processes: int | None
) -> None:
    stages = dataset.decode(image=IMAGE).map(draw, processes=processes)
    loader = dataflow.DataLoader(stages, batch_size=8, shuffle=True, seed=3, **options)
    loader.set_epoch(1)
    for batch in list(loader)[1::4]:
        if not options:
            loader.set_epoch(1)  # slots count from the start of the epoch
        for at, (sample_id, slot) in enumerate(zip(batch["sample_id"].tolist(), batch["slot"].tolist(), strict=True)):
            found = loader.restore(sample_id, slot)
            assert found["drawn"] == int(batch["drawn"][at])
            assert found["label"] == int(batch["label"][at])
            assert (np.asarray(found["image"]) == batch["image"][at].numpy()).all()


def test_images_that_batches_decode_as_a_whole(dataset: dataflow.Dataset) -> None:
    loader = dataflow.DataLoader(dataset.decode(image=IMAGE), batch_size=8, shuffle=True)
    batches = iter(loader)
    batch = next(batches)
    for at, sample_id in enumerate(batch["sample_id"].tolist()):
        assert (loader.restore(sample_id)["image"] == batch["image"][at].numpy()).all()
    assert next(batches)["slot"][0] == 8, "restoring moved the stream"


def test_what_cannot_be_restored(dataset: dataflow.Dataset, tmp_path: Path) -> None:
    loader = dataflow.DataLoader(dataset)
    for number in (-1, 40):
        with pytest.raises(OptionError, match=f"no sample {number}"):
            loader.restore(number)
    kept = dataflow.DataLoader(dataset.filter(lambda row: True, name="all"), steps_per_epoch=2)
    with pytest.raises(OptionError, match="filter 'all'"):
        kept.restore(0)
    bad = dataflow.open(write(tmp_path / "bad", [jpeg(), b"", jpeg()])).decode(image=IMAGE)
    with pytest.raises(CorruptDataError, match="is empty"):
        dataflow.DataLoader(bad, on_error="skip").restore(1)
