"""Shards that are added to a dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow
from dataflow.dataset import Manifest, read_block
from dataflow.errors import DatasetError, OptionError
from dataflow.sharding import ShardOptions
from dataflow.storage import open_store
from tests.sharding.conftest import Fill, contents, images, picture, shard

SMALL = ShardOptions(on_error="skip", block_bytes=10_000, shard_bytes=60_000)
MORE = ShardOptions(on_error="skip", shard_bytes=60_000, append=True)


def rows(manifest: Manifest) -> list[dict[str, object]]:
    store = open_store(manifest.base_url)
    return [row for block in range(manifest.num_blocks) for row in read_block(store, manifest, block).to_pylist()]


def described(count: int, first: int = 0, **fields: object) -> dict[str, bytes]:
    lines = (json.dumps({"file_name": f"{n}.jpg"} | fields) for n in range(first, first + count))
    return {f"{n}.jpg": picture(n) for n in range(first, first + count)} | {"metadata.jsonl": "\n".join(lines).encode()}


@pytest.mark.parametrize("on_s3", [False, True], ids=["local", "s3"])
def test_old_shards_stay_and_a_state_opens_their_prefix(
    fill: Fill, tmp_path: Path, s3_url: str, on_s3: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = f"{s3_url}/out" if on_s3 else str(tmp_path / "out")
    old = shard(str(fill(images(100))), target, SMALL)
    before = contents(target)
    old_rows = rows(old)
    loader = dataflow.DataLoader(dataflow.open(target), batch_size=4, shuffle=True, seed=3)
    iteration = iter(loader)
    first = [next(iteration)["sample_id"].tolist() for _ in range(3)]
    state = loader.state_dict()
    rest = [batch["sample_id"].tolist() for batch in iteration]

    more = {f"{n % 3}/new-{n}.jpg": picture(n) for n in range(60)}
    new = shard(str(fill(more)), target, MORE, workers=2)
    after = contents(target)
    assert {path: after[path] for path in before if path != "manifest.arrow"} == {
        path: data for path, data in before.items() if path != "manifest.arrow"
    }
    assert sorted(after) == ["manifest.arrow", *(f"shard-{number:05d}.arrow" for number in range(new.num_shards))]
    assert new.num_shards > old.num_shards + 1
    assert new.block_rows == old.block_rows
    assert new.properties == old.properties
    prefix = new.prefix(old.fingerprint)
    assert prefix is not None
    assert rows(prefix) == old_rows
    assert {row["key"]: (row["image"], row["label"]) for row in rows(new)[old.num_rows :]} == {
        key: (data, int(key[0])) for key, data in more.items()
    }
    longer = dataflow.DataLoader(dataflow.open(target), batch_size=4, shuffle=True, seed=3)
    longer.load_state_dict(state)
    assert [batch["sample_id"].tolist() for batch in longer] == rest
    assert sorted(number for batch in first + rest for number in batch) == list(range(old.num_rows))


def test_sh17_columns_that_one_side_lacks_are_null(fill: Fill, tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    old = shard(str(fill(described(40, caption="a", score=0.5))), target, SMALL)
    shard(str(fill(described(30, 100, caption="b", size=[1, 2]))), target, MORE)
    third = shard(str(fill(described(20, 200, size=[3]))), target, MORE)
    assert third.schema.names == ["key", "image", "caption", "score", "size"]
    found = {
        str(row["key"]): (row["caption"], row["score"], row["size"], row["image"])
        for row in rows(Manifest.open(target))
    }
    assert found == {f"{n}.jpg": ("a", 0.5, None, picture(n)) for n in range(40)} | {
        f"{n}.jpg": ("b", None, [1, 2], picture(n)) for n in range(100, 130)
    } | {f"{n}.jpg": (None, None, [3], picture(n)) for n in range(200, 220)}
    assert third.prefix(old.fingerprint) is not None
    # Once more through a reader that knows nothing of details: the dataset is sharded anew.
    anew = shard(target, str(tmp_path / "anew"), SMALL)
    assert {str(row["key"]): row for row in rows(anew)} == {str(row["key"]): row for row in rows(third)}


def test_sh17_another_type_is_refused_and_nothing_changes(fill: Fill, tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    shard(str(fill(described(10, score=0.5))), target, SMALL)
    before = contents(target)
    with pytest.raises(DatasetError, match="column 'score' is string, and double in"):
        shard(str(fill(described(10, 100, score="high"))), target, MORE)
    assert contents(target) == before


def test_there_has_to_be_a_dataset_of_arrow_shards(fill: Fill, tmp_path: Path) -> None:
    source = str(fill(images(10)))
    with pytest.raises(OptionError, match=r"no dataset at .* to append to"):
        shard(source, str(tmp_path / "none"), MORE)
    shard(source, str(tmp_path / "out"), SMALL)
    dataflow.dataset.index(str(tmp_path / "out"), out=str(tmp_path / "elsewhere"))
    with pytest.raises(OptionError, match="beside their manifest"):
        shard(source, str(tmp_path / "elsewhere"), MORE)


def test_sh18_classes_keep_their_numbers(fill: Fill, tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    shard(str(fill({f"{name}/1.jpg": picture(ord(name)) for name in "abc"})), target, SMALL)
    new = shard(str(fill({"c/2.jpg": picture(1)})), target, MORE)
    assert rows(new)[-1]["label"] == 2
    with pytest.raises(OptionError, match=r"d/1\.jpg"):
        shard(str(fill({"d/1.jpg": picture(1)})), target, MORE)


def test_shards_of_other_names_are_left_alone(fill: Fill, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("shard-00007.arrow", "mine.arrow"):
        with pa.ipc.new_file(str(folder / name), pa.schema([("key", pa.string()), ("image", pa.binary())])) as writer:
            writer.write_batch(pa.record_batch({"key": [name], "image": [b"x"]}))
    dataflow.dataset.index(str(folder))
    new = shard(str(fill({"a.jpg": picture(1)})), str(folder), MORE)
    paths = [new.shard_path(number) for number in range(new.num_shards)]
    assert paths == ["mine.arrow", "shard-00007.arrow", "shard-00008.arrow"]
    assert [row["key"] for row in rows(new)] == ["mine.arrow", "shard-00007.arrow", "a.jpg"]
