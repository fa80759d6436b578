"""`dataflow shard` of tars and of datasets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dataflow
from tests.cli.conftest import Run, picture
from tests.formats.archives import pack

Write = Callable[[dict[str, bytes]], Path]


def tars(count: int, samples: int) -> dict[str, bytes]:
    return {
        f"{tar:03d}.tar": pack(
            member
            for sample in range(samples)
            for member in (
                (f"{tar:03d}_{sample:03d}.jpg", picture(tar * samples + sample)),
                (f"{tar:03d}_{sample:03d}.cls", str(tar).encode()),
            )
        )
        for tar in range(count)
    }


def values(url: object) -> dict[str, tuple[Any, Any]]:
    dataset = dataflow.open(str(url))
    samples = (dataset[number] for number in range(len(dataset)))
    return {sample["key"]: (sample["jpg"], sample["cls"]) for sample in samples}


def test_rows_of_tars_come_through_shuffled(run: Run, write: Write, tmp_path: Path) -> None:
    source = write(tars(20, 20))
    run("shard", source, tmp_path / "out")
    run("shard", source, tmp_path / "kept", "--keep-order")
    found, kept = values(tmp_path / "out"), values(tmp_path / "kept")
    assert found == kept
    assert len(found) == 400
    assert list(kept) == sorted(kept)
    assert found["003_004"] == (picture(64), b"3")
    # Neighbours come from different tars, as in a true shuffle: of 20 tars they share one in 20 times.
    order = [key[:3] for key in found]
    assert sum(a == b for a, b in itertools.pairwise(order)) < 50


def test_a_dataset_is_sharded_again_with_its_properties(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({f"{name}/{n}.jpg": picture(n) for name in "ab" for n in range(20)})
    run("shard", source, tmp_path / "first")
    run("shard", tmp_path / "first", tmp_path / "second", "--seed", "5")
    first, second = dataflow.open(str(tmp_path / "first")), dataflow.open(str(tmp_path / "second"))
    assert second.manifest.properties == {"classes": ["a", "b"], "shuffle_seed": 5}
    assert sorted(first[n]["key"] for n in range(40)) == sorted(second[n]["key"] for n in range(40))
    assert [first[n]["key"] for n in range(40)] != [second[n]["key"] for n in range(40)]


def test_sh15_one_broken_tar_of_many_is_named(run: Run, write: Write, tmp_path: Path) -> None:
    files = tars(200, 2)
    files["137.tar"] = files["137.tar"][:1200]
    source = write(files)
    error = run("shard", source, tmp_path / "out", "--workers", "8", code=1).stderr
    assert f"{source}/137.tar" in error
    assert not (tmp_path / "out" / "manifest.arrow").exists()
    assert "137.tar" in run("index", source, code=1).stderr
    assert not (source / "manifest.arrow").exists()


def test_im09_a_row_whose_image_is_none_is_named(run: Run, write: Write, tmp_path: Path) -> None:
    good = [(f"{n}.jpg", picture(n)) for n in range(5)]
    source = write({"a.tar": pack([*good[:3], ("bad.jpg", b"<html>gone</html>"), *good[3:]])})
    error = run("shard", source, tmp_path / "out", code=1).stderr
    assert "a.tar" in error
    assert "row 3 ('bad')" in error
    assert "is HTML" in error
    out = run("shard", source, tmp_path / "out", "--on-error", "skip").stdout
    assert "row 3 ('bad')" in out
    dataset = dataflow.open(str(tmp_path / "out"))
    assert sorted(dataset[n]["key"] for n in range(len(dataset))) == ["0", "1", "2", "3", "4"]


def test_members_that_are_no_samples_are_counted(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({"a.tar": pack([("._1.jpg", b"x"), ("1.jpg", picture(1)), ("README", b"x")]), "notes.txt": b""})
    out = run("shard", source, tmp_path / "out").stdout
    assert "metadata of macOS (AppleDouble) (a.tar: ._1.jpg)" in out
    assert "a name without an extension (a.tar: README)" in out
    assert "taken for a note beside shards (notes.txt)" in out
