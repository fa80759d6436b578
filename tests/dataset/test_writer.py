from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from dataflow.dataset import Manifest, ShardWriter, index
from dataflow.errors import DatasetError, OptionError
from tests.dataset.written import rows_at, write

ROWS = [
    {
        "image": bytes([i % 256]) * (i % 700),
        "text": f"row {i} é",
        "label": i,
        "score": i / 3,
        "tokens": np.arange(i % 5, dtype=np.uint16),
        "names": ["a", "b"][: i % 3],
        "info": {"camera": i, "on": bool(i % 2)},
        "caption": None if i % 3 else "there",
    }
    for i in range(1000)
]
PLAIN = [{**row, "tokens": row["tokens"].tolist()} for row in ROWS]  # type: ignore[attr-defined]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_rows_come_back(tmp_path: Path, compression: str | None) -> None:
    manifest = write(tmp_path / "d", ROWS, block_bytes=20_000, shard_bytes=100_000, compression=compression)
    assert rows_at(str(tmp_path / "d")) == PLAIN
    assert manifest.schema.field("tokens").type == pa.list_(pa.uint16())
    assert manifest.num_shards > (1 if compression is None else 0)
    assert set(manifest.rows[:-1].tolist()) == {manifest.block_rows}
    assert 0 < manifest.rows[-1] <= manifest.block_rows


def test_any_arrow_tool_reads_the_shards(tmp_path: Path) -> None:
    manifest = write(tmp_path, ROWS, block_bytes=20_000, shard_bytes=100_000)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["manifest.arrow", *(f"shard-{number:05d}.arrow" for number in range(manifest.num_shards))]
    rows = [row for name in names[1:] for row in ipc.open_file(str(tmp_path / name)).read_all().to_pylist()]
    assert rows == PLAIN


def test_checksums_are_those_of_the_bytes(tmp_path: Path) -> None:
    manifest = write(tmp_path, ROWS, block_bytes=20_000)
    data = (tmp_path / "shard-00000.arrow").read_bytes()
    for block in range(manifest.num_blocks):
        start, length = int(manifest.starts[block]), int(manifest.lengths[block])
        assert manifest.checksum(block) == xxhash.xxh3_128_digest(data[start : start + length])


def test_the_index_of_the_shards_is_the_manifest(tmp_path: Path) -> None:
    written = write(tmp_path / "d", ROWS, block_bytes=20_000, shard_bytes=100_000, properties={"classes": ["x"]})
    indexed = index(str(tmp_path / "d"), out=str(tmp_path / "out"))
    assert indexed.fingerprint == written.fingerprint
    assert indexed.schema == written.schema
    assert indexed.block_rows == written.block_rows
    assert indexed.starts.tolist() == written.starts.tolist()
    assert indexed.base_url == str(tmp_path / "d")
    assert index(str(tmp_path / "d")).properties == {"classes": ["x"]}  # kept when a manifest is written again


def test_the_number_of_rows_in_a_block(tmp_path: Path) -> None:
    rows = [{"x": b"y" * 1000}] * 5000
    assert write(tmp_path / "small", rows).block_rows == pytest.approx(65, abs=2)  # 64 KiB
    assert write(tmp_path / "hinted", rows, total_bytes=4 << 30).block_rows == pytest.approx(1044, abs=6)  # 1 MiB
    assert write(tmp_path / "huge", rows, total_bytes=1 << 50).block_rows == pytest.approx(2089, abs=12)  # 2 MiB
    assert write(tmp_path / "given", rows, block_bytes=10_000).block_rows == 10
    assert write(tmp_path / "rows", rows, rows_per_block=7).block_rows == 7
    with ShardWriter(str(tmp_path / "large")) as writer:
        for _ in range(40_000):
            writer.write(rows[0])
    assert Manifest.open(str(tmp_path / "large")).block_rows == pytest.approx(522, abs=4)  # 512 KiB


