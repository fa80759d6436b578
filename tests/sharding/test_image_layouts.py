"""Folders of images in the layouts that people have."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dataflow.dataset import Manifest, read_block
from dataflow.errors import DatasetError, OptionError
from dataflow.formats import Skipped
from dataflow.sharding import ShardOptions, shard_folders
from dataflow.storage import open_store
from tests.sharding.conftest import Fill, contents, picture, shard


def rows(manifest: Manifest) -> dict[str, dict[str, Any]]:
    store = open_store(manifest.base_url)
    found = [row for block in range(manifest.num_blocks) for row in read_block(store, manifest, block).to_pylist()]
    return {row.pop("key"): row for row in found}


def test_files_beside_images_are_their_texts_fields_and_labels(fill: Fill, tmp_path: Path) -> None:
    source = fill(
        {
            "a/1.jpg": picture(1),
            "a/1.txt": "\ufeffeine Katze, größer\nund mehr\n".encode(),
            "a/1.json": json.dumps({"width": 32, "tags": ["x"]}).encode(),
            "a/1.cls": b"7\n",
            "b/2.PNG": picture(2),
            "b/2.cls": b"3",
            "b/3.jpg": picture(3),
            "b/3.cls": b"0",
            "b/notes.txt": b"x",
            "lists.json": b"[]",
        }
    )
    skipped: list[Skipped] = []
    found = rows(shard(str(source), str(tmp_path / "out"), on_skip=skipped.append))
    assert found == {
        "a/1.jpg": {
            "image": picture(1),
            "label": 7,
            "tags": ["x"],
            "text": "eine Katze, größer\nund mehr",
            "width": 32,
        },
        "b/2.PNG": {"image": picture(2), "label": 3, "tags": None, "text": None, "width": None},
        "b/3.jpg": {"image": picture(3), "label": 0, "tags": None, "text": None, "width": None},
    }
    assert sorted((item.name, item.reason) for item in skipped) == [
        ("b/notes.txt", "not an image by its name"),
        ("lists.json", "not an image by its name"),
    ]


def test_folders_are_classes_where_files_beside_images_give_no_labels(fill: Fill, tmp_path: Path, s3_url: str) -> None:
    files = {f"{n % 2}/{n}.jpg": picture(n) for n in range(6)} | {f"{n % 2}/{n}.txt": str(n).encode() for n in range(6)}
    for name, data in files.items():
        open_store(s3_url).put_atomic(name, data)
    made = [shard(place, str(tmp_path / f"{n}")) for n, place in enumerate((str(fill(files)), s3_url))]
    assert {key: (row["label"], row["text"]) for key, row in rows(made[0]).items()} == {
        f"{n % 2}/{n}.jpg": (n % 2, str(n)) for n in range(6)
    }
    assert rows(made[0]) == rows(made[1])
    assert made[0].properties["classes"] == ["0", "1"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("1.cls", b"cat", r"1\.cls: invalid literal"),
        ("1.json", b"[1]", r"1\.json: list instead of an object"),
        ("1.json", b"{", r"1\.json: Expecting"),
        ("1.json", b'{"image": 1}', "'image' comes from another file"),
        ("1.txt", b"\xff", r"1\.txt: .*utf-8"),
    ],
)
def test_bad_files_beside_images_are_named(fill: Fill, tmp_path: Path, name: str, data: bytes, said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        shard(str(fill({"1.jpg": picture(1), name: data})), str(tmp_path / "out"))


def test_splits_are_never_taken_for_classes(fill: Fill, tmp_path: Path) -> None:
    source = fill({f"{split}/{n % 3}/{n}.jpg": picture(n) for split in ("train", "val") for n in range(9)})
    with pytest.raises(OptionError, match=r"splits and no classes \(train, val\): give --split-folders"):
        shard(str(source), str(tmp_path / "out"))
    assert shard(str(source / "train"), str(tmp_path / "alone")).properties["classes"] == ["0", "1", "2"]
    both = shard(str(source), str(tmp_path / "both"), ShardOptions(labels=False))
    assert both.num_rows == 18


def test_each_folder_of_a_split_becomes_a_dataset_with_the_same_classes(fill: Fill, tmp_path: Path) -> None:
    files = {f"train/{name}/{n}.jpg": picture(n) for n, name in enumerate("abd")}
    source = fill(files | {"val/c/1.jpg": picture(1), "val/d/2.jpg": picture(2), "LICENSE": b"x", "val/d/x.md": b"x"})
    skipped: list[Skipped] = []
    made = shard_folders(str(source), str(tmp_path / "out"), on_skip=skipped.append, workers=1)
    assert list(made) == ["train", "val"]
    assert made["train"].properties["classes"] == made["val"].properties["classes"] == ["a", "b", "c", "d"]
    assert {key: row["label"] for key, row in rows(made["train"]).items()} == {"a/0.jpg": 0, "b/1.jpg": 1, "d/2.jpg": 3}
    assert {key: row["label"] for key, row in rows(made["val"]).items()} == {"c/1.jpg": 2, "d/2.jpg": 3}
    assert [item.name for item in skipped] == ["LICENSE", "val: d/x.md"]
    again = shard_folders(str(source), str(tmp_path / "again"), workers=2)
    assert contents(tmp_path / "out") == contents(tmp_path / "again")
    assert list(again) == list(made)
    with pytest.raises(DatasetError, match="no folders of splits"):
        shard_folders(str(source / "train" / "a"), str(tmp_path / "none"))


def test_several_folders_of_images_share_their_classes(fill: Fill, tmp_path: Path) -> None:
    one = fill({"a/1.jpg": picture(1), "c/1.jpg": picture(2)})
    other = fill({"b/2.jpg": picture(3), "c/2.jpg": picture(4)})
    made = shard([str(one), str(other)], str(tmp_path / "out"))
    assert made.properties["classes"] == ["a", "b", "c"]
    assert {key: row["label"] for key, row in rows(made).items()} == {
        "a/1.jpg": 0,
        "c/1.jpg": 2,
        "b/2.jpg": 1,
        "c/2.jpg": 2,
    }
    same = fill({"a/1.jpg": picture(5)})
    with pytest.raises(OptionError, match=r"both have an image a/1\.jpg"):
        shard([str(one), str(same)], str(tmp_path / "same"))


def test_names_of_all_sorts(fill: Fill, tmp_path: Path) -> None:
    names = ["deep/er/still/a b.jpg", "ünï/図 1.jpg", "new\nline.jpg", "[1]*?.jpg", "dots.v1/x.y.jpg", "up.JPG"]
    source = fill({name: picture(number) for number, name in enumerate(names)})
    odd = os.fsencode(source) + b"/caf\xe9.jpg"
    with open(odd, "wb") as file:
        file.write(picture(99))
    found = rows(shard(str(source), str(tmp_path / "out"), ShardOptions(labels=False)))
    assert {key: row["image"] for key, row in found.items()} == {
        name: picture(number) for number, name in enumerate(names)
    } | {"caf%E9.jpg": picture(99)}
    # A file is found by its name though that looks like a pattern.
    assert list(rows(shard(str(source / "[1]*?.jpg"), str(tmp_path / "one")))) == ["[1]*?.jpg"]
