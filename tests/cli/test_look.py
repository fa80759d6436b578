"""`dataflow index`, `dataflow info` and `dataflow head`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import dataflow
from dataflow.pipeline.working_set import usual_block_bytes
from tests.cli.conftest import Run, picture
from tests.cli.test_shard_shards import tars
from tests.formats.archives import pack

Write = Callable[[dict[str, bytes]], Path]


def test_index_beside_the_shards_and_elsewhere(run: Run, write: Write, tmp_path: Path) -> None:
    source = write(tars(3, 10))
    out = run("index", source, "--out", tmp_path / "aside").stdout
    assert "indexed 30 rows" in out
    assert "3 shards" in out
    assert not (source / "manifest.arrow").exists()
    aside = dataflow.open(str(tmp_path / "aside"))
    run("index", source, "--block-mib", "0.01")
    beside = dataflow.open(str(source))
    assert len(aside) == len(beside) == 30
    assert beside.num_blocks > aside.num_blocks
    assert aside[7]["jpg"] == beside[7]["jpg"] == picture(7)


def test_index_counts_what_it_leaves_out(run: Run, write: Write) -> None:
    source = write({"a.tar": pack([("._1.jpg", b"x"), ("1.jpg", b"y"), ("._2.jpg", b"x")]), "notes.txt": b"x"})
    result = run("index", source, "--list-skipped")
    assert "skipped 2 items: metadata of macOS (AppleDouble)\n  a.tar: ._1.jpg\n  a.tar: ._2.jpg" in result.stdout
    assert "skipped 1 item: taken for a note beside the shards" in result.stdout


def test_index_of_nothing_is_an_error(run: Run, write: Write) -> None:
    assert "there are no shards" in run("index", write({"notes.md": b"x"}), code=1).stderr


def test_index_and_shard_on_s3(run: Run, s3_url: str) -> None:
    store = dataflow.dataset.dataset.open_store(s3_url)
    for name, data in tars(3, 10).items():
        store.put_atomic(f"tars/{name}", data)
    run("index", f"{s3_url}/tars")
    run("shard", f"{s3_url}/tars", f"{s3_url}/out", "--block-mib", "0.005")
    assert len(dataflow.open(f"{s3_url}/tars")) == len(dataflow.open(f"{s3_url}/out")) == 30
    out = run("info", f"{s3_url}/out").stdout
    assert f"{s3_url}/out" in out


def test_info_says_what_reading_costs(run: Run, tmp_path: Path) -> None:
    with dataflow.ShardWriter(str(tmp_path / "data"), rows_per_block=4, properties={"source": "made up"}) as writer:
        for number in range(1001):
            writer.write({"number": number, "text": "x" * 100})
    manifest = dataflow.open(str(tmp_path / "data")).manifest
    out = run("info", tmp_path / "data", "--ranks", "4", "--batch-size", "10").stdout
    lines = dict(line.strip().split("  ", 1) for line in out.splitlines() if "  " in line.strip())
    facts = {name: value.strip() for name, value in lines.items()}
    assert facts["shards"] == "1 (arrow)"
    assert facts["blocks"] == "251"
    assert facts["rows"] == "1,001"
    assert facts["rows per block"] == "4 (another number in 1)"
    assert facts["fingerprint"] == manifest.fingerprint
    assert facts["number"] == "int64"
    assert facts["lanes"] == "8, of which a rank reads 2"
    assert facts["open blocks"] == f"{2 * usual_block_bytes(manifest) / 1000:.1f} kB on a rank"
    assert facts["reads per block"] == "about 1.028"
    assert facts["batches"] == "25 an epoch, of 10 rows on a rank"
    assert 'source: "made up"' in out
    out = run("info", tmp_path / "data", "--ranks", "3", "--lanes", "64").stdout
    assert "64, of which a rank reads 24" in out
    assert "about 1.345" in out


def test_head_shows_values(run: Run, tmp_path: Path) -> None:
    with dataflow.ShardWriter(str(tmp_path / "data")) as writer:
        for number in range(5):
            writer.write(
                {
                    "image": picture(number),
                    "blob": bytes(range(256)) * 8,
                    "cls": b"3",
                    "text": "wörter " * 100,
                    "tokens": np.arange(100, dtype=np.int32),
                    "label": number,
                }
            )
    out = run("head", tmp_path / "data", "-n", "2").stdout
    assert out.count("row ") == 2
    assert f"image   <jpeg, {len(picture(0))} B>" in out
    assert "blob    <binary, 2.0 kB>" in out
    assert "cls     b'3'" in out
    assert "... <702 characters>" in out
    assert "tokens  [ 0  1  2 ... 97 98 99] <int32, shape 100>" in out
    assert "label   1" in out
    assert "... 3 more" in out
    assert "more" not in run("head", tmp_path / "data", "-n", "50").stdout
