from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import dataflow
from tests.cli.conftest import Run, picture
from tests.formats.archives import pack

Write = Callable[[dict[str, bytes]], Path]


def rows(url: object) -> dict[str, dict[str, object]]:
    dataset = dataflow.open(str(url))
    return {dataset[number]["key"]: dataset[number] for number in range(len(dataset))}


def test_class_folders_become_labels_and_bytes_stay(run: Run, write: Write, tmp_path: Path) -> None:
    files = {f"{name}/{number}.jpg": picture(number * 10 + ord(name)) for name in "abc" for number in range(5)}
    out = run("shard", write(files), tmp_path / "out").stdout
    found = rows(tmp_path / "out")
    assert {key: row["image"] for key, row in found.items()} == files
    assert all(row["label"] == "abc".index(key[0]) for key, row in found.items())
    dataset = dataflow.open(str(tmp_path / "out"))
    assert dataset.schema is not None
    assert [(field.name, str(field.type)) for field in dataset.schema] == [
        ("key", "string"),
        ("image", "binary"),
        ("label", "int64"),
    ]
    assert dataset.manifest.properties == {"classes": ["a", "b", "c"], "shuffle_seed": 0}
    assert "3 classes: a, b, c" in out
    assert "wrote 15 rows" in out


def test_sh10_suffixes_of_any_case_and_other_files_counted(run: Run, write: Write, tmp_path: Path) -> None:
    files = {
        "a.jpg": picture(1),
        "b.JPG": picture(2),
        "c.Jpeg": picture(3),
        "d.PNG": picture(4, "PNG"),
        "e.WEBP": picture(5, "WEBP"),
    }
    source = write({**files, "notes.txt": b"x", ".DS_Store": b"x"})
    out = run("shard", source, tmp_path / "out").stdout
    assert {key: row["image"] for key, row in rows(tmp_path / "out").items()} == files
    assert "skipped 1 item: not an image by its name (notes.txt)" in out
    assert "skipped 1 item: hidden (.DS_Store)" in out


def test_sh18_classes_are_sorted_as_text_hidden_ones_ignored_empty_ones_kept(
    run: Run, write: Write, tmp_path: Path
) -> None:
    train = write({f"{name}/{name}.jpg": picture(int(name)) for name in ("1", "2", "10")})
    (train / "5").mkdir()
    (train / ".ipynb_checkpoints").mkdir()
    (train / ".ipynb_checkpoints" / "x.jpg").write_bytes(picture(7))
    run("shard", train, tmp_path / "train")
    assert dataflow.open(str(tmp_path / "train")).manifest.properties["classes"] == ["1", "10", "2", "5"]
    assert {key: row["label"] for key, row in rows(tmp_path / "train").items()} == {
        "1/1.jpg": 0,
        "10/10.jpg": 1,
        "2/2.jpg": 2,
    }

    validation = write({"2/v.jpg": picture(8)})
    run("shard", validation, tmp_path / "alone")
    run("shard", validation, tmp_path / "val", "--classes-of", tmp_path / "train")
    assert rows(tmp_path / "alone")["2/v.jpg"]["label"] == 0
    assert rows(tmp_path / "val")["2/v.jpg"]["label"] == 2

    unknown = write({"3/v.jpg": picture(9)})
    error = run("shard", unknown, tmp_path / "other", "--classes-of", tmp_path / "train", code=1).stderr
    assert "3/v.jpg" in error
    assert not (tmp_path / "other" / "manifest.arrow").exists()


