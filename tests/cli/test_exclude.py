from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dataflow
from dataflow.cli import app
from tests.cli.conftest import Run
from tests.dataset.written import write


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data", [{"key": f"k {number}", "id": number} for number in range(10)], rows_per_block=3)
    return tmp_path / "data"


def test_keys_of_a_file(run: Run, data: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(b"\xef\xbb\xbfk 1\r\n\nk 9")
    result = run("exclude", data, "--keys", tmp_path / "keys")
    assert "excluded 2 rows (2 in all), 8 rows left" in result.stdout
    assert "The bytes stay in the shards" in result.stdout
    assert f"dataflow shard {data} NEW" in result.stdout
    assert len(dataflow.open(str(data))) == 8
    assert "8 (and 2 that are excluded)" in run("info", data).stdout
    assert "excluded already" in run("exclude", data, "--keys", tmp_path / "keys").stdout


def test_keys_that_are_not_there(run: Run, data: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("k 1\nk 100\nk 2\nk\u2028200\n")
    result = run("exclude", data, "--keys", tmp_path / "keys", code=1)
    assert "not found: k 100\nnot found: k\u2028200\n2 keys not found" in result.stdout
    assert len(dataflow.open(str(data))) == 10
    facts = json.loads(run("exclude", data, "--keys", tmp_path / "keys", "--allow-missing", "--json").stdout)
    assert facts["missing"] == ["k 100", "k\u2028200"]
    assert (facts["excluded"], facts["excluded_in_all"], facts["rows"], facts["written"]) == (2, 2, 8, True)
    assert facts["fingerprint"] == dataflow.open(str(data)).fingerprint


def test_keys_of_standard_input_in_another_column(data: Path, tmp_path: Path) -> None:
    arguments = ["exclude", str(data), "--keys", "-", "--column", "id", "--out", str(tmp_path / "less")]
    result = CliRunner().invoke(app, arguments, input="3\n4\n", catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert [row["id"] for row in dataflow.open(str(tmp_path / "less"))] == [0, 1, 2, 5, 6, 7, 8, 9]
    assert len(dataflow.open(str(data))) == 10


def test_keys_that_cannot_be_read(run: Run, data: Path, tmp_path: Path) -> None:
    assert "cannot read the keys" in run("exclude", data, "--keys", tmp_path / "none", code=1).stderr
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")
    assert "are not UTF-8" in run("exclude", data, "--keys", tmp_path / "latin", code=1).stderr
