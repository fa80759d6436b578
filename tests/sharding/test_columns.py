"""Columns that are chosen and renamed, and the first rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataflow.dataset import Manifest, read_block
from dataflow.errors import OptionError
from dataflow.sharding import Rename, Select, ShardOptions, Step
from dataflow.storage import open_store
from tests.sharding.conftest import Fill, contents, images, shard

ROWS = [{"key": f"{n:04d}", "a": n, "b": str(n)} for n in range(500)]


def rows(manifest: Manifest) -> list[dict[str, Any]]:
    store = open_store(manifest.base_url)
    return [row for block in range(manifest.num_blocks) for row in read_block(store, manifest, block).to_pylist()]


def source(fill: Fill) -> str:
    return str(fill({"a.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode()}))


def test_columns_are_chosen_in_the_order_given_and_renamed(fill: Fill, tmp_path: Path) -> None:
    options = ShardOptions(seed=None, steps=(Select(("b", "a")), Rename((("a", "b"), ("b", "a")))))
    made = shard(source(fill), str(tmp_path / "out"), options)
    assert made.schema.names == ["a", "b"]
    assert rows(made) == [{"a": row["b"], "b": row["a"]} for row in ROWS]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Select(("a", "c")), "no column 'c': there are 'key', 'a', 'b'"),
        (Rename((("c", "d"),)), "no column 'c'"),
        (Rename((("a", "b"),)), "two columns 'b' after renaming"),
    ],
)
def test_columns_that_do_not_exist_or_collide(fill: Fill, tmp_path: Path, step: Step, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        shard(source(fill), str(tmp_path / "out"), ShardOptions(steps=(step,)))
    assert not (tmp_path / "out" / "manifest.arrow").exists()


def test_steps_that_make_no_sense() -> None:
    with pytest.raises(OptionError, match="'a' comes twice"):
        Select(("a", "a"))
    with pytest.raises(OptionError, match="at least one"):
        Select(())
    with pytest.raises(OptionError, match="'b' comes twice among the new"):
        Rename((("a", "b"), ("c", "b")))
    with pytest.raises(OptionError, match="empty name"):
        Rename((("a", ""),))


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("limit", [1, 37, 400])
def test_a_limit_takes_the_first_rows(fill: Fill, tmp_path: Path, seed: int | None, limit: int) -> None:
    options = ShardOptions(seed=seed, block_bytes=500, shard_bytes=2000, limit=limit)
    where = source(fill)
    made = [shard(where, str(tmp_path / f"{workers}"), options, workers=workers) for workers in (1, 2)]
    assert contents(made[0].url) == contents(made[1].url)
    found = rows(made[0])
    assert len({row["key"] for row in found}) == len(found) == limit
    if seed is None:
        assert found == ROWS[:limit]


def test_a_limit_reads_no_other_images(fill: Fill, tmp_path: Path) -> None:
    folder = fill({name: data for name, data in images(60).items() if data})
    limited = ShardOptions(limit=10, seed=5)
    first = [row["key"] for row in rows(shard(str(folder), str(tmp_path / "whole"), ShardOptions(seed=5)))][:10]
    # Those that are not among the first ones are bad now, which nobody notices.
    for path in folder.rglob("*.jpg"):
        if str(path.relative_to(folder)) not in first:
            path.write_bytes(b"no image")
    assert [row["key"] for row in rows(shard(str(folder), str(tmp_path / "out"), limited))] == first


def test_a_limit_beyond_the_end_takes_everything(fill: Fill, tmp_path: Path) -> None:
    assert len(rows(shard(source(fill), str(tmp_path / "out"), ShardOptions(limit=10_000)))) == len(ROWS)
    with pytest.raises(OptionError, match="limit is 0"):
        ShardOptions(limit=0)
