"""What Hugging Face's `datasets` writes, on every way, and back to `datasets`."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from datasets import Array2D, ClassLabel, Dataset, Features, Sequence, Value
from PIL import Image

import dataflow
from dataflow.operations.export import export
from tests.ways.every_way import Source, check, every_way, plain, stored_rows

FEATURES = Features(
    {
        "id": Value("int32"),
        "text": Value("string"),
        "label": ClassLabel(names=["cat", "dog"]),
        "image": datasets.Image(),
        "tokens": Sequence(Value("uint16")),
        "box": Sequence(Value("float32"), length=4),
        "objects": [{"name": Value("string"), "area": Value("float64")}],
        "meta": {"width": Value("int64"), "tags": Sequence(Value("string"))},
        "mask": Array2D((2, 2), "uint8"),
        "flag": Value("bool"),
        "long": Value("large_string"),
        "taken": Value("timestamp[us]"),
    }
)
# What JSON and CSV of `datasets` have no place for (images, times), or write wrongly (every other line of an Array2D).
JSON_COLUMNS = ["id", "text", "label", "tokens", "box", "objects", "meta", "flag", "long"]
CSV_COLUMNS = ["id", "text", "label", "flag", "long"]


def picture(number: int) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(np.full((4, 5, 3), number, np.uint8)).save(sink, "PNG")
    return sink.getvalue()


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "text": f'"{number}", é\u2028\r\n \t',
        "label": number % 2,
        "image": None if number == 3 else {"bytes": picture(number), "path": f"{number}.png"},
        "tokens": list(range(number)),
        "box": [number, number / 4, 0, 1],
        "objects": [{"name": f"o{item}", "area": item / 3} for item in range(number % 3)],
        "meta": None if number == 5 else {"width": number, "tags": [] if number % 2 else ["a", None]},
        "mask": [[number, 1], [2, 3]],
        "flag": None if number == 4 else number % 3 == 0,
        "long": None if number == 6 else f"{number}",
        "taken": np.datetime64("2024-02-29T12:00:00.000001") + np.timedelta64(number, "s"),
    }


@pytest.fixture(scope="module")
def made() -> Dataset:
    return Dataset.from_list([row(number) for number in range(12)], features=FEATURES)


def rows_of(dataset: Dataset) -> list[dict[str, Any]]:
    """The rows as `datasets` gives them, with images as they are stored."""
    if "image" in dataset.features:
        dataset = dataset.cast_column("image", datasets.Image(decode=False))
    return [dict(row) for row in dataset]


def save_to_disk(made: Dataset, folder: Path) -> list[dict[str, Any]]:
    made.save_to_disk(str(folder), num_shards=2)
    return rows_of(datasets.load_from_disk(str(folder)))


def save_splits(made: Dataset, folder: Path) -> list[dict[str, Any]]:
    splits = datasets.DatasetDict({"test": made.select(range(4)), "train": made.select(range(4, 12))})
    splits.save_to_disk(str(folder))
    loaded = datasets.load_from_disk(str(folder))
    return rows_of(loaded["test"]) + rows_of(loaded["train"])


def to_parquet(made: Dataset, folder: Path) -> list[dict[str, Any]]:
    for part in range(2):
        made.shard(2, part, contiguous=True).to_parquet(folder / f"{part}.parquet", batch_size=4)
    files = [str(folder / f"{part}.parquet") for part in range(2)]
    return rows_of(Dataset.from_parquet(files, cache_dir=f"{folder}-cache"))


def to_json(made: Dataset, folder: Path) -> list[dict[str, Any]]:
    made = made.select_columns(JSON_COLUMNS)
    made.select(range(6)).to_json(folder / "0.jsonl", batch_size=4)
    made.select(range(6, 12)).to_json(folder / "1.jsonl.gz", compression="gzip", force_ascii=True)
    # pandas, which writes the numbers, writes ten digits of them.
    files = [str(folder / name) for name in ("0.jsonl", "1.jsonl.gz")]
    return rows_of(Dataset.from_json(files, features=made.features, cache_dir=f"{folder}-cache"))


def to_csv(made: Dataset, folder: Path) -> list[dict[str, Any]]:
    made = made.select_columns(CSV_COLUMNS)
    for part in range(2):
        made.shard(2, part, contiguous=True).to_csv(folder / f"{part}.csv", batch_size=4)
    # `long` holds nothing but numbers and empty values.
    return [values | {"long": None if values["long"] is None else int(values["long"])} for values in rows_of(made)]


WRITERS: tuple[Callable[[Dataset, Path], list[dict[str, Any]]], ...] = (
    save_to_disk,
    save_splits,
    to_parquet,
    to_json,
    to_csv,
)


@pytest.fixture(scope="module", params=WRITERS, ids=lambda write: write.__name__)
def source(request: pytest.FixtureRequest, made: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("datasets")
    return Source(folder, request.param(made, folder))


@every_way
def test_rows_are_those_of_datasets(way: Any, source: Source, tmp_path: Path, s3_url: str) -> None:
    check(way, source, tmp_path, s3_url)


def test_datasets_reads_exported_parquet_with_its_features(made: Dataset, tmp_path: Path) -> None:
    save_to_disk(made, tmp_path / "saved")
    export(dataflow.index(str(tmp_path / "saved")).url, str(tmp_path / "parquet"), "parquet", shard_bytes=2000)
    found = load("parquet", tmp_path / "parquet" / "*.parquet", tmp_path)
    assert rows_of(found) == rows_of(made)
    assert found.features == Features(FEATURES | {"mask": Sequence(Sequence(Value("uint8")))})
    assert found[2]["image"].getpixel((0, 0)) == (2, 2, 2)


def test_datasets_reads_exported_json(made: Dataset, tmp_path: Path) -> None:
    made = made.select_columns(JSON_COLUMNS)
    made.to_parquet(tmp_path / "0.parquet")
    export(dataflow.index(str(tmp_path)).url, f"{tmp_path}-jsonl", "jsonl", shard_bytes=1000)
    found = load("json", Path(f"{tmp_path}-jsonl") / "*.jsonl", tmp_path)
    assert rows_of(found) == rows_of(made)


def test_datasets_reads_exported_tars(made: Dataset, tmp_path: Path) -> None:
    made = made.select([0, 1, 2]).select_columns(["id", "text", "label", "box", "objects"])
    made.to_parquet(tmp_path / "0.parquet")
    export(dataflow.index(str(tmp_path)).url, f"{tmp_path}-tars", "tar")
    found = load("webdataset", Path(f"{tmp_path}-tars") / "*.tar", tmp_path)
    for values, original in zip(found, made, strict=True):
        members = {name.split(".")[0]: value for name, value in values.items() if not name.startswith("__")}
        assert members == original


def test_rows_do_not_depend_on_what_a_process_has_imported(made: Dataset, tmp_path: Path) -> None:
    """`datasets` registers types of its own for arrays, which processes without it do not know."""
    save_to_disk(made, tmp_path / "saved")
    here = dataflow.index(str(tmp_path / "saved"), out=str(tmp_path / "here"))
    program = (
        "import sys, dataflow; manifest = dataflow.index(sys.argv[1], out=sys.argv[2]); assert 'datasets' not in "
        "sys.modules; print(manifest.fingerprint, dataflow.open(sys.argv[3])[1]['mask'], sep='|', end='')"
    )
    arguments = [str(tmp_path / name) for name in ("saved", "there", "here")]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == f"{here.fingerprint}|[[1, 1], [2, 3]]"
    there = dataflow.open(str(tmp_path / "there")).manifest
    assert there.schema.equals(here.schema, check_metadata=True)
    assert [there.detail(shard) for shard in range(2)] == [here.detail(shard) for shard in range(2)]
    assert stored_rows(there.url) == stored_rows(here.url) == plain(rows_of(made))


def load(kind: str, files: Path, tmp_path: Path) -> Dataset:
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    return datasets.load_dataset(kind, data_files=str(files), split="train", cache_dir=str(tmp_path / "cache"))
