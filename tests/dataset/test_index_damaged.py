"""`index(on_error="skip")`: datasets of what is sound in shards of which some are damaged."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

import dataflow
from dataflow import DataLoader
from dataflow.dataset import Manifest, index, read_block
from dataflow.errors import CorruptDataError, DatasetError, OptionError
from dataflow.formats import Skipped
from dataflow.storage import open_store
from tests.formats.archives import pack
from tests.formats.shards import PACKERS


def rows_of(manifest: Manifest) -> list[dict[str, Any]]:
    store = open_store(manifest.base_url)
    return [row for block in range(manifest.num_blocks) for row in read_block(store, manifest, block).to_pylist()]


def json_shard(first: int, rows: int, suffix: str = "") -> bytes:
    """Rows of which each tenth is damaged."""
    lines = [
        b'{"id": %d' % n if n % 10 == 3 else json.dumps({"id": n, "text": f"row {n}"}).encode()
        for n in range(first, first + rows)
    ]
    data = b"\n".join(lines)
    return PACKERS[suffix](data) if suffix else data


def test_damaged_rows_of_many_shards(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for shard, suffix in enumerate(["", ".gz", ".zst", ""]):
        (source / f"{shard}.jsonl{suffix}").write_bytes(json_shard(shard * 100, 100, suffix))
    with pytest.raises(CorruptDataError, match=r"0\.jsonl: line 4: not JSON"):
        index(str(source))
    assert not (source / "manifest.arrow").exists()
    skipped: list[Skipped] = []
    manifest = index(str(source), on_skip=skipped.append, on_error="skip", block_bytes=400)
    good = [{"id": n, "text": f"row {n}"} for n in range(400) if n % 10 != 3]
    assert manifest.num_rows == 360
    assert rows_of(manifest) == good
    paths = [f"{shard}.jsonl{suffix}" for shard, suffix in enumerate(["", ".gz", ".zst", ""])]
    assert [item.name for item in skipped] == [f"{path}: line {n + 1}" for path in paths for n in range(3, 100, 10)]
    assert {item.reason for item in skipped} == {"a damaged row"}
    assert all(item.note.startswith("not JSON") for item in skipped)
    assert "left out 40 files, members and columns (skipped 0.jsonl: line 4: a damaged row" in caplog.text
    loader = DataLoader(dataflow.open(str(source)).select("id"), batch_size=7, seed=1, epochs=1, drop_last=False)
    delivered = np.concatenate([batch["id"] for batch in loader])
    assert sorted(set(delivered.tolist())) == [row["id"] for row in good]


def test_the_same_for_any_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for shard in range(20):
        (tmp_path / f"{shard:02d}.jsonl").write_bytes(json_shard(shard * 30, 30))
    found = []
    for threads in (1, 3, 8):
        monkeypatch.setattr(importlib.import_module("dataflow.dataset.index"), "THREADS", threads)
        skipped: list[Skipped] = []
        manifest = index(str(tmp_path), on_skip=skipped.append, on_error="skip")
        found.append((manifest.fingerprint, (tmp_path / "manifest.arrow").read_bytes(), skipped))
    assert found[0] == found[1] == found[2]


def test_sound_shards_make_the_same_manifest(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n{"a": 2}\n')
    (tmp_path / "b.jsonl").write_bytes(b"")
    index(str(tmp_path))
    before = (tmp_path / "manifest.arrow").read_bytes()
    index(str(tmp_path), on_error="skip")
    assert (tmp_path / "manifest.arrow").read_bytes() == before


def write_arrow(path: Path) -> None:
    with ipc.new_file(str(path), pa.schema([("x", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"x": [1, 2]}))


def write_parquet(path: Path) -> None:
    parquet.write_table(pa.table({"x": [1, 2]}), path)


def write_tar(path: Path) -> None:
    path.write_bytes(pack([("1.jpg", b"x")]))


@pytest.mark.parametrize(
    ("suffix", "write", "damaged"),
    [
        (".arrow", write_arrow, b"ARROW1\0\0 no schema"),
        (".parquet", write_parquet, b"PAR1 no footer"),
        (".tar", write_tar, b"no header" * 100),
        (".csv", lambda path: path.write_bytes(b"x\n1\n"), b'"x\n1\n'),
        (".jsonl", lambda path: path.write_bytes(b'{"x": 1}\n'), b"\0\0\0\n"),
        (".jsonl.gz", lambda path: path.write_bytes(PACKERS[".gz"](b'{"x": 1}\n')), b"no gzip"),
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_shard_of_which_nothing_is_left(
    tmp_path: Path, suffix: str, write: Callable[[Path], object], damaged: bytes, place: int
) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    write(paths[1 - place])
    paths[place].write_bytes(damaged)
    skipped: list[Skipped] = []
    manifest = index(str(tmp_path), on_skip=skipped.append, on_error="skip")
    assert [manifest.shard_path(shard) for shard in range(manifest.num_shards)] == [paths[1 - place].name]
    assert skipped[-1].name == paths[place].name
    assert skipped[-1].reason in ("a damaged shard", "has no rows")
    paths[1 - place].write_bytes(damaged)
    with pytest.raises(DatasetError, match=r"hold no rows \(skipped a\."):
        index(str(tmp_path), on_error="skip")
    with pytest.raises(OptionError, match="on_error is 'ignore'"):
        index(str(tmp_path), on_error="ignore")  # type: ignore[arg-type]


def test_damaged_tars_in_an_object_store(s3_url: str, tmp_path: Path) -> None:
    store = open_store(s3_url)
    data = pack((f"{n:03d}.{kind}", b"x" * 3000) for n in range(50) for kind in ("cls", "jpg"))
    store.put_atomic("0.tar", data)
    store.put_atomic("1.tar", data[: len(data) // 2])
    skipped: list[Skipped] = []
    manifest = index(s3_url, out=str(tmp_path), block_bytes=20_000, on_skip=skipped.append, on_error="skip")
    keys = [row["key"] for row in rows_of(manifest)]
    assert keys[:50] == [f"{n:03d}" for n in range(50)]
    assert keys[50:] == [f"{n:03d}" for n in range(len(keys) - 50)]
    assert len(keys) == 75
    assert [item.reason for item in skipped] == ["a damaged sample", "damaged or cut off"]
