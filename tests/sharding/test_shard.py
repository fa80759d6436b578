"""What shards hold follows from the source and the options alone."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dataflow
from dataflow.dataset import Manifest, read_block
from dataflow.errors import CorruptDataError, DataflowError, OptionError
from dataflow.formats import Skipped
from dataflow.sharding import Done, ShardOptions, Step
from dataflow.storage import open_store
from tests.formats.archives import pack
from tests.sharding.conftest import Fill, contents, images, picture, shard, tars

SMALL = ShardOptions(on_error="skip", block_bytes=10_000, shard_bytes=60_000)


def rows(manifest: Manifest) -> list[dict[str, Any]]:
    store = open_store(manifest.base_url)
    return [row for block in range(manifest.num_blocks) for row in read_block(store, manifest, block).to_pylist()]


@pytest.mark.parametrize(
    ("files", "seed"), [(lambda: images(300), None), (lambda: tars(8, 40), 0)], ids=["images in order", "tars shuffled"]
)
def test_any_number_of_workers_writes_the_same(
    fill: Fill, tmp_path: Path, files: Callable[[], dict[str, bytes]], seed: int | None
) -> None:
    source = str(fill(files()))
    reports: list[list[Skipped]] = [[], [], []]
    found = []
    for workers, report in zip((1, 2, 3), reports, strict=True):
        target = str(tmp_path / f"{workers}")
        shard(source, target, replace(SMALL, seed=seed), workers=workers, on_skip=report.append)
        found.append(contents(target))
    assert len(found[0]) > 6
    assert found[0] == found[1] == found[2]
    assert reports[0] == reports[1] == reports[2] != []


def test_blocks_are_equal_though_items_have_many_rows(fill: Fill, tmp_path: Path) -> None:
    source = str(fill(tars(13, 41)))
    manifest = shard(source, str(tmp_path / "out"), replace(SMALL, on_error="skip"))
    assert manifest.num_shards > 5
    # Shards begin and end within source blocks; what was left out makes a shard's last block shorter.
    short = [rows for rows in manifest.rows[:-1].tolist() if rows != manifest.block_rows]
    assert len(short) <= 6
    assert sorted(int(row["key"]) for row in rows(manifest)) == [n for n in range(13 * 41) if n % 89 != 7]


def test_one_large_row_changes_the_blocks_around_it_only(fill: Fill, tmp_path: Path) -> None:
    files = {f"{n:03d}.jpg": picture(n) for n in range(100)}
    files["050.jpg"] += bytes(3 << 20)
    manifest = shard(str(fill(files)), str(tmp_path / "out"), replace(SMALL, seed=None, block_bytes=200_000))
    n = manifest.block_rows
    first_rows = [int(row) for row in manifest.first_rows]
    assert [row for row in range(0, 100, n) if row not in first_rows] == []
    assert {50, 51} <= {*first_rows, 100}
    assert [row["key"] for row in rows(manifest)] == sorted(files)


def test_a_true_shuffle_across_shards(fill: Fill, tmp_path: Path) -> None:
    source = fill({f"{n:04d}.jpg": picture(n) for n in range(600)})
    order = [int(row["key"][:4]) for row in rows(shard(str(source), str(tmp_path / "out"), SMALL))]
    assert sorted(order) == list(range(600))
    assert sum(a + 1 == b for a, b in itertools.pairwise(order)) < 8
    assert abs(np.corrcoef(order, range(600))[0, 1]) < 0.15


def test_finished_shards_of_the_same_plan_are_kept_and_bad_ones_made_anew(fill: Fill, tmp_path: Path) -> None:
    source = fill({f"{n:04d}.jpg": picture(n) for n in range(300)})
    target = tmp_path / "out"
    bad = source / "0299.jpg"
    whole = bad.read_bytes()
    options = replace(SMALL, on_error="raise", seed=None)
    expected = contents(shard(str(source), str(tmp_path / "whole"), options).url)
    bad.write_bytes(b"\0" * len(whole))
    os.utime(bad, ns=(1, 1))
    with pytest.raises(CorruptDataError, match=r"0299.jpg is no image.*--on-error skip"):
        shard(str(source), str(target), options)
    kept = {path.name: path.stat().st_ino for path in target.glob("shard-*")}
    assert len(kept) > 5
    assert not list(target.glob(".*.partial"))
    damaged = target / "shard-00001.arrow"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    skipped: list[Skipped] = []
    manifest = shard(str(source), str(target), replace(options, on_error="skip"), on_skip=skipped.append)
    assert skipped == [Skipped("0299.jpg", "is no image", "it begins with b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'")]
    now = {path.name: path.stat().st_ino for path in target.glob("shard-*")}
    assert {name for name in kept if kept[name] == now[name]} == kept.keys() - {"shard-00001.arrow"}
    assert contents(target)["shard-00001.arrow"] == expected["shard-00001.arrow"]
    assert manifest.num_rows == 299


def test_sh17_another_source_begins_anew(fill: Fill, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = fill({f"{n:04d}.jpg": picture(n) for n in range(300)} | {"0299.jpg": b"bad"})
    target = str(tmp_path / "out")
    options = replace(SMALL, on_error="raise", seed=None)
    with pytest.raises(CorruptDataError):
        shard(str(source), target, options)
    (source / "0299.jpg").write_bytes(picture(299))
    shard(str(source), target, options)
    assert "shards of a run that did not finish" in caplog.text
    assert contents(target) == contents(shard(str(source), str(tmp_path / "straight"), options).url)


def test_sh15_the_first_error_is_raised_whatever_the_timing(fill: Fill, tmp_path: Path) -> None:
    files = {f"{n:04d}.jpg": picture(n) for n in range(300)} | {f"{n:04d}.jpg": b"bad" for n in (150, 200, 299)}
    source = str(fill(files))
    for workers in (1, 3):
        with pytest.raises(CorruptDataError, match=r"0150\.jpg"):
            shard(source, str(tmp_path / "out"), replace(SMALL, on_error="raise", seed=None), workers=workers)


def test_a_worker_that_is_killed_ends_the_run(fill: Fill, tmp_path: Path) -> None:
    source = str(fill({f"{n:04d}.jpg": picture(n) for n in range(400)}))
    target = str(tmp_path / "out")
    killed = []

    def kill_one(done: Done) -> None:
        if done.rows and not killed:
            workers = [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())]
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)

    with pytest.raises(DataflowError, match="was killed, perhaps because memory ran out"):
        shard(source, target, SMALL, workers=2, on_progress=kill_one)
    assert not [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())]
    assert contents(shard(source, target, SMALL, workers=2).url) == contents(
        shard(source, str(tmp_path / "straight"), SMALL).url
    )


def test_damaged_blocks_are_left_out_and_an_outage_never_is(fill: Fill, tmp_path: Path) -> None:
    source = tmp_path / "source"
    with dataflow.ShardWriter(str(source), rows_per_block=10, shard_bytes=1000) as writer:
        for number in range(100):
            writer.write({"number": number})
    first = sorted(source.glob("shard-*"))[0]
    data = bytearray(first.read_bytes())
    manifest = Manifest.open(str(source))
    data[int(manifest.starts[0]) + int(manifest.lengths[0]) - 4] ^= 1
    first.write_bytes(data)
    with pytest.raises(CorruptDataError, match="block 0"):
        shard(str(source), str(tmp_path / "out"), replace(SMALL, on_error="raise"))
    skipped: list[Skipped] = []
    made = shard(str(source), str(tmp_path / "out"), SMALL, on_skip=skipped.append)
    assert [item.reason for item in skipped] == ["is damaged"]
    assert sorted(row["number"] for row in rows(made)) == list(range(10, 100))
    sorted(source.glob("shard-*"))[-1].unlink()
    with pytest.raises(OSError, match="could not"):
        shard(str(source), str(tmp_path / "other"), SMALL)


@dataclass(frozen=True)
class Measured(Step):
    """A step: adds the length of the image, and takes the image out."""

    def schema(self, schema: pa.Schema) -> pa.Schema:
        return schema.remove(schema.get_field_index("image")).append(pa.field("length", pa.int32()))

    def apply(self, batch: pa.RecordBatch, skip: bool) -> tuple[pa.RecordBatch, list[Skipped]]:
        lengths = pc.binary_length(batch.column("image"))
        return batch.drop_columns("image").append_column(pa.field("length", pa.int32()), lengths), []


def test_steps_change_rows_before_they_are_cut(fill: Fill, tmp_path: Path) -> None:
    files = {f"{n:04d}.jpg": picture(n) for n in range(400)}
    source = str(fill(files))
    made = [
        shard(
            source, str(tmp_path / f"{workers}"), replace(SMALL, block_bytes=1000, steps=(Measured(),)), workers=workers
        )
        for workers in (1, 2)
    ]
    assert contents(made[0].url) == contents(made[1].url)
    assert {row["key"]: row["length"] for row in rows(made[0])} == {name: len(data) for name, data in files.items()}
    # Blocks are as large as wanted after the step.
    assert 30 < made[0].block_rows < 80


def test_images_that_no_block_can_hold_are_named(fill: Fill, tmp_path: Path) -> None:
    source = fill({"a.jpg": picture(1)})
    with open(source / "large.jpg", "wb") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(CorruptDataError, match=r"large\.jpg is too large \(1073741825 bytes"):
        shard(str(source), str(tmp_path / "out"), replace(SMALL, on_error="raise"))
    skipped: list[Skipped] = []
    assert shard(str(source), str(tmp_path / "out"), SMALL, on_skip=skipped.append).num_rows == 1
    assert [(item.name, item.reason) for item in skipped] == [("large.jpg", "is too large")]


def test_options_that_make_no_sense() -> None:
    with pytest.raises(OptionError, match="block_bytes is 0"):
        ShardOptions(block_bytes=0)
    with pytest.raises(OptionError, match="'ignore'"):
        ShardOptions(on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="128 bits"):
        ShardOptions(seed=1 << 200)


def test_md02_arrays_without_dimensions_or_values(tmp_path: Path) -> None:
    with dataflow.ShardWriter(str(tmp_path / "d")) as writer:
        with pytest.raises(OptionError, match=r"shape \(\)"):
            writer.write({"x": np.empty(()), "y": np.float32(1.5)})
        with pytest.raises(OptionError, match=r"shape \(0, 3\)"):
            writer.write({"x": np.zeros((0, 3)), "y": np.float32(1.5)})
        for _ in range(3):
            writer.write({"x": np.zeros(0, np.float32), "y": np.float32(1.5)})
    made = shard(str(tmp_path / "d"), str(tmp_path / "out"), SMALL)
    assert made.schema == pa.schema([("x", pa.list_(pa.float32())), ("y", pa.float32())])
    assert rows(made) == [{"x": [], "y": 1.5}] * 3


def test_a_tar_within_a_target_that_is_refused_leaves_nothing(fill: Fill, tmp_path: Path) -> None:
    target = str(tmp_path / "out")
    shard(str(fill({"a.jpg": picture(1)})), target, SMALL)
    before = contents(target)
    source = str(fill({"a.tar": pack([("1.image", b"x"), ("1.key", b"y")])}))
    with pytest.raises(DataflowError):
        shard(source, target, ShardOptions(append=True))
    assert contents(target) == before
    assert json.loads(json.dumps(Manifest.open(target).properties)) == {"shuffle_seed": 0}
