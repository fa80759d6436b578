"""dataflow replay: what a run would see next, against the run itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import dataflow
from dataflow.cli import app
from dataflow.errors import StateError
from dataflow.operations.replay import replay
from tests.conformance.data import write_nothing, write_rows


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> dataflow.Dataset:
    return dataflow.open(write_rows(tmp_path_factory.mktemp("replay") / "rows", 100))


def stopped(dataset: dataflow.Dataset, steps: int, **options: Any) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """A state after some steps, and slots and samples of what comes after."""
    loader = dataflow.DataLoader(dataset.map(dict, name="same"), batch_size=8, lanes=4, seed=5, **options)
    batches = iter(loader)
    for _ in range(steps):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    rows = [(batch["slot"].tolist(), batch["sample_id"].tolist()) for batch in batches]
    return state, [place for slots, ids in rows for place in zip(slots, ids, strict=True)]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("options", [{}, {"steps_per_epoch": 30}])
def test_the_samples_are_those_of_the_run(dataset: dataflow.Dataset, options: dict[str, Any], shuffle: bool) -> None:
    state, expected = stopped(dataset, 5, shuffle=shuffle, **options)
    found = list(replay(dataset.url, state, len(expected) // 8, 8, shuffle=shuffle))
    assert [(sample.slot, sample.sample_id) for sample in found] == expected[: len(found)]
    assert [sample.step for sample in found] == [number // 8 for number in range(len(found))]
    manifest = dataset.manifest
    for sample in found:
        assert manifest.locate(sample.sample_id) == (sample.block, sample.row)
        assert sample.shard.endswith(manifest.shard_path(manifest.shard_of(sample.block)))
        assert sample.epoch == sample.slot // 100


def test_the_command(dataset: dataflow.Dataset, tmp_path: Path) -> None:
    state, expected = stopped(dataset, 3, shuffle=True)
    (tmp_path / "state.json").write_text(json.dumps(state))
    arguments = ["replay", str(tmp_path / "state.json"), dataset.url, "--steps", "2", "--batch-size", "8"]
    shown = CliRunner().invoke(app, [*arguments, "--json"])
    assert shown.exit_code == 0
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(row["slot"], row["sample_id"]) for row in rows] == expected[:16]
    text = CliRunner().invoke(app, arguments)
    assert text.stdout.splitlines()[0] == "step 0"
    assert f"slot {expected[0][0]}  epoch 0  sample {expected[0][1]}  row" in text.stdout.splitlines()[1]
    assert len(text.stdout.splitlines()) == 18
    (tmp_path / "state.json").write_text("{")
    broken = CliRunner().invoke(app, arguments)
    assert broken.exit_code == 1
    assert "cannot be read as JSON" in broken.output


def test_states_that_do_not_tell_are_refused(dataset: dataflow.Dataset, tmp_path: Path) -> None:
    state, _ = stopped(dataset, 3)
    other = write_rows(tmp_path / "other", 50)
    with pytest.raises(StateError, match="is of dataset"):
        list(replay(other, state, 1, 1))
    kept = dataflow.DataLoader(dataset.filter(lambda row: True, name="all"), steps_per_epoch=5)
    with pytest.raises(StateError, match=r"filter\(\)"):
        list(replay(dataset.url, kept.state_dict(), 1, 1))
    mixed = dataflow.DataLoader(dataflow.mix({"a": (dataset, 1)}), steps_per_epoch=5)
    with pytest.raises(StateError, match="a mixture"):
        list(replay(dataset.url, mixed.state_dict(), 1, 1))
    with pytest.raises(StateError, match="not a state"):
        list(replay(dataset.url, {}, 1, 1))


def test_a_dataset_without_rows_has_nothing(tmp_path: Path) -> None:
    empty = dataflow.open(write_nothing(tmp_path / "empty"))
    assert list(replay(empty.url, dataflow.DataLoader(empty).state_dict(), 3, 4)) == []
