"""What Python's own csv, json, gzip and zstandard write, on every way, plain and compressed."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

import dataflow
from dataflow.operations.export import export
from tests.ways.every_way import Source, check, every_way, plain

TEXTS = ['"quoted"', "two\nlines", "\r\n, \t", "é\u2028\x85\U0001f600", " blank ", "007", "NULL", "true", "-"]


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "whole": number * 10**15 - 2**53,
        "score": [1e-300, 0.1, 3.0, -2.5e8][number % 4],
        "flag": number % 2 == 0,
        "text": TEXTS[number % len(TEXTS)] + (str(number) if number >= 20 else ""),
        "code": f"00{number}",
    }


def nested(number: int) -> dict[str, Any]:
    values = row(number) | {
        "empty": None,
        "list": [[number, 0.5], []][number % 2],
        "words": ["é", None, ""][: number % 4],
        "tree": {"a": {"b": [{"c": number}, {"c": None}]}, "d": None if number % 3 else "x"},
        "none": [None, {"x": 1}][number % 2],
    }
    if number % 5 == 3:
        del values["tree"]  # a key that a line lacks is null
    return values


def json_lines(start: int, ascii: bool) -> bytes:
    return "".join(json.dumps(nested(start + n), ensure_ascii=ascii) + "\n" for n in range(20)).encode()


def table(start: int, **dialect: Any) -> bytes:
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, list(row(0)), **dialect)
    writer.writeheader()
    writer.writerows(row(start + number) for number in range(20))
    return sink.getvalue().encode()


def zst(data: bytes) -> bytes:
    """As the `zstd` program writes: a frame for each piece, one without its size in front."""
    streamed = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    half = data.index(b"\n", len(data) // 2) + 1
    return zstandard.compress(data[:half]) + streamed.compress(data[half:]) + streamed.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zst}
KINDS = [*(f"jsonl{packed}" for packed in PACKERS), *(f"csv{packed}" for packed in PACKERS), "tsv"]


def written(kind: str, start: int) -> bytes:
    match kind:
        case "jsonl":
            return json_lines(start, ascii=bool(start))
        case "csv":
            return table(start, quoting=csv.QUOTE_ALL if start else csv.QUOTE_MINIMAL)
    return table(start, dialect="excel-tab", lineterminator="\n" if start else "\r\n")


def expected(kind: str) -> list[dict[str, Any]]:
    rows = [nested(number) if kind == "jsonl" else row(number) for number in range(40)]
    return [{name: values.get(name) for name in rows[0]} for values in rows]


@pytest.fixture(scope="module", params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("lines")
    kind, _, packed = request.param.partition(".")
    for number in range(2):
        data = PACKERS[f".{packed}" if packed else ""](written(kind, 20 * number))
        (folder / f"{number}.{request.param}").write_bytes(data)
    return Source(folder, expected(kind))


@every_way
def test_rows_are_those_that_python_wrote(way: Any, source: Source, tmp_path: Path, s3_url: str) -> None:
    check(way, source, tmp_path, s3_url)


def test_python_reads_what_is_exported(source: Source, tmp_path: Path) -> None:
    url = dataflow.index(str(source.folder), out=str(tmp_path / "dataset")).url
    exported = export(url, str(tmp_path / "exported"), "jsonl", shard_bytes=1000)
    assert len(exported.files) > 1
    texts = [(tmp_path / "exported" / name).read_text() for name in exported.files]
    assert [json.loads(line) for text in texts for line in text.splitlines()] == plain(source.rows)


@every_way
def test_lines_of_text_are_those_of_python(way: Any, tmp_path: Path, s3_url: str) -> None:
    (tmp_path / "text").mkdir()
    text = "".join(f"{value} {number}\n" for number in range(9) for value in TEXTS if "\n" not in value)
    for name, packer in PACKERS.items():
        (tmp_path / "text" / f"0.txt{name}").write_bytes(packer(text.encode()))
    rows = [{"text": line} for line in text.split("\n") if line] * 3
    check(way, Source(tmp_path / "text", rows), tmp_path, s3_url)


def test_csv_has_no_null_beside_empty_text(tmp_path: Path) -> None:
    with open(tmp_path / "0.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "text", "number", "nothing"])
        writer.writeheader()
        writer.writerow({"id": 1, "text": None, "number": None, "nothing": None})
        writer.writerow({"id": 2, "text": "x", "number": 2.5, "nothing": ""})
    dataset = dataflow.open(dataflow.index(str(tmp_path), out=str(tmp_path / "dataset")).url)
    assert plain([dataset[0], dataset[1]]) == [
        {"id": 1, "text": "", "number": None, "nothing": None},
        {"id": 2, "text": "x", "number": 2.5, "nothing": None},
    ]
