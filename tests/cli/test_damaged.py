"""Damaged shards on the command line: `--on-error skip` of `dataflow index` and `dataflow shard`."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dataflow
from dataflow.formats import compression
from tests.cli.conftest import Run, picture
from tests.formats.archives import pack

Write = Callable[[dict[str, bytes]], Path]


def ids(url: object, column: str = "id") -> list[Any]:
    dataset = dataflow.open(str(url))
    return sorted(dataset[number][column] for number in range(len(dataset)))


def json_lines(bad: int) -> bytes:
    return b"".join(b'{"id": %d, "text": "x"}\n' % n if n != bad else b'{"id": "3"}\n' for n in range(50))


def test_index_leaves_out_damaged_rows_and_lists_them(run: Run, write: Write) -> None:
    source = write({"a.jsonl": json_lines(7), "b.jsonl": json_lines(-1)})
    assert "a.jsonl: line 8: column 'id' is text here" in run("index", source, code=1).stderr
    out = run("index", source, "--on-error", "skip").stdout
    assert "skipped 1 item: a damaged row (a.jsonl: line 8)" in out
    assert "indexed 99 rows" in out
    out = run("index", source, "--on-error", "skip", "--list-skipped").stdout
    assert "  a.jsonl: line 8: column 'id' is text here, and an integer before" in out
    assert ids(source) == sorted([*range(50), *(n for n in range(50) if n != 7)])


def test_shard_of_damaged_lines_with_a_report(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({"a.jsonl": json_lines(7), "b.jsonl.gz": gzip.compress(json_lines(20)), "c.jsonl": b"{\n"})
    assert "a.jsonl: line 8" in run("shard", source, tmp_path / "out", code=1).stderr
    report = tmp_path / "report.jsonl"
    out = run("shard", source, tmp_path / "out", "--on-error", "skip", "--report", report).stdout
    assert "skipped 3 items: a damaged row (a.jsonl: line 8, b.jsonl.gz: line 21, c.jsonl: line 1)" in out
    assert "wrote 98 rows" in out
    assert ids(tmp_path / "out") == sorted(n for bad in (7, 20) for n in range(50) if n != bad)
    items = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(item["name"], item["reason"]) for item in items] == [
        ("a.jsonl: line 8", "a damaged row"),
        ("b.jsonl.gz: line 21", "a damaged row"),
        ("c.jsonl: line 1", "a damaged row"),
        ("c.jsonl", "has no rows"),
    ]
    assert items[0]["note"] == "column 'id' is text here, and an integer before"


def test_shard_of_damaged_tars_with_a_report(run: Run, write: Write, tmp_path: Path) -> None:
    members = [(f"{n:02d}.{kind}", picture(n) if kind == "jpg" else b"1") for n in range(20) for kind in ("cls", "jpg")]
    empty = [(name, b"" if name == "05.cls" else data) for name, data in members]
    whole = pack(members)
    source = write({"a.tar": pack(empty), "b.tar": whole[: whole.index(b"10.cls\0") + 100], "c.tar": b"x" * 2000})
    report = tmp_path / "report.jsonl"
    assert "a.tar" in run("shard", source, tmp_path / "out", code=1).stderr
    run("shard", source, tmp_path / "out", "--on-error", "skip", "--report", report)
    found = ids(tmp_path / "out", "key")
    assert found == sorted([*(f"{n:02d}" for n in range(20) if n != 5), *(f"{n:02d}" for n in range(9))])
    names = [json.loads(line)["name"] for line in report.read_text().splitlines()]
    assert [name.partition(" at offset")[0].partition(" after offset")[0] for name in names] == [
        "a.tar: sample '05'",
        "b.tar: sample '09'",
        "b.tar: everything",
        "c.tar: everything",
        "c.tar",
    ]


@pytest.mark.parametrize("whole", [0, 3])
def test_damaged_files_that_have_to_be_expanded(
    run: Run, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    monkeypatch.setattr(compression, "MAX_MEMBER_BYTES", 1000)
    monkeypatch.setattr("dataflow.sharding.expand.MAX_MEMBER_BYTES", 1000)
    lines = [b'{"id": %d, "text": "some text"}\n' % n for n in range(300)]
    data = b"".join(lines)
    parts = [gzip.compress(data[start : start + 2500]) for start in range(0, len(data), 2500)]
    damaged = b"".join(parts[:whole]) + parts[whole][:-9]
    source = write({"a.jsonl.gz": damaged, "b.jsonl": b'{"id": 1000, "text": "x"}\n'})
    assert "a.jsonl.gz: cut off" in run("shard", source, tmp_path / "out", code=1).stderr
    out = run("shard", source, tmp_path / "out", "--on-error", "skip").stdout
    assert ids(tmp_path / "out") == [*range(data[: 2500 * whole].count(b"\n")), 1000]
    offset = len(b"".join(parts[:whole]))
    reason = f"damaged or cut off (a.jsonl.gz: everything after offset {offset})"
    assert (reason if whole else "a damaged shard (a.jsonl.gz)") in out