def test_images_outside_of_classes_are_refused_or_taken_without_labels(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({"a/1.jpg": picture(1), "2.jpg": picture(2)})
    error = run("shard", source, tmp_path / "out", code=1).stderr
    assert "2.jpg" in error
    assert "--no-labels" in error
    run("shard", source, tmp_path / "out", "--no-labels")
    found = rows(tmp_path / "out")
    assert set(found) == {"a/1.jpg", "2.jpg"}
    assert set(found["2.jpg"]) == {"key", "image"}


@pytest.mark.parametrize("kind", ["WEBP", "PNG", "GIF", "BMP", "TIFF"])
def test_im08_images_of_another_kind_than_their_name_are_taken(
    run: Run, write: Write, tmp_path: Path, kind: str
) -> None:
    data = picture(1, kind)
    run("shard", write({"x.jpg": data}), tmp_path / "out", "--decode")
    assert rows(tmp_path / "out")["x.jpg"]["image"] == data


@pytest.mark.parametrize(
    ("data", "said"), [(b"", "is empty"), (b"<!DOCTYPE html><p>404", "is HTML"), (b"hello", "is no image")]
)
def test_im08_im09_what_is_no_image_is_named(run: Run, write: Write, tmp_path: Path, data: bytes, said: str) -> None:
    source = write({"a/bad.jpg": data, "a/good.jpg": picture(1)})
    error = run("shard", source, tmp_path / "out", code=1).stderr
    assert f"{source}/a/bad.jpg {said}" in error
    assert "--on-error", "skip" in error
    assert not (tmp_path / "out" / "manifest.arrow").exists()
    out = run("shard", source, tmp_path / "out", "--on-error", "skip").stdout
    assert "skipped 1 item" in out
    assert "a/bad.jpg" in out
    assert set(rows(tmp_path / "out")) == {"a/good.jpg"}


def test_im02_truncated_images_cannot_be_made_to_pass(
    run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write({"cut.jpg": picture(1)[:-200]})
    monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True)
    error = run("shard", source, tmp_path / "out", "--decode", "--workers", "1", "--no-labels", code=1).stderr
    assert "LOAD_TRUNCATED_IMAGES is set" in error


def test_im01_truncated_images_are_found_when_decoded(run: Run, write: Write, tmp_path: Path) -> None:
    sink = io.BytesIO()
    Image.effect_noise((64, 64), 80).convert("RGB").save(sink, "JPEG")
    whole = sink.getvalue()
    files = {f"{number}.jpg": picture(number) for number in range(50)}
    source = write({**files, "cut.jpg": whole[: len(whole) // 2], "whole.jpg": whole})
    run("shard", source, tmp_path / "unseen")  # without --decode only the beginning is looked at
    assert "cut.jpg cannot be decoded" in run("shard", source, tmp_path / "out", "--decode", code=1).stderr
    out = run("shard", source, tmp_path / "out", "--decode", "--on-error", "skip", "--list-skipped").stdout
    assert "\n  cut.jpg" in out
    assert set(rows(tmp_path / "out")) == {*files, "whole.jpg"}


def test_nothing_but_bad_images_is_an_error(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({"a.jpg": b"", "b.jpg": b""})
    assert "no row was written" in run("shard", source, tmp_path / "out", "--on-error", "skip", code=1).stderr


def test_nothing_to_shard_is_an_error(run: Run, write: Write, tmp_path: Path) -> None:
    assert "is empty or does not exist" in run("shard", tmp_path / "absent", tmp_path / "out", code=1).stderr
    assert "it holds notes.md" in run("shard", write({"notes.md": b"x"}), tmp_path / "out", code=1).stderr
    both = write({"a.tar": pack([("1.jpg", picture(1))]), "b.jpg": picture(1)})
    assert "one kind" in run("shard", both, tmp_path / "out", code=1).stderr


def test_names_that_are_not_utf8_become_percent_signs(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({})
    for name in (b"caf\xe9.jpg", b"it\x92s.jpg"):
        Path(os.fsdecode(os.path.join(os.fsencode(source), name))).write_bytes(picture(len(name)))
    run("shard", source, tmp_path / "out")
    assert set(rows(tmp_path / "out")) == {"caf%E9.jpg", "it%92s.jpg"}


def test_order_follows_the_seed(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({f"{number:03d}.png": picture(number, "PNG") for number in range(200)})

    def keys(name: str, *options: str) -> list[str]:
        run("shard", source, tmp_path / name, *options)
        return list(rows(tmp_path / name))

    kept = keys("kept", "--keep-order")
    assert kept == sorted(kept)
    zero, again, one = keys("zero"), keys("again", "--seed", "0"), keys("one", "--seed", "1")
    assert zero == again
    assert len({tuple(kept), tuple(zero), tuple(one)}) == 3
    assert sorted(zero) == sorted(one) == kept
    # A true shuffle leaves about one image where it was.
    assert sum(a == b for a, b in zip(kept, zero, strict=True)) < 8


def test_block_and_shard_sizes(run: Run, write: Write, tmp_path: Path) -> None:
    head = picture(1)
    source = write({f"{number}.jpg": head + bytes(50_000) for number in range(60)})
    run("shard", source, tmp_path / "out", "--block-mib", "0.25", "--shard-mib", "1")
    dataset = dataflow.open(str(tmp_path / "out"))
    assert dataset.manifest.block_rows == 5
    assert dataset.manifest.num_shards == 3


def test_the_report_names_everything_that_was_left_out(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({"a.jpg": picture(1), "b.jpg": b"", "c.jpg": b"hello", "notes.txt": b"x"})
    report = tmp_path / "report.jsonl"
    out = run("shard", source, tmp_path / "out", "--on-error", "skip", "--report", report).stdout
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert sorted(lines, key=lambda line: str(line["name"])) == [
        {"name": "b.jpg", "reason": "is empty", "note": ""},
        {"name": "c.jpg", "reason": "is no image", "note": "it begins with b'hello'"},
        {"name": "notes.txt", "reason": "not an image by its name", "note": ""},
    ]
    assert "skipped 1 item: is empty (b.jpg)" in out
    error = run("shard", source, tmp_path / "other", "--on-error", "skip", "--report", tmp_path, code=1).stderr
    assert "could not write the report" in error


def test_append_from_the_command_line(run: Run, write: Write, tmp_path: Path) -> None:
    run("shard", write({"a.jpg": picture(1)}), tmp_path / "out")
    out = run("shard", write({"b.jpg": picture(2)}), tmp_path / "out", "--append").stdout
    assert "now there are 2 rows" in out
    assert set(rows(tmp_path / "out")) == {"a.jpg", "b.jpg"}
    assert "no dataset" in run("shard", write({"b.jpg": picture(2)}), tmp_path / "none", "--append", code=1).stderr