def test_a_block_that_reaches_twice_the_size_is_closed_early(tmp_path: Path) -> None:
    rows = [{"x": b"y" * (1000 if i < 100 or i > 120 else 15_000)} for i in range(300)]
    manifest = write(tmp_path / "rows", rows, block_bytes=10_000)
    with ShardWriter(str(tmp_path / "batches"), block_bytes=10_000) as writer:
        for start in range(0, 300, 100):
            writer.write_batch(pa.RecordBatch.from_pylist(rows[start : start + 100]))
    for found, url in ((manifest, tmp_path / "rows"), (Manifest.open(str(tmp_path / "batches")), tmp_path / "batches")):
        assert found.lengths.max() < 40_000
        assert found.rows.max() >= found.block_rows > 1
        assert rows_at(str(url)) == rows


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.one_of(st.integers(0, 40), st.none()), max_size=12),
    st.integers(1, 12),
    st.integers(1, 4000),
)
def test_rows_and_batches_in_any_mixture(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int | None], rows_per_block: int, shard_bytes: int
) -> None:
    url = str(tmp_path_factory.mktemp("mixed"))
    schema = pa.schema([("x", pa.int64()), ("y", pa.binary())])
    expected: list[dict[str, Any]] = []
    with ShardWriter(url, schema, rows_per_block=rows_per_block, shard_bytes=shard_bytes) as writer:
        for piece in [*pieces, None]:
            new = [{"x": len(expected) + i, "y": b"z" * i} for i in range(1 if piece is None else piece)]
            expected += new
            if piece is None:
                writer.write(new[0])
            else:
                writer.write_batch(pa.RecordBatch.from_pylist(new, schema))
    assert rows_at(url) == expected
    manifest = Manifest.open(url)
    assert set(manifest.rows[:-1].tolist()) <= {rows_per_block}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_bytes": 0}, "block_bytes is 0"),
        ({"shard_bytes": -1}, "shard_bytes is -1"),
        ({"rows_per_block": 0}, "rows_per_block is 0"),
        ({"compression": "gzip"}, "compression is 'gzip'"),
        ({"properties": {"x": {1, 2}}}, "properties must be"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ShardWriter(str(tmp_path), **options)


def test_properties_may_be_completed_until_the_end(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path)) as writer:
        writer.write({"x": 1})
        writer.properties["classes"] = ["a", "b"]
    assert Manifest.open(str(tmp_path)).properties == {"classes": ["a", "b"]}


def test_nothing_written_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no row was written"), ShardWriter(str(tmp_path)):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_exception_leaves_no_dataset_and_no_temporary_files(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield from ROWS[:500]
        raise ZeroDivisionError

    writer = ShardWriter(str(tmp_path), rows_per_block=10, shard_bytes=5_000)
    with pytest.raises(ZeroDivisionError), writer:
        list(map(writer.write, rows()))
    names = {path.name for path in tmp_path.iterdir()}
    assert all(name.startswith("shard-") for name in names)
    with pytest.raises(DatasetError, match="stopped before its end"):
        Manifest.open(str(tmp_path))
    with pytest.raises(OptionError, match="is closed"):
        writer.write(ROWS[0])


def test_sh17_a_target_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    write(tmp_path, ROWS[:10])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(OptionError, match=r"holds a dataset already\. Write to another folder"):
        ShardWriter(str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_bytes(b"mine")
    with pytest.raises(OptionError, match=r"not empty: it holds 'notes\.txt'"):
        ShardWriter(str(tmp_path / "other"))


KILLED = """
import sys
from dataflow.dataset import ShardWriter
with ShardWriter(sys.argv[1], rows_per_block=10, shard_bytes=200_000) as writer:
    for i in range(1000):
        if i == 950:
            print("now", flush=True)
            sys.stdin.read()
        writer.write({"x": b"y" * 1000, "i": i})
"""


def test_sh06_a_killed_run_is_no_dataset_and_can_be_done_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    names = {path.name for path in tmp_path.iterdir()}
    assert any(name.endswith(".partial") for name in names)
    assert "shard-00000.arrow" in names
    with pytest.raises(DatasetError, match="stopped before its end, run that again"):
        Manifest.open(str(tmp_path))
    with caplog.at_level(logging.WARNING):
        write(tmp_path, [{"z": i} for i in range(20)], rows_per_block=10)
    assert "of a run that did not finish" in caplog.text
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.arrow", "shard-00000.arrow"}
    assert [row["z"] for row in rows_at(str(tmp_path))] == list(range(20))


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    # A limit on the size of files fails the way a full disk does, without one.
    code = """
import resource, signal, sys
from dataflow.dataset import ShardWriter
from dataflow.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
try:
    with ShardWriter(sys.argv[1], rows_per_block=10) as writer:
        for i in range(5000):
            writer.write({"x": b"y" * 1000})
except StorageError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "shard-00000.arrow" in run.stdout
    assert "File too large" in run.stdout
    assert "Make room there" in run.stdout
    assert list(tmp_path.iterdir()) == []


def test_to_an_object_store(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    manifest = write(s3_url, ROWS, block_bytes=20_000, shard_bytes=100_000)
    assert rows_at(s3_url) == PLAIN
    assert manifest.url == s3_url
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    with pytest.raises(OptionError, match="holds a dataset already"):
        ShardWriter(s3_url)


def test_writing_is_fast(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [{"image": rng.bytes(int(rng.integers(50_000, 100_000))), "label": i} for i in range(1000)]
    rates = []
    for attempt in range(3):
        start = time.process_time()
        write(tmp_path / str(attempt), rows, total_bytes=8 << 30)
        rates.append(sum(len(row["image"]) for row in rows) / (time.process_time() - start) / 1e6)
    print(f"{max(rates):.0f} MB per CPU second")
    assert max(rates) > 200  # far below what it does, since machines differ: a copy a row would fall through
