from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow
from dataflow.dataset import ShardWriter
from dataflow.errors import CorruptDataError, OptionError
from dataflow.operations.exclude import exclude
from dataflow.operations.statistics import sampled_blocks, statistics
from tests.dataset.written import write
from tests.formats.archives import pack
from tests.operations.photographs import animation, encoded, photograph

ROWS = 500


def rows() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {
            "key": f"k{number}",
            "text": None if number % 10 == 0 else "é" * (number % 7),
            "tokens": rng.integers(0, 99, number % 50).astype(np.int32),
            "label": number % 3,
            "score": float(number) if number % 100 else float("nan"),
            "flag": number % 4 == 0,
            "box": [1.0, 2.0],
            "info": {"a": number},
        }
        for number in range(ROWS)
    ]


def columns(url: Path | str, **options: Any) -> dict[str, dict[str, Any]]:
    facts = statistics(str(url), **options).to_json()
    json.dumps(facts, allow_nan=False)
    return {column["name"]: column for column in facts["columns"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write(folder, rows(), rows_per_block=16, shard_bytes=9000, properties={"classes": ["cat", "dog", "owl"]})
    return folder


def test_the_dataset_as_a_whole(data: Path) -> None:
    done: list[tuple[int, int]] = []
    found = statistics(str(data), on_progress=lambda rows, nbytes: done.append((rows, nbytes)))
    manifest = found.manifest
    facts = found.to_json()
    assert (facts["rows"], facts["looked_at"], facts["excluded"]) == (ROWS, ROWS, 0)
    assert facts["blocks"] == manifest.num_blocks == 32
    assert facts["rows_per_block"]["max"] == 16
    assert facts["rows_per_block"]["min"] == 4
    assert facts["bytes_per_block"]["mean"] == manifest.num_bytes / 32
    assert tuple(map(sum, zip(*done, strict=True))) == (ROWS, manifest.num_bytes)


def test_lengths_nulls_and_numbers(data: Path) -> None:
    found = columns(data)
    text = found["text"]
    lengths = sorted(number % 7 for number in range(ROWS) if number % 10)
    assert (text["rows"], text["nulls"], text["type"]) == (ROWS, 50, "string")
    assert text["lengths"]["unit"] == "characters"
    assert text["lengths"]["mean"] == pytest.approx(np.mean(lengths))
    assert text["lengths"]["median"] == lengths[-(-len(lengths) // 2) - 1]
    assert [count for _, _, count in text["lengths"]["histogram"]] == [lengths.count(n) for n in range(7)]
    assert found["tokens"]["lengths"]["unit"] == "items"
    assert (found["tokens"]["lengths"]["max"], found["tokens"]["lengths"]["p99"]) == (49, 49)
    score = found["score"]["numbers"]
    assert (score["min"], score["max"], score["not_finite"]) == (1.0, 499.0, 5)
    assert score["median"] == pytest.approx(250, rel=0.01)
    assert "lengths" not in found["info"]
    assert "numbers" not in found["info"]


def test_labels_and_other_values(data: Path) -> None:
    found = columns(data)
    assert found["label"]["values"] == [
        {"value": 0, "count": 167, "name": "cat"},
        {"value": 1, "count": 167, "name": "dog"},
        {"value": 2, "count": 166, "name": "owl"},
    ]
    assert found["flag"]["values"] == [{"value": False, "count": 375}, {"value": True, "count": 125}]
    assert found["text"]["values"][0] == {"value": "é", "count": 65}
    assert len(found["key"]["values"]) == ROWS
    assert "values" not in found["score"]


def test_values_are_counted_while_they_are_few_and_short(tmp_path: Path) -> None:
    write(tmp_path, [{"id": number, "long": "x" * 101, "few": "y"} for number in range(1001)], rows_per_block=100)
    found = columns(tmp_path)
    assert "values" not in found["id"]
    assert "values" not in found["long"]
    assert found["few"]["values"] == [{"value": "y", "count": 1001}]


@pytest.mark.parametrize("workers", [1, 4])
def test_any_number_of_threads_finds_the_same(data: Path, workers: int) -> None:
    assert columns(data, workers=workers) == columns(data)


def test_a_sample_is_spread_over_the_dataset(data: Path) -> None:
    found = statistics(str(data), sample=64)
    assert found.rows == 16 * 4 + 4
    assert sampled_blocks(found.manifest, 64) == [0, 8, 16, 23, 31]
    assert found.to_json()["looked_at"] == found.rows
    assert statistics(str(data), sample=ROWS).rows == ROWS
    with pytest.raises(OptionError, match="sample is 0"):
        statistics(str(data), sample=0)


def test_images_are_told_by_their_headers(tmp_path: Path) -> None:
    images = [
        photograph(),
        photograph()[:-9000],  # the rest is not looked at
        encoded("PNG", (30, 20), "L"),
        encoded("WEBP", (300, 200)),
        animation("GIF"),
        b"<html>",
        b"\xff\xd8\xff and no more",
        None,
    ]
    write(tmp_path, [{"image": data, "blob": b"x" * number} for number, data in enumerate(images)])
    found = columns(tmp_path)
    image = found["image"]["images"]
    assert image["formats"] == {"jpeg": 3, "png": 1, "webp": 1, "gif": 1}
    assert image["modes"] == {"RGB": 3, "L": 1, "P": 1}
    assert (image["unreadable"], image["others"]) == (1, 1)
    assert (image["width"]["min"], image["width"]["max"], image["width"]["count"]) == (30, 640, 5)
    assert image["height"]["max"] == 427
    assert found["image"]["nulls"] == 1
    assert "images" not in found["blob"]
    assert found["blob"]["lengths"]["max"] == 7


def test_pillow_is_needed_for_images_alone(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [{"image": photograph()}])
    monkeypatch.setitem(sys.modules, "PIL.ImageFile", None)
    columns(data)
    with pytest.raises(OptionError, match="Pillow, which is not installed"):
        columns(tmp_path)


def test_excluded_rows_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, [{"key": str(number), "label": number} for number in range(10)])
    exclude(str(tmp_path), ["3", "9"])
    facts = statistics(str(tmp_path)).to_json()
    assert (facts["rows"], facts["excluded"]) == (8, 2)
    assert facts["columns"][1]["numbers"]["max"] == 8


def test_columns_of_nulls_and_of_every_type(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("none", pa.string()),
            ("half", pa.float16()),
            ("huge", pa.uint64()),
            ("wide", pa.large_binary()),
            ("big", pa.large_list(pa.int8())),
            ("text", pa.large_string()),
            ("when", pa.timestamp("us")),
            ("pose", pa.list_(pa.float32(), 2)),
        ]
    )
    batch = pa.record_batch(
        [
            pa.nulls(3, pa.string()),
            pa.array(np.array([1, 2, 3], np.float16)),
            pa.array([2**64 - 1, 0, 1], pa.uint64()),
            pa.array([b"a", photograph(), None], pa.large_binary()),
            pa.array([[1], [], None], pa.large_list(pa.int8())),
            pa.array(["ab", None, ""], pa.large_string()),
            pa.array([1, 2, 3], pa.timestamp("us")),
            pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
        ],
        schema=schema,
    )
    with ShardWriter(str(tmp_path), schema) as writer:
        writer.write_batch(batch)
    found = columns(tmp_path)
    assert found["none"]["lengths"]["count"] == 0
    assert found["half"]["numbers"]["mean"] == 2
    assert found["huge"]["numbers"]["max"] == 2**64 - 1
    assert found["wide"]["images"]["formats"] == {"jpeg": 1}
    assert found["big"]["lengths"]["max"] == 1
    assert found["text"]["lengths"]["max"] == 2
    assert found["pose"]["nulls"] == 1


def test_tars_on_s3(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    values = (("jpg", photograph()), ("cls", b"1"))
    members = [(f"{number}.{kind}", data) for number in range(9) for kind, data in values]
    dataflow.dataset.dataset.open_store(s3_url).put_atomic("a.tar", pack(members))
    dataflow.index(s3_url)
    assert columns(s3_url)["jpg"]["images"]["formats"] == {"jpeg": 9}


def test_a_damaged_block_is_an_error(tmp_path: Path) -> None:
    manifest = write(tmp_path, [{"x": number} for number in range(10)])
    path = tmp_path / manifest.shard_path(0)
    data = bytearray(path.read_bytes())
    data[int(manifest.starts[0]) + 150] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match="block 0"):
        statistics(str(tmp_path))
