"""Splits: no row is in two of them, and none ever moves from one to another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from dataflow.dataset import Manifest, read_block
from dataflow.errors import CorruptDataError, OptionError
from dataflow.sharding import ShardOptions
from dataflow.sharding.split import split_parts
from dataflow.storage import open_store
from tests.formats.archives import pack
from tests.sharding.conftest import Fill, contents, picture, shard_splits

SMALL = ShardOptions(block_bytes=1000, shard_bytes=5000)


def keys(manifest: Manifest, column: str = "key") -> list[Any]:
    store = open_store(manifest.base_url)
    return [
        key for block in range(manifest.num_blocks) for key in read_block(store, manifest, block)[column].to_pylist()
    ]


def jsonl(numbers: range) -> bytes:
    return "".join(json.dumps({"key": f"{n:05d}", "n": n}) + "\n" for n in numbers).encode()


def test_a_row_keeps_its_split_when_rows_are_added_and_however_it_comes(fill: Fill, tmp_path: Path) -> None:
    shares = {"train": 0.9, "val": 0.1}
    few = shard_splits(str(fill({"a.jsonl": jsonl(range(1000))})), str(tmp_path / "few"), shares, SMALL)
    assert set(keys(few["train"]) + keys(few["val"])) == {f"{n:05d}" for n in range(1000)}
    assert len(keys(few["train"]) + keys(few["val"])) == 1000
    assert 60 < few["val"].num_rows < 140
    many = shard_splits(
        str(fill({"0.jsonl": jsonl(range(1000, 3000)), "a.jsonl": jsonl(range(1000))})),
        str(tmp_path / "many"),
        shares,
        ShardOptions(seed=7),
    )
    for name in shares:
        assert set(keys(few[name])) < set(keys(many[name]))
    # The keys of tars are the same text, and so are in the same split.
    tar = fill({"0.tar": pack((f"{n:05d}.jpg", picture(n)) for n in range(40))})
    tars = shard_splits(str(tar), str(tmp_path / "tars"), {"val": "0.5", "rest": "0.5"}, SMALL)
    rows = shard_splits(str(fill({"a.jsonl": jsonl(range(40))})), str(tmp_path / "rows"), [0.5, 0.5], SMALL)
    assert set(keys(tars["val"])) == set(keys(rows["train"]))


def test_the_hash_never_changes() -> None:
    part = split_parts(["0.5", "0.5"], "key")["train"]
    values = [f"{n:05d}" for n in range(8)]
    below = [xxhash.xxh3_64_intdigest(value.encode(), seed=0x9E3779B97F4A7C15) < 1 << 63 for value in values]
    batch, _ = part.apply(pa.RecordBatch.from_pydict({"key": values}), skip=False)
    assert batch["key"].to_pylist() == [value for value, chosen in zip(values, below, strict=True) if chosen]
    assert batch["key"].to_pylist() == ["00000", "00001", "00004", "00005", "00007"]


def test_images_are_chosen_before_they_are_read(fill: Fill, tmp_path: Path) -> None:
    source = fill({f"{n % 2}/{n:03d}.jpg": picture(n) for n in range(100)})
    made = shard_splits(str(source), str(tmp_path / "out"), {"val": 0.2}, SMALL)
    chosen = keys(made["val"])
    assert 5 < len(chosen) < 40
    assert made["val"].properties["classes"] == ["0", "1"]
    for path in source.rglob("*.jpg"):
        if str(path.relative_to(source)) not in chosen:
            path.write_bytes(b"no image")
    again = shard_splits(str(source), str(tmp_path / "again"), {"val": 0.2}, SMALL)
    assert keys(again["val"]) == chosen
    # By another column that is known beforehand, too: all rows of a class are in one split, and the other one is empty.
    with pytest.raises(OptionError, match=r"split 'b'.*none of the rows"):
        shard_splits(str(source), str(tmp_path / "class"), {"a": "0.99999", "b": "0.00001"}, SMALL, by="label")


@pytest.mark.parametrize("kind", ["rows", "images"])
def test_any_number_of_workers_writes_the_same(fill: Fill, tmp_path: Path, kind: str) -> None:
    files = {"a.jsonl": jsonl(range(2000))} if kind == "rows" else {f"{n:03d}.jpg": picture(n) for n in range(60)}
    source = str(fill(files))
    for workers in (1, 2):
        shard_splits(source, str(tmp_path / f"{workers}"), [0.8, 0.2], SMALL, workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert len(contents(tmp_path / "1")) > 6


def test_rows_are_split_by_any_column_of_text_or_whole_numbers(fill: Fill, tmp_path: Path) -> None:
    rows = [{"group": n % 50, "n": n} for n in range(1000)]
    source = str(fill({"a.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode()}))
    with pytest.raises(OptionError, match=r"split 'train'.*no column 'key' to split by.*'group', 'n'"):
        shard_splits(source, str(tmp_path / "out"), [0.7, 0.3], SMALL)
    made = shard_splits(source, str(tmp_path / "out"), [0.7, 0.3], SMALL, by="group")
    groups = [set(keys(manifest, "group")) for manifest in made.values()]
    assert not groups[0] & groups[1]
    assert groups[0] | groups[1] == set(range(50))
    floats = str(fill({"a.jsonl": b'{"x": 0.5}\n'}))
    with pytest.raises(OptionError, match="'x' is double"):
        shard_splits(floats, str(tmp_path / "floats"), [0.7, 0.3], SMALL, by="x")
    nulls = str(fill({"a.jsonl": b'{"key": "a"}\n{"key": null}\n'}))
    with pytest.raises(CorruptDataError, match=r"a\.jsonl.*row 1 cannot be split: 'key' is null"):
        shard_splits(nulls, str(tmp_path / "nulls"), [0.7, 0.3], SMALL)


def test_a_run_that_stopped_between_splits_goes_on(fill: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = str(fill({"a.jsonl": jsonl(range(2000))})), tmp_path / "out"
    shard_splits(source, str(tmp_path / "whole"), [0.8, 0.2], SMALL)
    started: list[int] = []

    def stop_in_second(done: Any) -> None:
        if done.rows == 0:
            started.append(done.all_rows)
        elif len(started) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shard_splits(source, str(target), [0.8, 0.2], SMALL, on_progress=stop_in_second)
    before = {path: path.stat().st_mtime_ns for path in (target / "train").glob("*.arrow")}
    assert target / "train" / "manifest.arrow" in before
    shard_splits(source, str(target), [0.8, 0.2], SMALL)
    assert {path: path.stat().st_mtime_ns for path in (target / "train").glob("*.arrow")} == before
    assert contents(target) == contents(tmp_path / "whole")
    with pytest.raises(OptionError, match="holds a dataset already"):
        shard_splits(source, str(target), [0.8, 0.2], SMALL)


def test_splits_are_appended_to(fill: Fill, tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    shard_splits(str(fill({"a.jsonl": jsonl(range(1000))})), target, [0.8, 0.2], SMALL)
    more = str(fill({"a.jsonl": jsonl(range(1000, 2000))}))
    made = shard_splits(more, target, [0.8, 0.2], ShardOptions(append=True))
    whole = shard_splits(str(fill({"a.jsonl": jsonl(range(2000))})), str(tmp_path / "whole"), [0.8, 0.2], SMALL)
    for name, manifest in made.items():
        assert sorted(keys(manifest)) == sorted(keys(whole[name]))


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([0.9, 0.2], "more than 1 together"),
        (["0.9", "x"], "'val' is 'x', it must be a number"),
        ([1.5], "'train' is 1.5"),
        ([0.9, 0], "'val' is 0"),
        ([0.2] * 4, "4 splits without names"),
        ({"a/b": 0.5}, "'a/b' is no name"),
        ({"..": 0.5}, "'..' is no name"),
    ],
)
def test_shares_that_make_no_sense(fill: Fill, tmp_path: Path, shares: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        shard_splits(str(fill({"a.jsonl": jsonl(range(9))})), str(tmp_path / "out"), shares)
    assert not (tmp_path / "out").exists()


def test_a_split_without_rows_is_an_error(fill: Fill, tmp_path: Path) -> None:
    for number, files in enumerate(({"a.jsonl": jsonl(range(3))}, {"a.jpg": picture(1)})):
        with pytest.raises(OptionError, match="split 'val'"):
            shard_splits(str(fill(files)), str(tmp_path / f"{number}"), ["0.99999", "0.00001"])


def test_shares_are_exact() -> None:
    parts = split_parts(["0.7", "0.2", "0.1"], "key")
    assert list(parts) == ["train", "val", "test"]
    assert (parts["train"].low, parts["test"].high) == (0, 1 << 64)
    assert parts["train"].high == parts["val"].low
