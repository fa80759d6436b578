"""on_error="skip": rows that do not decode are replaced by a rule that knows the row alone, and are listed."""

from __future__ import annotations

import gc
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

import dataflow
from dataflow.errors import CorruptDataError, OptionError
from dataflow.storage import open_store
from tests.codecs.pictures import jpeg, many, write

IMAGE = dataflow.Image((24, 20), crop="random_resized", flip=0.5)
COUNT = 60  # blocks of 4
# The last of a block, two in turn, and all but one.
BAD = {11: b"", 21: jpeg()[:-300], 22: None, 40: b"<html>", 41: b"", 43: b"x"}
INSTEAD = {11: 8, 21: 23, 22: 23, 40: 42, 41: 42, 43: 42}

WAYS: dict[str, Callable[[dataflow.Dataset], dataflow.Dataset]] = {
    "batch": lambda dataset: dataset.decode(image=IMAGE),
    "sample": lambda dataset: dataset.decode(image=IMAGE).map(lambda row: row),
    "selected": lambda dataset: dataset.select(["image", "label"]).decode(image=IMAGE).select(["label", "image"]),
}
Found = dict[int, tuple[int, int, bytes]]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    images: list[bytes | None] = [*many(COUNT)]
    for number, data in BAD.items():
        images[number] = data
    return write(tmp_path_factory.mktemp("skip") / "images", images)


def load(dataset: dataflow.Dataset, **options: Any) -> dataflow.DataLoader:
    defaults: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 3, "lanes": 4, "on_error": "skip"}
    return dataflow.DataLoader(dataset, **{**defaults, **options})


def found(batches: Any) -> Found:
    """Slot to sample, label and pixels, of the rows that count."""
    rows: Found = {}
    for batch in batches:
        for at, (slot, sample) in enumerate(zip(batch["slot"].tolist(), batch["sample_id"].tolist(), strict=True)):
            if "valid" not in batch or batch["valid"][at]:
                assert isinstance(batch["image"], torch.Tensor)
                rows[slot] = (sample, int(batch["label"][at]), batch["image"][at].numpy().tobytes())
    return rows


def take_all(loader: dataflow.DataLoader, rows: Found) -> None:
    for batch in loader:
        rows |= found([batch])


@pytest.fixture(scope="module")
def straight(url: str) -> Found:
    return found(load(WAYS["batch"](dataflow.open(url)), num_workers=0))


def test_bad_rows_are_replaced_by_the_next_good_one_of_their_block(url: str, straight: Found) -> None:
    plain = dataflow.DataLoader(dataflow.open(url).select("label"), batch_size=8, shuffle=True, seed=3, lanes=4)
    order = [sample for batch in plain for sample in batch["sample_id"].tolist()]
    assert [straight[slot][0] for slot in range(COUNT)] == [INSTEAD.get(sample, sample) for sample in order]
    # All of a replaced row is that of the other one, its random window too.
    by_sample: dict[int, set[tuple[int, bytes]]] = {}
    for sample, label, pixels in straight.values():
        by_sample.setdefault(sample, set()).add((label, pixels))
    assert all(len(seen) == 1 and next(iter(seen))[0] == sample for sample, seen in by_sample.items())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("workers", "batch_size"), [(0, 5), (3, 16)])
def test_the_same_by_every_way(url: str, straight: Found, way: str, workers: int, batch_size: int) -> None:
    loader = load(WAYS[way](dataflow.open(url)), num_workers=workers, batch_size=batch_size)
    assert found(loader) == straight
    assert [entry["sample_id"] for entry in loader.ledger()] == sorted(BAD)


def test_the_same_with_a_function_that_collates(url: str, straight: Found) -> None:
    def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
        images = torch.stack([torch.from_numpy(sample["image"]) for sample in samples])
        return {"image": images, "label": [sample["label"] for sample in samples]}

    assert found(load(WAYS["batch"](dataflow.open(url)), collate_fn=collate)) == straight


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.filterwarnings("ignore:.* lanes for .* ranks")
def test_the_same_for_any_number_of_ranks(url: str, straight: Found, ranks: int) -> None:
    loaders = [load(WAYS["batch"](dataflow.open(url)), rank=rank, world_size=ranks) for rank in range(ranks)]
    rows: Found = {}
    for loader in loaders:
        rows |= found(loader)
    assert rows == straight
    listed = {entry["sample_id"] for loader in loaders for entry in loader.ledger()}
    assert listed == set(BAD)


