"""Indexed files in a loader: every format gives what was written, shuffled, resumed, and without touching a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow
from dataflow.errors import CorruptDataError
from dataflow.storage import open_store
from tests.formats.shards import PACKERS, pack_parts

ROWS = [{"id": number, "text": f"row {number} \u2028", "score": number / 4} for number in range(500)]


def write(folder: Path, kind: str, shards: int = 3) -> None:
    folder.mkdir()
    for shard in range(shards):
        rows = ROWS[shard::shards]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{shard}.parquet", row_group_size=20)
            continue
        if kind.startswith("csv"):
            data = "".join(["id,text,score\n", *(f"{r['id']},{r['text']},{r['score']}\n" for r in rows)]).encode()
        else:
            data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        suffix = next((suffix for suffix in PACKERS if kind.endswith(suffix)), "")
        packed = pack_parts(suffix, data, range(0, len(data), 700)) if suffix else data
        (folder / f"{shard}.{kind}").write_bytes(packed)


def samples(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"id": int(id), "text": text, "score": float(score)}
        for batch in batches
        for id, text, score in zip(batch["id"], batch["text"], batch["score"], strict=True)
    ]


@pytest.mark.filterwarnings("ignore:.* lanes for .* ranks")
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz"])
def test_every_row_once_and_on_from_a_state(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "files", kind)
    manifest = dataflow.index(str(tmp_path / "files"), out=str(tmp_path / "out"), block_bytes=500)
    assert manifest.num_blocks > 8
    dataset = dataflow.open(manifest.url)
    loader = dataflow.DataLoader(dataset, batch_size=16, shuffle=True, seed=3)
    batches = list(loader)
    found = samples(batches)
    assert sorted(found, key=lambda row: row["id"]) == ROWS
    assert found != ROWS
    first = dataflow.DataLoader(dataset, batch_size=16, shuffle=True, seed=3)
    iterator = iter(first)
    for _ in range(10):
        next(iterator)
    second = dataflow.DataLoader(dataflow.open(manifest.url), batch_size=16, shuffle=True, seed=3)
    second.load_state_dict(first.state_dict())
    assert samples(list(second)) == found[160:]


@pytest.mark.parametrize("kind", ["parquet", "jsonl.zst"])
def test_sh14_reading_changes_no_file(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "files", kind)
    manifest = dataflow.index(str(tmp_path / "files"), out=str(tmp_path / "out"))
    before = [
        {entry.path: entry.version for entry in open_store(str(tmp_path / name)).list()} for name in ("files", "out")
    ]
    for _ in range(2):
        assert samples(list(dataflow.DataLoader(dataflow.open(manifest.url), batch_size=50)))[0]["id"] == 0
    after = [
        {entry.path: entry.version for entry in open_store(str(tmp_path / name)).list()} for name in ("files", "out")
    ]
    assert after == before
    assert len(before[0]) == 3


def test_a_block_that_was_damaged_since_is_named(tmp_path: Path) -> None:
    write(tmp_path / "files", "parquet")
    manifest = dataflow.index(str(tmp_path / "files"))
    data = bytearray((tmp_path / "files" / "1.parquet").read_bytes())
    block = int(manifest.first_blocks[1]) + 2
    data[int(manifest.starts[block]) + 9] ^= 1
    (tmp_path / "files" / "1.parquet").write_bytes(data)
    with pytest.raises(CorruptDataError, match=rf"block {block} .*1\.parquet.*xxh3-128"):
        list(dataflow.DataLoader(dataflow.open(manifest.url), batch_size=50))
