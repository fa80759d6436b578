"""`dataflow shard` with options for rows: columns, tokens, splits, and sources of several kinds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

import dataflow
from dataflow.cli import app
from tests.cli.conftest import Run, picture

Write = Callable[[dict[str, bytes]], Path]


def lines(count: int, start: int = 0) -> bytes:
    rows = ({"key": f"{n:03d}", "text": "ab " * (n % 5), "n": n} for n in range(start, start + count))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def rows(url: object) -> list[dict[str, Any]]:
    dataset = dataflow.open(str(url))
    return [dataset[number] for number in range(len(dataset))]


def test_tokens_by_the_command(run: Run, write: Write, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"ab": 5, "<end>": 9}, unk_token="ab"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    source = write({"a.jsonl": lines(50)})
    common = ("--tokenizer", tmp_path / "tokenizer.json", "--eod", "<end>", "--keep-order", "--workers", 1)
    run("shard", source, tmp_path / "out", *common, "--rename", "tokens=ids", "--columns", "key")
    found = rows(tmp_path / "out")
    assert [set(row) - {"sample_id"} for row in found[:1]] == [{"key", "ids", "num_tokens"}]
    assert [row["ids"].tolist() for row in found] == [[5] * (n % 5) + [9] for n in range(50)]
    out = run("shard", source, tmp_path / "some", *common, "--drop-empty", "--keep-text").stdout
    assert "skipped 10 items: an empty document" in out
    assert {row["text"] for row in rows(tmp_path / "some")} == {"ab " * n for n in range(1, 5)}
    assert "need --tokenizer" in run("shard", source, tmp_path / "x", "--drop-empty", code=1).stderr
    assert "no token 'end'" in run("shard", source, tmp_path / "x", *common[:3], "end", code=1).stderr


def test_splits_and_limit_by_the_command(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({"a.jsonl": lines(300)})
    out = run("shard", source, tmp_path / "out", "--split", "train=0.8,rest=0.2", "--limit", 200).stdout
    assert f"shard to {tmp_path / 'out' / 'rest'}" in out
    keys = [{row["key"] for row in rows(tmp_path / "out" / name)} for name in ("train", "rest")]
    assert not keys[0] & keys[1]
    assert len(keys[0] | keys[1]) == 200
    run("shard", source, tmp_path / "usual", "--split", "0.8,0.2", "--split-by", "n")
    assert (tmp_path / "usual" / "val" / "manifest.arrow").exists()
    for bad in ("0.8,val=0.2", "a=0.5,a=0.5"):
        assert "a name of its own" in run("shard", source, tmp_path / "x", "--split", bad, code=1).stderr
    assert "not of the form" in run("shard", source, tmp_path / "x", "--rename", "a", code=1).stderr


def test_several_sources_and_a_list_on_standard_input(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({"a.jsonl": lines(10), "b b.jsonl": lines(10, start=10)})
    run("shard", source / "a.jsonl", source / "b b.jsonl", tmp_path / "out")
    listed = f"{source}/b b.jsonl\n\n{source}/a.jsonl\n"
    result = CliRunner().invoke(app, ["shard", "-", str(tmp_path / "listed")], input=listed, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert rows(tmp_path / "out") == rows(tmp_path / "listed")
    assert len(rows(tmp_path / "out")) == 20


def test_folders_of_splits_by_the_command(run: Run, write: Write, tmp_path: Path) -> None:
    source = write({f"{split}/{n % 2}/{n}.jpg": picture(n) for split in ("train", "val") for n in range(4)})
    assert "--split-folders" in run("shard", source, tmp_path / "x", code=1).stderr
    run("shard", source, tmp_path / "out", "--split-folders")
    assert {row["key"] for row in rows(tmp_path / "out" / "val")} == {f"{n % 2}/{n}.jpg" for n in range(4)}
    assert "takes one SRC" in run("shard", source, source, tmp_path / "x", "--split-folders", code=1).stderr


def test_help_is_in_groups(run: Run) -> None:
    text = run("shard", "--help").stdout
    for group in ("Which rows and columns", "Tokens", "Images", "Order, sizes and speed", "What is bad"):
        assert group in text
