from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq

from tests.cli.conftest import Run
from tests.dataset.written import write


def test_export_says_what_it_wrote(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "data", [{"key": str(n), "a": n, "b": n} for n in range(10)], rows_per_block=5)
    out = run("export", tmp_path / "data", tmp_path / "jsonl", "--format", "jsonl").stdout
    size = (tmp_path / "jsonl" / "00000.jsonl").stat().st_size
    assert f"wrote 10 rows ({size} B) in 1 file to {tmp_path / 'jsonl'}" in out
    options = ["--format", "parquet", "--columns", "b,key", "--shard-mib", "0.00001", "--json"]
    facts = json.loads(run("export", tmp_path / "data", tmp_path / "parquet", *options).stdout)
    assert facts["files"] == ["00000.parquet", "00001.parquet"]
    assert pq.read_table(tmp_path / "parquet").column_names == ["b", "key"]


def test_export_refuses_what_cannot_be(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "data", [{"a": 1}])
    assert "is not empty" in run("export", tmp_path / "data", tmp_path, "--format", "tar", code=1).stderr
    assert "'--format'" in run("export", tmp_path / "data", tmp_path / "x", "--format", "zip", code=2).stderr
    options = ["--format", "tar", "--shard-mib", "0"]
    assert "must be more than 0" in run("export", tmp_path / "data", tmp_path / "x", *options, code=1).stderr
