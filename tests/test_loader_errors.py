"""Errors reach the caller of next() or of the constructor: the original one, soon, with thing, place and remedy."""

from __future__ import annotations

import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dataflow
from dataflow.errors import (
    CorruptDataError,
    DataflowError,
    DatasetError,
    FilterError,
    OptionError,
    StateError,
    StorageNotFoundError,
)
from tests.conformance.data import write_nothing, write_rows
from tests.conformance.watchdog import limited

some_workers = pytest.mark.parametrize("workers", [0, 1, 4])


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """Nothing may hang."""
    with limited(60):
        yield


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_rows(tmp_path_factory.mktemp("errors") / "rows", 200)


class Trouble(Exception):
    """Not an error of this project."""


def failing(error: BaseException) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def fail_at_57(sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["number"]) == 57:
            raise error
        return sample

    return fail_at_57


def collect(loader: dataflow.DataLoader, seen: list[int], times: list[float]) -> None:
    """Take all batches that come: their rows, and when they came."""
    for batch in loader:
        seen += batch["number"].tolist()
        times.append(time.perf_counter())


@some_workers
@pytest.mark.parametrize("kind", ["map", "filter", "map before a filter", "map after a filter"])
@pytest.mark.parametrize(
    "error", [Trouble("no such luck"), KeyError("col"), MemoryError(), SystemExit(3), KeyboardInterrupt()], ids=repr
)
def test_st11_dl02_an_error_in_a_stage_reaches_the_consumer(
    url: str, workers: int, kind: str, error: BaseException
) -> None:
    function = failing(error)
    dataset = dataflow.open(url)
    options: dict[str, Any] = {"end": "exact"}
    if kind == "map":
        dataset, options = dataset.map(function), {}
    elif kind == "filter":
        dataset = dataset.filter(function, name="fail_at_57")
    elif kind == "map before a filter":
        dataset = dataset.map(function).filter(lambda sample: True)
    else:
        dataset = dataset.filter(lambda sample: True).map(function)
    loader = dataflow.DataLoader(dataset, batch_size=4, num_workers=workers, **options)
    seen: list[int] = []
    times: list[float] = []
    with pytest.raises(type(error)) as caught:
        collect(loader, seen, times)
    assert time.perf_counter() - times[-1] < 1
    assert caught.value is error, "the original one"
    assert seen == list(range(56)), "all batches before it come first"
    text = "".join(traceback.format_exception(caught.value))
    assert "in fail_at_57" in text, "the traceback goes into the user's function"
    if isinstance(error, Exception):
        assert "fail_at_57', on row 1 of block 14 in epoch 0" in text
    if isinstance(error, Trouble):
        assert "Trouble: no such luck\n" in text
    error.__traceback__ = None


def test_dl02_a_key_error_is_readable(url: str) -> None:
    loader = dataflow.DataLoader(dataflow.open(url).map(lambda sample: sample["col"]), num_workers=1)
    with pytest.raises(KeyError) as caught:
        next(iter(loader))
    lines = traceback.format_exception(caught.value)
    assert "KeyError: 'col'\n" in "".join(lines)


@some_workers
def test_an_error_in_collate_fn_reaches_the_consumer(url: str, workers: int) -> None:
    def collate(samples: list[dict[str, Any]]) -> Any:
        raise Trouble(len(samples))

    loader = dataflow.DataLoader(dataflow.open(url), batch_size=4, num_workers=workers, collate_fn=collate)
    with pytest.raises(Trouble):
        next(iter(loader))


def test_an_iteration_after_an_error_begins_anew(url: str) -> None:
    fails = [True]

    def once(sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["number"]) == 57 and fails:
            fails.clear()
            raise Trouble
        return sample

    loader = dataflow.DataLoader(dataflow.open(url).map(once), batch_size=4, num_workers=2)
    iterator = iter(loader)
    with pytest.raises(Trouble):
        list(iterator)
    assert loader.state_dict()["slots"] == 56
    with pytest.raises(DataflowError, match="closed"):
        next(iterator)
    assert [slot for batch in loader for slot in batch["slot"].tolist()] == list(range(200))


def test_a_state_from_before_an_error_goes_on_there(url: str) -> None:
    loader = dataflow.DataLoader(dataflow.open(url).map(failing(Trouble()), name="m"), batch_size=4, num_workers=2)
    with pytest.raises(Trouble):
        list(loader)
    resumed = dataflow.DataLoader(dataflow.open(url).map(lambda sample: sample, name="m"), batch_size=4)
    resumed.load_state_dict(loader.state_dict())
    assert next(iter(resumed))["slot"].tolist() == [56, 57, 58, 59]


