from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow
from tests.cli.conftest import Run, picture

Write = Callable[[dict[str, bytes]], Path]


def lines(*records: dict[str, Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def rows(url: object) -> dict[str, dict[str, Any]]:
    dataset = dataflow.open(str(url))
    return {dataset[number]["key"]: dataset[number] for number in range(len(dataset))}


def test_fields_become_columns(run: Run, write: Write, tmp_path: Path) -> None:
    source = write(
        {
            "1.jpg": picture(1),
            "b/2.PNG": picture(2, "PNG"),
            "3.jpg": picture(3),
            "metadata.jsonl": lines(
                {"file_name": "1.jpg", "caption": "eine Katze, größer", "score": 0.5, "boxes": [1, 2, 3]},
                {"file_name": "./b/2.PNG", "caption": "", "score": 2, "boxes": []},
                {"file_name": "3.jpg", "score": 1.0, "boxes": [7]},
            ),
        }
    )
    run("shard", source, tmp_path / "out")
    found = rows(tmp_path / "out")
    assert found["1.jpg"]["caption"] == "eine Katze, größer"
    assert found["b/2.PNG"]["caption"] == ""
    assert found["3.jpg"]["caption"] is None
    assert {key: float(row["score"]) for key, row in found.items()} == {"1.jpg": 0.5, "b/2.PNG": 2.0, "3.jpg": 1.0}
    assert {key: list(row["boxes"]) for key, row in found.items()} == {"1.jpg": [1, 2, 3], "b/2.PNG": [], "3.jpg": [7]}
    assert found["b/2.PNG"]["image"] == picture(2, "PNG")
    assert "label" not in found["1.jpg"]
    assert "classes" not in dataflow.open(str(tmp_path / "out")).manifest.properties


def test_metadata_in_folders_names_files_beside_it(run: Run, write: Write, tmp_path: Path) -> None:
    source = write(
        {
            "a/1.jpg": picture(1),
            "b/1.jpg": picture(2),
            "a/metadata.jsonl": lines({"file_name": "1.jpg", "n": 1}),
            "b/metadata.jsonl": lines({"file_name": "1.jpg", "n": 2}),
        }
    )
    run("shard", source, tmp_path / "out")
    assert {key: row["n"] for key, row in rows(tmp_path / "out").items()} == {"a/1.jpg": 1, "b/1.jpg": 2}


def test_one_image_may_have_several_lines(run: Run, write: Write, tmp_path: Path) -> None:
    source = write(
        {"1.jpg": picture(1), "metadata.jsonl": lines(*({"file_name": "1.jpg", "question": q} for q in "abc"))}
    )
    run("shard", source, tmp_path / "out")
    dataset = dataflow.open(str(tmp_path / "out"))
    assert sorted(dataset[number]["question"] for number in range(3)) == ["a", "b", "c"]


def test_sh19_both_lists_are_reported(run: Run, write: Write, tmp_path: Path) -> None:
    named = ["1.jpg", "2.jpg", "3.jpg", "4.jpg", "absent.jpg"]
    source = write(
        {f"{number}.jpg": picture(number) for number in range(1, 6)}
        | {"metadata.jsonl": lines(*({"file_name": name, "n": n} for n, name in enumerate(named)))}
    )
    error = run("shard", source, tmp_path / "out", code=1).stderr
    assert "1 lines name images that are not there (absent.jpg)" in error
    assert "1 images have no line (5.jpg)" in error
    assert "--on-error", "skip" in error
    out = run("shard", source, tmp_path / "out", "--on-error", "skip").stdout
    assert "skipped 1 item: named by metadata, but not there (absent.jpg)" in out
    assert "skipped 1 item: an image without metadata (5.jpg)" in out
    assert set(rows(tmp_path / "out")) == {"1.jpg", "2.jpg", "3.jpg", "4.jpg"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"file_name": "1.jpg"}\n{"file_name": 2}\n', "line 2: there is no 'file_name'"),
        (b'{"file_name": "1.jpg"\n', "line 1: "),
        (b'["1.jpg"]\n', "line 1: there is no 'file_name'"),
        (b'{"file_name": "1.jpg", "image": 3}\n', "line 1: the column 'image'"),
        (b'{"file_name": "1.jpg", "x": null}\n', "'x' of the metadata is null in every line"),
        (b'{"file_name": "1.jpg", "x": 1}\n{"file_name": "1.jpg", "x": "a"}\n', "field 'x' of the metadata"),
    ],
)
def test_bad_metadata_is_named(run: Run, write: Write, tmp_path: Path, text: bytes, said: str) -> None:
    source = write({"1.jpg": picture(1), "metadata.jsonl": text})
    assert said in run("shard", source, tmp_path / "out", code=1).stderr
    assert not (tmp_path / "out" / "manifest.arrow").exists()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_metadata_may_be_a_table(run: Run, write: Write, tmp_path: Path, kind: str) -> None:
    table = pa.table({"file_name": ["1.jpg", "b/2.jpg"], "id": ["007", "08"], "n": [1, 2]})
    source = write({"1.jpg": picture(1), "b/2.jpg": picture(2)})
    if kind == "csv":
        (source / "metadata.csv").write_text("file_name,id,n\n1.jpg,007,1\nb/2.jpg,08,2\n")
    else:
        pq.write_table(table, source / "metadata.parquet")
    run("shard", source, tmp_path / "out")
    found = {key: (row["id"], row["n"]) for key, row in rows(tmp_path / "out").items()}
    assert found == {"1.jpg": ("007", 1), "b/2.jpg": ("08", 2)}
    (source / "3.jpg").write_bytes(picture(3))
    error = run("shard", source, tmp_path / "other", code=1).stderr
    assert "1 images have no line (3.jpg)" in error
    assert f"metadata.{kind}" in error