@pytest.mark.parametrize("stop", [0, 1, 4])
def test_the_same_after_a_resume(url: str, straight: Found, stop: int) -> None:
    loader = load(WAYS["batch"](dataflow.open(url)))
    rows: Found = {}
    for _, batch in zip(range(stop), loader, strict=False):
        rows |= found([batch])
    state = json.loads(json.dumps(loader.state_dict()))
    assert state == loader.state_dict()
    resumed = load(WAYS["sample"](dataflow.open(url)))
    with pytest.raises(dataflow.errors.StateError):
        resumed.load_state_dict(state)
    resumed = load(WAYS["batch"](dataflow.open(url)), batch_size=13)
    resumed.load_state_dict(state)
    assert rows | found(resumed) == straight


def test_a_run_that_stopped_at_a_bad_row_can_go_on(url: str, straight: Found) -> None:
    """Skipping is no part of the order: what was delivered before is the same."""
    loader = load(WAYS["batch"](dataflow.open(url)), on_error="raise")
    rows: Found = {}
    with pytest.raises(CorruptDataError):
        take_all(loader, rows)
    assert len(rows) < COUNT
    resumed = load(WAYS["batch"](dataflow.open(url)))
    resumed.load_state_dict(loader.state_dict())
    assert rows | found(resumed) == straight


@pytest.mark.parametrize("options", [{"end": "exact"}, {"steps_per_epoch": 6}], ids=str)
def test_filters_see_what_replaced_a_row(url: str, options: dict[str, Any]) -> None:
    dataset = dataflow.open(url).decode(image=IMAGE).filter(lambda row: row["label"] in (8, 9, 23))
    loader = load(dataset, **options)
    rows = [sample for sample, label, _ in found(loader).values() if sample == label]
    assert set(rows) == {8, 9, 23}
    if "end" in options:
        assert sorted(rows) == [8, 8, 9, 23, 23, 23]
    assert {entry["sample_id"] for entry in loader.ledger()} <= set(BAD)


def test_the_ledger_says_which_rows_where_and_why(url: str, caplog: pytest.LogCaptureFixture) -> None:
    loader = load(WAYS["batch"](dataflow.open(url)).select(["image"]), epochs=3)
    with caplog.at_level(logging.WARNING):
        assert len(list(loader)) == 23
    ledger = loader.ledger()
    assert json.loads(json.dumps(ledger)) == ledger
    assert [entry["sample_id"] for entry in ledger] == sorted(BAD)
    first = ledger[0]
    assert first["shard"].startswith(f"{first['url']}/")
    assert first["shard"].endswith(".arrow")
    del first["shard"]
    assert first == {
        "url": dataflow.open(url).manifest.url,
        "block": 2,
        "row": 3,
        "sample_id": 11,
        "key": "picture-11",
        "column": "image",
        "reason": "is empty",
    }
    assert [entry["reason"] for entry in ledger[2:4]] == ["is null", "is no image but HTML or XML"]
    assert sum("is replaced" in record.message for record in caplog.records) == len(BAD)
    assert loader.stats()["replaced_rows"] == len(BAD)
    assert "were replaced: 6, see loader.ledger()" in loader.report()


def test_nothing_is_listed_where_nothing_is_replaced(url: str) -> None:
    loader = load(dataflow.open(url), on_error="raise")
    next(iter(loader))
    assert loader.ledger() == []
    assert "replaced" not in loader.report()


def test_a_block_without_a_good_row_is_an_error(tmp_path: Path) -> None:
    images: list[bytes | None] = [*many(12)]
    images[4:8] = [b"", b"", None, b"x"]
    dataset = dataflow.open(write(tmp_path, images))
    for way in ("batch", "sample"):
        with pytest.raises(CorruptDataError, match=r"of block 1 .*no other row of its block can replace it"):
            list(load(WAYS[way](dataset)))


