"""The same rows come out whichever way they come in."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import dataflow
from dataflow.dataset import Manifest, read_block
from dataflow.errors import CorruptDataError, DatasetError, OptionError
from dataflow.formats import Skipped
from dataflow.formats.compression import MAX_MEMBER_BYTES
from dataflow.sharding import ShardOptions
from dataflow.sharding.scratch import scratch_folder
from dataflow.storage import open_store
from tests.formats.archives import pack
from tests.sharding.conftest import Fill, contents, picture, shard

ROWS = [{"key": f"{n:04d}", "text": f'größer, "{n}"\u2028 数\n{"x" * (n % 50)}', "n": n * n} for n in range(200)]
SMALL = ShardOptions(block_bytes=2000, shard_bytes=10_000)


def jsonl(rows: list[dict[str, Any]] = ROWS) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, ["key", "text", "n"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return sink.getvalue().encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=50)
    return sink.getvalue()


def rows(manifest: Manifest) -> list[dict[str, Any]]:
    store = open_store(manifest.base_url)
    found = [row for block in range(manifest.num_blocks) for row in read_block(store, manifest, block).to_pylist()]
    return sorted(found, key=lambda row: row["key"])


FILES: dict[str, Callable[[], bytes]] = {
    "a.jsonl": jsonl,
    "a.jsonl.gz": lambda: gzip.compress(jsonl()),
    "a.ndjson.zst": lambda: zstandard.compress(jsonl()),
    "a.csv": lambda: as_csv(ROWS),
    "a.tsv.gz": lambda: gzip.compress(as_csv(ROWS, "\t")),
    "a.parquet": lambda: as_parquet(ROWS),
}


@pytest.mark.parametrize("name", FILES)
def test_rows_are_those_that_were_written(fill: Fill, tmp_path: Path, name: str) -> None:
    source = fill({name: FILES[name]()})
    assert rows(shard(str(source), str(tmp_path / "out"), SMALL)) == ROWS
    assert rows(shard(str(source / name), str(tmp_path / "file"), SMALL)) == ROWS


def test_pq05_parquet_with_large_row_groups_is_read_in_parts(
    fill: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataflow.sharding.rewrite._LARGE_BYTES", 3000)
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS[:40]), small, row_group_size=20)
    pq.write_table(pa.Table.from_pylist(ROWS[40:]), large, row_group_size=1000, write_page_checksum=True)
    source = fill({"small.parquet": small.read_bytes(), "large.parquet": large.read_bytes()})
    assert rows(shard(str(source), str(tmp_path / "out"), SMALL)) == ROWS
    assert rows(shard(str(source), str(tmp_path / "two"), SMALL, workers=2)) == ROWS
    damaged = bytearray(large.read_bytes())
    damaged[len(damaged) // 3] ^= 1
    (source / "large.parquet").write_bytes(damaged)
    with pytest.raises(CorruptDataError, match=r"large\.parquet: row group 0 is damaged"):
        shard(str(source), str(tmp_path / "raise"), SMALL)
    skipped: list[Skipped] = []
    options = ShardOptions(block_bytes=2000, shard_bytes=10_000, on_error="skip")
    made = shard(str(source), str(tmp_path / "skip"), options, on_skip=skipped.append)
    assert all(row in ROWS for row in rows(made))
    assert [item.name for item in skipped] == [f"large.parquet: all after row {made.num_rows - 40}"]


def test_a_column_that_only_folders_name_is_told(fill: Fill, tmp_path: Path) -> None:
    source = fill({f"kind={kind}/a.jsonl": jsonl(ROWS[:9]) for kind in ("cat", "dog")})
    skipped: list[Skipped] = []
    assert len(rows(shard(str(source), str(tmp_path / "out"), SMALL, on_skip=skipped.append))) == 18
    assert [item.name for item in skipped] == ["the column 'kind' of folders such as kind=cat"]


def test_local_and_s3_and_every_way_to_name_files_give_the_same_bytes(fill: Fill, tmp_path: Path, s3_url: str) -> None:
    parts = {f"part-{n}.jsonl.zst": zstandard.compress(jsonl(ROWS[n * 50 : n * 50 + 50])) for n in range(4)}
    source = fill(parts)
    store = open_store(s3_url)
    for name, data in parts.items():
        store.put_atomic(f"in/{name}", data)
    names = sorted(parts)
    made = [
        shard(given, str(tmp_path / f"{number}"), SMALL)
        for number, given in enumerate(
            (
                str(source),
                f"{source}/*.zst",
                f"{source.parent}/**/part-?.jsonl.zst",
                [str(source / name) for name in reversed(names)],
                f"{s3_url}/in",
                f"{s3_url}/in/part-[0-9]*",
                [f"{s3_url}/in/{name}" for name in names],
            )
        )
    ]
    assert rows(made[0]) == ROWS
    shards = [{name: data for name, data in contents(one.url).items() if name != "manifest.arrow"} for one in made]
    # Paths below the pattern's root are part of nothing that is written.
    assert all(found == shards[0] for found in shards)


def test_rows_of_several_formats_and_places_come_together(fill: Fill, tmp_path: Path, s3_url: str) -> None:
    open_store(s3_url).put_atomic("x/a.csv.gz", gzip.compress(as_csv(ROWS[:50])))
    mixed = fill({"deep/b.parquet": as_parquet(ROWS[50:100]), "c.jsonl": jsonl(ROWS[100:150]), "README.md": b"x"})
    with dataflow.ShardWriter(str(tmp_path / "dataset")) as writer:
        for row in ROWS[150:]:
            writer.write(row)
    sources = [f"{s3_url}/x/a.csv.gz", str(mixed), str(tmp_path / "dataset")]
    skipped: list[Skipped] = []
    made = [
        shard(sources, str(tmp_path / f"{workers}"), SMALL, workers=workers, on_skip=skipped.append)
        for workers in (1, 2)
    ]
    assert rows(made[0]) == ROWS
    assert contents(made[0].url) == contents(made[1].url)
    assert [(item.name, item.reason) for item in skipped] == [("README.md", "no known kind of file by its name")] * 2
    first = [row["n"] for row in read_block(open_store(made[0].base_url), made[0], 0).to_pylist()]
    assert max(first) > 100 * 100 > min(first)  # rows of all sources are mixed


def test_kinds_of_rows_that_do_not_go_together_are_named(fill: Fill, tmp_path: Path) -> None:
    source = fill({"a.jsonl": jsonl(), "b.jpg": picture(1), ".hidden/x.jsonl": b"no json"})
    with pytest.raises(DatasetError) as raised:
        shard(str(source), str(tmp_path / "out"))
    for said in ("b.jpg", "image (binary)", "a.jsonl", "text (string)", "by a pattern"):
        assert said in str(raised.value)
    assert rows(shard(f"{source}/**/*.jsonl", str(tmp_path / "rows"))) == ROWS
    assert shard(f"{source}/**/*.jpg", str(tmp_path / "images")).num_rows == 1


def test_a_pattern_that_matches_nothing_is_an_error(fill: Fill, tmp_path: Path, s3_url: str) -> None:  # SH-15
    source = fill({"a.jsonl": jsonl()})
    for pattern in (f"{source}/*.parquet", f"{s3_url}/**/*.jsonl"):
        with pytest.raises(DatasetError, match="no file matches"):
            shard([str(source), pattern], str(tmp_path / "out"))
    with pytest.raises(DatasetError, match="empty or does not exist"):
        shard(str(source / "absent"), str(tmp_path / "out"))
    with pytest.raises(OptionError, match="in two of the sources"):
        shard([str(source), f"{source}/*.jsonl"], str(tmp_path / "out"))
    with pytest.raises(OptionError, match="no source"):
        shard([], str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_one_bad_file_of_many_is_named(fill: Fill, tmp_path: Path) -> None:  # SH-15
    files = {f"{n:03d}.jsonl": jsonl(ROWS[n : n + 1]) for n in range(200)}
    source = fill(files | {"117.jsonl": b'{"key": \n'})
    with pytest.raises(CorruptDataError, match=r"117\.jsonl: line 1"):
        shard(str(source), str(tmp_path / "out"), workers=2)
    skipped: list[Skipped] = []
    made = shard(str(source), str(tmp_path / "out"), ShardOptions(on_error="skip"), on_skip=skipped.append)
    assert rows(made) == [row for row in ROWS if row["key"] != "0117"]
    assert [(item.name, item.reason) for item in skipped] == [
        ("117.jsonl: line 1", "a damaged row"),
        ("117.jsonl", "has no rows"),
    ]


def members(count: int) -> bytes:
    return pack(
        member
        for n in range(count)
        for member in ((f"{n:04d}.jpg", picture(n)), (f"{n:04d}.txt", f"Bild {n}".encode()))
    )


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.tar.zst", "with space é.TGZ"])
def test_compressed_tars_are_expanded_and_nothing_is_left(
    fill: Fill, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    pack_it = zstandard.compress if name.endswith("zst") else gzip.compress
    source = fill({name: pack_it(members(30)), "b.tar": pack([("z.jpg", picture(99)), ("z.txt", b"letztes")])})
    made = [shard(str(source), str(tmp_path / f"{workers}"), SMALL, workers=workers) for workers in (1, 2)]
    assert "expanding 1 compressed files" in caplog.text
    assert contents(made[0].url) == contents(made[1].url)
    expected = [{"key": f"{n:04d}", "jpg": picture(n), "txt": f"Bild {n}".encode()} for n in range(30)]
    assert rows(made[0]) == [*expected, {"key": "z", "jpg": picture(99), "txt": b"letztes"}]
    assert list(scratch.iterdir()) == []
    (source / name).write_bytes(pack_it(members(30))[:-20])
    with pytest.raises(CorruptDataError) as raised:
        shard(str(source), str(tmp_path / "bad"), SMALL)
    assert f"{source / name}: " in str(raised.value)
    (source / name).write_bytes(pack_it(pack([("1.jpg", picture(1))])[:700]))
    with pytest.raises(CorruptDataError) as raised:
        shard(str(source), str(tmp_path / "bad"), SMALL)
    assert str(source / name) in str(raised.value)
    assert list(scratch.iterdir()) == []


def test_rows_in_one_large_compressed_piece_are_expanded(fill: Fill, tmp_path: Path) -> None:
    long = [{"key": f"{n:04d}", "text": chr(97 + n % 26) * (1 << 20)} for n in range(MAX_MEMBER_BYTES // (1 << 20) + 2)]
    plain = jsonl(long)
    assert len(plain) > MAX_MEMBER_BYTES
    source = fill(
        {"a.jsonl.gz": gzip.compress(plain, 1), "b.jsonl.gz": gzip.compress(jsonl([{"key": "b", "text": "b"}]))}
    )
    made = shard(str(source), str(tmp_path / "out"))
    assert rows(made) == [*long, {"key": "b", "text": "b"}]


def test_what_a_killed_run_has_expanded_is_removed_by_the_next(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from dataflow.sharding.scratch import scratch_folder\n"
        "with scratch_folder() as folder:\n"
        "    (folder / 'large').write_bytes(b'x')\n"
        "    print(folder, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    left = Path(killed.stdout.strip())
    assert (left / "large").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        with scratch_folder() as one, scratch_folder() as other:
            assert not left.exists()
            assert one.is_dir()
            assert other.is_dir()
            assert one != other
    assert list(tmp_path.iterdir()) == []


def test_keys_that_look_like_numbers_stay_text(fill: Fill, tmp_path: Path) -> None:  # SH-22
    source = fill({"a.tar": pack([("0911032.jpg", picture(1)), ("911032.jpg", picture(2))])})
    assert [row["key"] for row in rows(shard(str(source), str(tmp_path / "out")))] == ["0911032", "911032"]
    source = fill({"a.csv": b"key,x\n0911032,1\n911032,2\n"})
    assert [row["key"] for row in rows(shard(str(source), str(tmp_path / "csv")))] == ["0911032", "911032"]


def test_datasets_in_a_folder_are_read_as_datasets(fill: Fill, tmp_path: Path) -> None:
    root = tmp_path / "both"
    for name, part in (("a", ROWS[:100]), ("b", ROWS[100:])):
        with dataflow.ShardWriter(str(root / name)) as writer:
            for row in part:
                writer.write(row)
    assert rows(shard(str(root), str(tmp_path / "out"))) == ROWS


def test_the_target_is_in_no_source(fill: Fill, tmp_path: Path) -> None:
    source = fill({"a.jsonl": jsonl(), "out/b.jsonl": jsonl()})
    with pytest.raises(OptionError, match="lies inside"):
        shard([f"{source}/a.jsonl", str(source)], f"{source}/new")
    with dataflow.ShardWriter(f"{source}/dataset") as writer:
        writer.write(ROWS[0])
    with pytest.raises(OptionError, match="lies inside"):
        shard(f"{source}/**/*.arrow", f"{source}/dataset", ShardOptions(append=True))


def test_a_run_goes_on_with_the_same_sources_alone(fill: Fill, tmp_path: Path) -> None:
    source = fill({"a.jsonl": jsonl(ROWS[:100]), "b.jsonl": jsonl(ROWS[100:])})
    target = tmp_path / "out"

    def stop(done: Any) -> None:
        if done.rows:
            raise KeyboardInterrupt

    for given, kept in (([f"{source}/a.jsonl"], False), ([f"{source}/*.jsonl"], True)):
        with pytest.raises(KeyboardInterrupt):
            shard([f"{source}/*.jsonl"], str(target), SMALL, workers=1, on_progress=stop)
        before = {path.name: path.stat().st_ino for path in target.glob("shard-*")}
        assert before
        made = shard(given, str(target), SMALL)
        after = {path.name: path.stat().st_ino for path in target.glob("shard-*")}
        assert all(after.get(name) == number for name, number in before.items()) is kept
        assert rows(made) == (ROWS if kept else ROWS[:100])
        for path in target.iterdir():
            path.unlink()
