from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataflow.cli import advice
from tests.cli.conftest import Run

Write = Callable[[dict[str, bytes]], Path]

LINES = b'{"a": 1}\n' * 10


def test_compressed_files_that_are_one_block(run: Run, write: Write) -> None:
    source = write({"0.jsonl.gz": gzip.compress(LINES), "1.jsonl": LINES, "2.jsonl.gz": gzip.compress(LINES) * 2})
    said = "1 of 3 shards are compressed in one piece, so that each is one block"
    assert said in run("index", source, "--block-mib", "0.00001").stdout
    assert said in run("info", source).stdout


def test_row_groups_that_are_large(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"x": range(50_000)}), tmp_path / "a.parquet", row_group_size=45_000, compression="NONE")
    assert "larger than" not in run("index", tmp_path).stdout
    monkeypatch.setattr(advice, "LARGE_BLOCK_BYTES", 100 << 10)
    for command in ("index", "info"):
        out = run(command, tmp_path).stdout
        assert "1 of 2 blocks are larger than" in out
        assert f"`dataflow shard {tmp_path} DESTINATION`" in out


def test_formats_in_one_folder(run: Run, write: Write) -> None:
    source = write({"0.jsonl": LINES, "1.csv": b"a,b\n1,2\n", "notes.txt": b"x"})
    assert "Give format='jsonl' or 'csv'" in run("index", source, code=1).stderr
    assert "indexed 1 row " in run("index", source, "--format", "csv").stdout
    assert "indexed 1 row " in run("index", source, "--format", "text").stdout