@pytest.mark.parametrize("workers", [1, 4])
def test_timeout_names_itself_and_what_is_missing(url: str, workers: int) -> None:
    gate = threading.Event()
    loader = dataflow.DataLoader(
        dataflow.open(url).map(lambda sample: gate.wait(3) and sample),
        batch_size=1,
        num_workers=workers,
        timeout=0.3,
    )
    start = time.perf_counter()
    with pytest.raises(DataflowError, match=r"no batch within 0\.3 s.*timeout="):
        next(iter(loader))
    assert time.perf_counter() - start < 2.5
    gate.set()


@some_workers
@pytest.mark.parametrize("options", [{"steps_per_epoch": 5}, {"end": "exact"}], ids=str)
def test_a_filter_that_drops_everything_is_named(url: str, workers: int, options: dict[str, Any]) -> None:
    dataset = dataflow.open(url).filter(lambda sample: False, name="never_true")
    loader = dataflow.DataLoader(dataset, batch_size=4, num_workers=workers, shuffle=True, lanes=8, **options)
    with pytest.raises(FilterError, match="never_true"):
        next(iter(loader))


def test_a_lane_without_items_is_no_error_at_an_exact_end(url: str) -> None:
    dataset = dataflow.open(url).filter(lambda sample: sample["number"] == 77)
    loader = dataflow.DataLoader(dataset, batch_size=4, shuffle=True, lanes=8, end="exact")
    batches = list(loader)
    assert [s for b in batches for s, v in zip(b["sample_id"].tolist(), b["valid"].tolist(), strict=True) if v] == [77]


@pytest.fixture
def copy(url: str, tmp_path: Path) -> Path:
    """A dataset to damage, after its manifest was written."""
    return Path(shutil.copytree(url, tmp_path / "copy"))


def first_shard(folder: Path) -> Path:
    return sorted(path for path in folder.iterdir() if path.name != "manifest.arrow")[0]


@some_workers
@pytest.mark.parametrize("filtered", [False, True])
def test_a_flipped_byte_is_found_and_placed(copy: Path, workers: int, filtered: bool) -> None:
    dataset = dataflow.open(str(copy))
    manifest = dataset.manifest
    shard = first_shard(copy)
    data = bytearray(shard.read_bytes())
    at = int(manifest.starts[7]) + int(manifest.lengths[7]) - 3
    data[at] ^= 1
    shard.write_bytes(data)
    options: dict[str, Any] = {}
    if filtered:
        dataset, options = dataset.filter(lambda sample: True), {"end": "exact"}
    loader = dataflow.DataLoader(dataset, batch_size=4, num_workers=workers, **options)
    seen: list[int] = []
    with pytest.raises(CorruptDataError, match=rf"block 7 \(.*{shard.name}, bytes .*rows 28-31\).*xxh3-128") as caught:
        collect(loader, seen, [])
    assert seen == list(range(28))
    assert manifest.checksum(7).hex() in str(caught.value)


@some_workers
def test_a_truncated_shard_is_found_and_placed(copy: Path, workers: int) -> None:
    shard = first_shard(copy)
    manifest = dataflow.open(str(copy)).manifest
    expected = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[: int(manifest.starts[9]) + 100])
    loader = dataflow.DataLoader(dataflow.open(str(copy)), batch_size=4, num_workers=workers)
    seen: list[int] = []
    with pytest.raises(CorruptDataError, match=rf"block 9 \(.*{shard.name}.*manifest says {expected}"):
        collect(loader, seen, [])
    assert seen == list(range(36))


@some_workers
def test_a_missing_shard_is_named(copy: Path, workers: int) -> None:
    shard = first_shard(copy)
    shard.unlink()
    with pytest.raises(StorageNotFoundError, match=shard.name):
        next(iter(dataflow.DataLoader(dataflow.open(str(copy)), batch_size=4, num_workers=workers)))


def test_a_rewritten_dataset_is_not_mixed_with_the_old_one(copy: Path) -> None:
    loader = dataflow.DataLoader(dataflow.open(str(copy)), batch_size=4)
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    for path in copy.iterdir():
        path.unlink()
    write_rows(copy, 200, rows_per_block=5)
    with pytest.raises(CorruptDataError, match="block"):
        list(loader)
    with pytest.raises(StateError):
        dataflow.DataLoader(dataflow.open(str(copy)), batch_size=4).load_state_dict(loader.state_dict())


def test_a_dataset_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("empty", "nowhere"):
        with pytest.raises(DatasetError, match=place):
            dataflow.open(str(tmp_path / place))


def test_a_dataset_of_no_rows(tmp_path: Path) -> None:
    dataset = dataflow.open(write_nothing(tmp_path / "nothing"))
    assert len(dataset) == 0
    for workers in (0, 2):
        loader = dataflow.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=workers)
        assert len(loader) == 0
        assert list(loader) == []
    with pytest.raises(OptionError, match=r"no rows.*steps_per_epoch"):
        dataflow.DataLoader(dataset, steps_per_epoch=3)