def test_a_row_is_good_when_all_of_its_columns_are(tmp_path: Path) -> None:
    images = many(4)
    schema = pa.schema([("left", pa.binary()), ("right", pa.binary()), ("label", pa.int64())])
    with dataflow.ShardWriter(str(tmp_path), schema, rows_per_block=4) as writer:
        for number, data in enumerate(images):
            left, right = (b"" if number == 1 else data), (b"" if number == 2 else data)
            writer.write({"left": left, "right": right, "label": number})
    dataset = dataflow.open(str(tmp_path)).decode(left=dataflow.Image(16), right=dataflow.Image(16))
    for each in (dataset, dataset.map(lambda row: row)):
        loader = load(each, shuffle=False, batch_size=4)
        (batch,) = loader
        assert batch["label"].tolist() == [0, 3, 3, 3]
        assert (batch["left"] == batch["right"]).all()
        assert [(entry["sample_id"], entry["column"]) for entry in loader.ledger()] == [(1, "left"), (2, "right")]


def test_only_stored_rows_can_be_replaced(url: str) -> None:
    dataset = dataflow.open(url)
    for each in (
        dataset.map(lambda row: row).decode(image=IMAGE),
        dataset.filter(lambda row: True).decode(image=IMAGE).map(lambda row: row),
    ):
        with pytest.raises(OptionError, match="put decode"):
            load(each, steps_per_epoch=5)
    with pytest.raises(OptionError, match="on_error='ignore'"):
        load(dataset, on_error="ignore")


def test_a_library_that_is_missing_is_no_bad_row(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(OptionError, match="pip install"):
        list(load(WAYS["batch"](dataflow.open(url))))


@pytest.mark.parametrize("most", [5, 0.09])
def test_too_many_bad_rows_stop_the_run_with_the_ledger_written(url: str, tmp_path: Path, most: float) -> None:
    place = tmp_path / "ledger.jsonl"
    loader = load(WAYS["batch"](dataflow.open(url)), num_workers=1, max_errors=most, ledger_url=str(place))
    with pytest.raises(CorruptDataError, match=r"6 rows of .* do not decode, max_errors= allows 5.*ledger\.jsonl"):
        take_all(loader, {})
    assert [json.loads(line) for line in place.read_text().splitlines()] == loader.ledger()
    assert [entry["sample_id"] for entry in loader.ledger()] == sorted(BAD)


@pytest.mark.parametrize("most", [6, 0.1])
def test_as_many_bad_rows_as_are_allowed_do_not(url: str, straight: Found, most: float) -> None:
    assert found(load(WAYS["batch"](dataflow.open(url)), max_errors=most)) == straight


def test_the_ledger_is_written_whenever_an_iteration_ends(url: str, s3_url: str) -> None:
    place = f"{s3_url}/run/ledger-0.jsonl"
    loader = load(WAYS["batch"](dataflow.open(url)), num_workers=0, ledger_url=place)

    def written() -> list[dict[str, Any]]:
        store = open_store(f"{s3_url}/run")
        data = bytes(store.read_range("ledger-0.jsonl", 0, store.size("ledger-0.jsonl")))
        return [json.loads(line) for line in data.splitlines()]

    for _ in loader:
        if loader.ledger():
            break
    gc.collect()
    assert 0 < len(written()) <= len(BAD)
    assert written() == loader.ledger()
    take_all(loader, {})
    assert written() == loader.ledger()
    assert len(written()) == len(BAD)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_error": "raise", "max_errors": 3}, "max_errors= goes with on_error='skip'"),
        ({"on_error": "raise", "ledger_url": "ledger"}, "ledger_url= goes with"),
        *[({"max_errors": value}, "max_errors=") for value in (-1, 1.0, 0.0, 1.5, "3", True)],
        *[({"ledger_url": value}, "ledger_url=") for value in ("", 3)],
    ],
)
def test_bounds_that_make_no_sense_are_refused(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        load(WAYS["batch"](dataflow.open(url)), **options)
