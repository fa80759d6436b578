"""`dataflow shard --transcode`: JPEGs instead of the images as they came, the same bytes however they are made."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow
from dataflow.codecs.transcode import to_jpeg
from dataflow.dataset import Manifest, read_block
from dataflow.errors import CorruptDataError, OptionError
from dataflow.formats import Skipped
from dataflow.operations.merge import merge
from dataflow.operations.statistics import statistics
from dataflow.sharding import Rename, Select, ShardOptions, Transcode
from dataflow.storage import open_store
from tests.cli.conftest import Run, run
from tests.codecs.pictures import jpeg, many, saved, smooth
from tests.formats.archives import pack
from tests.sharding.conftest import Fill, contents, shard
from tests.sharding.test_killed import kill_and_go_on

__all__ = ["run"]

SMALL = Transcode(quality=80, max_side=48)
SPEC = "jpeg:q=80,subsampling=420,max_side=48"
DONE = {"columns": ["image"], "format": "jpeg", "quality": 80, "subsampling": "4:2:0", "max_side": 48}


def files(count: int = 40) -> dict[str, bytes]:
    """Images in two classes: JPEGs, one of them turned, and a PNG."""
    found = {f"{n % 2}/{n:03d}.jpg": data for n, data in enumerate(many(count))}
    return found | {"0/turned.jpg": jpeg(orientation=6), "1/other.png": saved(smooth())}


def small(data: bytes) -> bytes:
    return to_jpeg(data, 80, "4:2:0", 48)


def rows(manifest: Manifest) -> dict[str, dict[str, Any]]:
    store = open_store(manifest.base_url)
    return {
        row["key"]: row
        for block in range(manifest.num_blocks)
        for row in read_block(store, manifest, block).to_pylist()
    }


def test_images_of_folders(run: Run, fill: Fill, tmp_path: Path) -> None:
    source, target = fill(files()), tmp_path / "out"
    run("shard", source, target, "--transcode", SPEC)
    manifest = Manifest.open(str(target))
    found = rows(manifest)
    assert {key: row["image"] for key, row in found.items()} == {key: small(data) for key, data in files().items()}
    assert all(row["label"] == int(key[0]) for key, row in found.items())
    assert {max(PIL.Image.open(io.BytesIO(row["image"])).size) for row in found.values()} == {48}
    assert manifest.properties["transcoded"] == [DONE]
    shown = f"transcoded: [{json.dumps(DONE)}]"
    assert shown in run("info", target).stdout
    assert shown in run("stats", target, "--html", tmp_path / "page.html").stdout
    assert "transcoded:" in (tmp_path / "page.html").read_text()
    assert statistics(str(target)).to_json()["transcoded"] == [DONE]
    # Blocks are cut by what is written.
    assert contents(shard(str(source), str(tmp_path / "api"), ShardOptions(steps=(SMALL,))).url) == contents(target)
    batch = next(iter(dataflow.DataLoader(dataflow.open(str(target)).decode(image=dataflow.Image(32)), batch_size=4)))
    assert batch["image"].shape == (4, 3, 32, 32)


def test_nothing_is_transcoded_unless_asked_for(run: Run, fill: Fill, tmp_path: Path) -> None:
    run("shard", fill(files()), tmp_path / "out")
    assert {key: row["image"] for key, row in rows(Manifest.open(str(tmp_path / "out"))).items()} == files()
    for command in ("info", "stats"):
        assert "transcoded:" not in run(command, tmp_path / "out").stdout


def test_the_same_bytes_for_any_number_of_workers_and_again(fill: Fill, tmp_path: Path) -> None:
    source = str(fill(files() | {"0/bad.jpg": jpeg()[:-99]}))
    options = ShardOptions(steps=(SMALL,), block_bytes=4_000, shard_bytes=10_000, on_error="skip")
    made, reports = [], []
    for number, workers in enumerate((1, 2, 1)):
        skipped: list[Skipped] = []
        target = str(tmp_path / f"{number}")
        manifest = shard(source, target, options, workers=workers, on_skip=skipped.append)
        assert manifest.num_shards > 4
        made.append(contents(target))
        reports.append(skipped)
    assert made[0] == made[1] == made[2]
    assert reports[0] == reports[1] == reports[2] != []


@pytest.mark.soak
def test_sh06_killed_and_gone_on_with(run: Run, fill: Fill, tmp_path: Path) -> None:
    source = fill(files(150))
    options = ["--block-mib", "0.004", "--shard-mib", "0.01", "--workers", "2", "--transcode", SPEC]
    run("shard", *options, source, tmp_path / "expected")
    expected = contents(tmp_path / "expected")
    assert len(expected) > 10
    kill_and_go_on([*options, str(source)], str(tmp_path / "out"), kills=1, seed=1, expected=expected)


def test_what_was_finished_with_other_options_is_never_mixed_in(fill: Fill, tmp_path: Path) -> None:
    source = str(fill(files(90) | {"1/zz.jpg": jpeg()[:-99]}))
    cut = {"block_bytes": 4_000, "shard_bytes": 10_000, "seed": None}
    other = Transcode(quality=80, max_side=47)
    for steps in ((other,), ()):
        target = tmp_path / f"out-{len(steps)}"
        with pytest.raises(CorruptDataError):
            shard(source, str(target), ShardOptions(steps=(SMALL,), **cut))  # type: ignore[arg-type]
        finished = contents(target)
        assert sum(name.startswith("shard-") for name in finished) > 3
        options = ShardOptions(steps=steps, on_error="skip", **cut)  # type: ignore[arg-type]
        shard(source, str(target), options)
        shard(source, str(tmp_path / f"expected-{len(steps)}"), options)
        assert contents(target) == contents(tmp_path / f"expected-{len(steps)}")
        # Only on_error may change, and what is finished is kept then.
    target = tmp_path / "out"
    with pytest.raises(CorruptDataError):
        shard(source, str(target), ShardOptions(steps=(SMALL,), **cut))  # type: ignore[arg-type]
    before = {path.name: path.stat().st_ino for path in target.glob("shard-*")}
    assert len(before) > 3
    shard(source, str(target), ShardOptions(steps=(SMALL,), on_error="skip", **cut))  # type: ignore[arg-type]
    assert before.items() <= {path.name: path.stat().st_ino for path in target.glob("shard-*")}.items()


def test_im01_corrupt_images_end_the_run_or_are_left_out(run: Run, fill: Fill, tmp_path: Path) -> None:
    source = fill(files() | {"0/bad.jpg": jpeg()[:-99]})
    failed = run("shard", source, tmp_path / "out", "--transcode", SPEC, code=1)
    assert "'0/bad.jpg': column 'image' cannot be decoded" in " ".join(failed.stderr.split())
    report = tmp_path / "report"
    run("shard", source, tmp_path / "out", "--transcode", SPEC, "--on-error", "skip", "--report", report)
    assert rows(Manifest.open(str(tmp_path / "out"))).keys() == files().keys()
    (item,) = map(json.loads, report.read_text().splitlines())
    assert item["name"].startswith("'0/bad.jpg' of ")
    assert item["reason"] == "column 'image' cannot be transcoded"
    assert item["note"].startswith("cannot be decoded (OSError: ")


def test_parquet_and_null(fill: Fill, tmp_path: Path) -> None:
    images = [*many(4), None]
    for kind in (pa.binary(), pa.large_binary()):
        folder = fill({})
        folder.mkdir()
        table = pa.table({"key": list("abcde"), "image": pa.array(images, kind), "mask": pa.array(images, kind)})
        pq.write_table(table, folder / "a.parquet")
        manifest = shard(str(folder), str(tmp_path / f"{kind}"), ShardOptions(steps=(SMALL,)))
        assert manifest.schema.field("image").type == kind
        for (key, row), data in zip(sorted(rows(manifest).items()), images, strict=True):
            assert row == {"key": key, "image": None if data is None else small(data), "mask": data}


def test_columns_of_tars(run: Run, fill: Fill, tmp_path: Path) -> None:
    members = [(f"{n}.{kind}", data) for n, data in enumerate(many(6)) for kind in ("jpg", "seg.png", "png")]
    source = fill({"0.tar": pack(members)})
    failed = run("shard", source, tmp_path / "out", "--transcode", SPEC, code=1)
    assert "there are columns 'jpg', 'png' with the name of an image" in " ".join(failed.stderr.split())
    run("shard", source, tmp_path / "out", "--transcode", SPEC, "--transcode-columns", "jpg", "--rename", "jpg=image")
    manifest = Manifest.open(str(tmp_path / "out"))
    for n, data in enumerate(many(6)):
        row = rows(manifest)[str(n)]
        assert (row["image"], row["png"], row["seg.png"]) == (small(data), data, data)
    assert manifest.properties["transcoded"] == [DONE | {"columns": ["jpg"]}]
    both = shard(
        str(source), str(tmp_path / "both"), ShardOptions(steps=(Transcode(80, max_side=48, columns=("png", "jpg")),))
    )
    assert rows(both)["3"]["jpg"] == rows(both)["3"]["png"] == small(many(6)[3])
    # Only what is kept counts.
    one = shard(
        str(source), str(tmp_path / "one"), ShardOptions(steps=(Select(("key", "png")), SMALL, Rename((("png", "x"),))))
    )
    assert rows(one)["3"] == {"key": "3", "x": small(many(6)[3])}


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Transcode(), "there is no column with the name of an image, among 'key' (string), 'body' (string)"),
        (Transcode(columns=("image",)), "no column 'image'"),
        (Transcode(columns=("body",)), "column 'body' is string"),
    ],
)
def test_columns_that_hold_no_images(fill: Fill, tmp_path: Path, step: Transcode, said: str) -> None:
    source = fill({"a.jsonl": b'{"key": "a", "body": "x"}\n'})
    with pytest.raises(OptionError) as raised:
        shard(str(source), str(tmp_path / "out"), ShardOptions(steps=(step,)))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("webp:q=90", "'webp' is no format that is written, only jpeg is"),
        ("jpeg:quality=90", "'quality=90' is none of q=1..100, subsampling=420|422|444 and max_side=PIXELS"),
        ("jpeg:q", "'q' is none of"),
        ("jpeg:", "'' is none of"),
        ("jpeg:q=0", "the quality of JPEGs is 0, it must be a whole number from 1 to 100"),
        ("jpeg:q=101", "the quality of JPEGs is 101"),
        ("jpeg:q=ninety", "q is 'ninety', it must be a whole number"),
        ("jpeg:q=9.5", "q is '9.5'"),
        ("jpeg:q=80,q=90", "q comes twice"),
        ("jpeg:subsampling=411", "'4:1:1': choose from 4:2:0, 4:2:2, 4:4:4"),
        ("jpeg:max_side=0", "max_side is 0, it must be a whole number from 1 to 65500"),
        ("jpeg:max_side=-5", "max_side is '-5', it must be a whole number"),
    ],
)
def test_what_cannot_be_meant_is_named(run: Run, fill: Fill, tmp_path: Path, spec: str, said: str) -> None:
    failed = run("shard", fill(files(2)), tmp_path / "out", "--transcode", spec, code=1)
    assert f"--transcode {spec}: " in " ".join(failed.stderr.split())
    assert said in " ".join(failed.stderr.split())
    assert not (tmp_path / "out").exists()


def test_columns_need_a_format(run: Run, fill: Fill, tmp_path: Path) -> None:
    assert (
        "needs --transcode" in run("shard", fill(files(2)), tmp_path / "out", "--transcode-columns", "x", code=1).stderr
    )
    with pytest.raises(OptionError, match="name each once"):
        Transcode(columns=())
    with pytest.raises(OptionError, match="quality"):
        Transcode(quality=True)


def test_what_a_dataset_says_of_its_images_is_true_of_all(fill: Fill, tmp_path: Path) -> None:
    source, more = str(fill(files(4))), str(fill({"0/new.jpg": jpeg(), "1/new.jpg": jpeg()}))
    shard(source, str(tmp_path / "small"), ShardOptions(steps=(SMALL,)))
    shard(source, str(tmp_path / "plain"))
    for name, steps in (("small", ()), ("small", (Transcode(),)), ("plain", (SMALL,))):
        with pytest.raises(OptionError, match="were transcoded with"):
            shard(more, str(tmp_path / name), ShardOptions(append=True, steps=steps))
    grown = shard(more, str(tmp_path / "small"), ShardOptions(append=True, steps=(SMALL,)))
    assert grown.num_rows == 8
    assert grown.properties["transcoded"] == [DONE]
    shutil.copytree(tmp_path / "small", tmp_path / "both" / "small")
    shutil.copytree(tmp_path / "plain", tmp_path / "both" / "plain")
    with pytest.raises(OptionError, match="have another 'transcoded'"):
        shard(str(tmp_path / "both"), str(tmp_path / "one"))
    merged = merge([str(tmp_path / "both" / name) for name in ("small", "plain")], str(tmp_path / "both" / "merged"))
    assert "transcoded" not in merged.manifest.properties
    assert merged.dropped == ["transcoded"]
    # A second time is said, too.
    again = shard(str(tmp_path / "small"), str(tmp_path / "again"), ShardOptions(steps=(Transcode(60),)))
    assert [done["quality"] for done in again.properties["transcoded"]] == [80, 60]
    assert shard(str(tmp_path / "small"), str(tmp_path / "copy")).properties["transcoded"] == [DONE]
