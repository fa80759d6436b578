"""Datasets as files of other formats: everything comes back with other people's readers."""

from __future__ import annotations

import base64
import datetime
import io
import json
import subprocess
import sys
import tarfile
import textwrap
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow
from dataflow.dataset import ShardWriter
from dataflow.errors import CorruptDataError, OptionError
from dataflow.operations.exclude import exclude
from dataflow.operations.export import export
from dataflow.operations.exporters.tar import member_key
from dataflow.storage import open_store
from tests.dataset.written import rows_at, write
from tests.formats.archives import pack
from tests.operations.photographs import encoded, photograph

ROWS = 90


def rows() -> list[dict[str, Any]]:
    return [
        {
            "key": f"cats/{number:03d}.JPG",
            "image": photograph() if number % 3 else encoded("PNG", (9, 9)),
            "label": number % 7,
            "caption": None if number == 4 else f"Größe {number}\u2028 \x85",
            "box": [number / 4, 1.0],
            "raw": bytes([number]) * number,
            "info": {"a": number, "b": None if number % 2 else "x"},
            "flag": number % 2 == 0,
        }
        for number in range(ROWS)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "data"
    write(folder, rows(), rows_per_block=4, shard_bytes=3 << 20)
    return folder


def samples(folder: Path) -> list[tuple[str, dict[str, bytes]]]:
    """Samples as WebDataset defines them, read by Python's own tarfile."""
    found: list[tuple[str, dict[str, bytes]]] = []
    for path in sorted(folder.glob("*.tar")):
        last = None
        with tarfile.open(path) as archive:
            for member in archive:
                folder_name, slash, base = member.name.rpartition("/")
                key, _, ending = base.partition(".")
                key = folder_name + slash + key
                if key != last:
                    found.append((key, {}))
                    last = key
                file = archive.extractfile(member)
                assert file is not None
                assert ending not in found[-1][1]
                found[-1][1][ending] = file.read()
    return found


def test_tars_hold_every_row_in_order(data: Path, tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    result = export(
        str(data), str(tmp_path / "out"), "tar", 2 << 20, on_progress=lambda rows, nbytes: done.append((rows, nbytes))
    )
    assert result.files == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len(result.files) > 3
    assert result.num_bytes == sum(path.stat().st_size for path in (tmp_path / "out").iterdir())
    assert result.num_rows == sum(count for count, _ in done) == ROWS
    found = samples(tmp_path / "out")
    assert len(found) == ROWS
    for (key, members), row in zip(found, rows(), strict=True):
        assert unquote(key) == row["key"]
        assert key == row["key"].replace(".", "%2E")
        image = members.pop("image.jpg" if row["image"][:2] == b"\xff\xd8" else "image.png")
        assert image == row["image"]
        assert members.pop("label.cls") == str(row["label"]).encode()
        assert (members.pop("caption.txt").decode() if row["caption"] else None) == row["caption"]
        assert json.loads(members.pop("box.json")) == row["box"]
        assert members.pop("raw") == row["raw"]
        assert json.loads(members.pop("info.json")) == row["info"]
        assert json.loads(members.pop("flag.json")) == row["flag"]
        assert members == {}


def test_tars_are_read_by_webdataset(data: Path, tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset", reason="webdataset is not installed: pip install webdataset")
    export(str(data), str(tmp_path / "out"), "tar", 2 << 20)
    urls = [str(path) for path in sorted((tmp_path / "out").iterdir())]
    found = list(webdataset.WebDataset(urls, shardshuffle=False).decode("rgb8"))
    assert [unquote(sample["__key__"]) for sample in found] == [row["key"] for row in rows()]
    for sample, row in zip(found, rows(), strict=True):
        assert sample["label.cls"] == row["label"]
        assert sample.get("caption.txt") == row["caption"]
        assert sample["box.json"] == row["box"]
        picture = sample["image.jpg"] if "image.jpg" in sample else sample["image.png"]
        assert picture.shape in {(427, 640, 3), (9, 9, 3)}


def test_a_tar_dataset_comes_back_as_it_was(tmp_path: Path) -> None:
    names = ["a/b.d/0001", "a/0001", "ä" * 120]
    members = [
        (f"{name}.{ending}", f"{name} {ending}".encode()) for name in names for ending in ("cls", "jpg", "seg.png")
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.tar").write_bytes(pack(members))
    dataflow.index(str(tmp_path / "in"))
    export(str(tmp_path / "in"), str(tmp_path / "out"), "tar")
    with tarfile.open(tmp_path / "out" / "00000.tar") as archive:
        found = [(member.name, archive.extractfile(member).read()) for member in archive]  # type: ignore[union-attr]
    assert found == members
    dataflow.index(str(tmp_path / "out"))
    assert rows_at(str(tmp_path / "out")) == rows_at(str(tmp_path / "in"))


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_key_is_a_safe_name_that_can_be_told_back(key: str) -> None:
    name = member_key(key)
    assert unquote(name, errors="strict") == key
    base = name.rpartition("/")[2]
    assert base
    assert "." not in base
    assert not name.startswith("/")
    assert not {"", ".", ".."} & set(name.split("/"))
    assert not set("\\\0\n") & set(name)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a/b.c/d.e", "a/b.c/d%2Ee"),
        ("../../etc/passwd", "%2E%2E/%2E%2E/etc/passwd"),
        ("/etc/passwd", "%2Fetc%2Fpasswd"),
        ("a//b", "a%2F%2Fb"),
        ("100%", "100%25"),
        ("._x", "%2E_x"),
        ("größe\n", "größe%0A"),
    ],
)
def test_keys_that_would_be_misread(key: str, name: str) -> None:
    assert member_key(key) == name


def test_keys_that_no_tar_can_have(tmp_path: Path) -> None:
    write(tmp_path / "same", [{"key": "x", "label": 1}, {"key": "x", "label": 2}])
    write(tmp_path / "none", [{"key": "x", "label": 1}, {"key": None, "label": 2}])
    write(tmp_path / "nulls", [{"key": "x", "label": 1}, {"key": "y", "label": None}])
    write(tmp_path / "case", [{"A": 1, "a": 2}])
    write(tmp_path / "clash", [{"image": photograph(), "image.jpg": photograph()}])
    for name, message in {
        "same": "rows 0 and 1 have the same key 'x'",
        "none": "row 1 has no key",
        "nulls": r"row 1 \('y'\) has nothing but nulls",
        "case": "endings of names in tars are lower case",
        "clash": "two values with the same ending: image.jpg, image.jpg",
    }.items():
        with pytest.raises(OptionError, match=message):
            export(str(tmp_path / name), str(tmp_path / "out"), "tar")
        assert not list((tmp_path / "out").glob("*"))
    export(str(tmp_path / "same"), str(tmp_path / "numbered"), "tar", columns=["label"])
    assert samples(tmp_path / "numbered") == [
        ("000000000", {"label.cls": b"1"}),
        ("000000001", {"label.cls": b"2"}),
    ]


def test_parquet_has_the_same_table(data: Path, tmp_path: Path) -> None:
    result = export(str(data), str(tmp_path / "out"), "parquet", 2 << 20)
    assert len(result.files) > 3
    table = pa.concat_tables(pq.read_table(tmp_path / "out" / name) for name in result.files)
    assert table.schema.equals(dataflow.open(str(data)).schema)
    assert table.to_pylist() == rows()


def test_parquet_row_groups_are_larger_than_blocks(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "data"), rows_per_block=4) as writer:
        for _ in range(1000):
            writer.write({"data": b"x" * 100_000})
    export(str(tmp_path / "data"), str(tmp_path / "out"), "parquet", 70 << 20)
    metadata = pq.ParquetFile(tmp_path / "out" / "00000.parquet").metadata
    assert metadata.num_row_groups == 3
    assert metadata.row_group(0).total_byte_size > 32 << 20


def test_json_lines(data: Path, tmp_path: Path) -> None:
    result = export(str(data), str(tmp_path / "out"), "jsonl", 2 << 20)
    text = "".join((tmp_path / "out" / name).read_text() for name in result.files)
    assert len(text.splitlines()) == ROWS  # although Python splits at other separators, too
    for line, row in zip(text.splitlines(), rows(), strict=True):
        found = json.loads(line)
        assert list(found) == list(row)
        for name in ("image", "raw"):
            found[name] = base64.b64decode(found[name], validate=True)
        assert found == row


def test_json_of_other_types(tmp_path: Path) -> None:
    batch = pa.record_batch(
        {
            "when": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 6)]),
            "day": pa.array([datetime.date(2026, 1, 2)]),
            "span": pa.array([datetime.timedelta(seconds=1.5)]),
            "price": pa.array([Decimal("1.10")]),
            "big": pa.array([2**63 - 1]),
            "deep": pa.array([[{"x": [b"\xff"]}]]),
        }
    )
    with ShardWriter(str(tmp_path / "data"), batch.schema) as writer:
        writer.write_batch(batch)
    export(str(tmp_path / "data"), str(tmp_path / "out"), "jsonl")
    assert json.loads((tmp_path / "out" / "00000.jsonl").read_text()) == {
        "when": "2026-01-02T03:04:05.000006", "day": "2026-01-02", "span": 1.5, "price": "1.10", "big": 2**63 - 1,
        "deep": [{"x": ["/w=="]}],
    }  # fmt: skip


@pytest.mark.parametrize("format", ["jsonl", "tar"])
def test_numbers_that_json_does_not_have(tmp_path: Path, format: str) -> None:
    write(tmp_path / "data", [{"a": 1, "x": [1.0]}, {"a": 1, "x": [float("inf")]}], rows_per_block=1)
    with pytest.raises(OptionError, match=r"row 1, column 'x': JSON has no inf\. Leave the column out with --columns"):
        export(str(tmp_path / "data"), str(tmp_path / "out"), format, shard_bytes=1)
    assert not list((tmp_path / "out").glob("*"))  # the first file was there already
    export(str(tmp_path / "data"), str(tmp_path / "out"), format, columns=["a"])


def test_chosen_columns_and_excluded_rows(tmp_path: Path) -> None:
    write(tmp_path / "data", [{"key": str(n), "a": n, "b": -n} for n in range(6)], rows_per_block=2)
    exclude(str(tmp_path / "data"), ["0", "1", "5"])
    export(str(tmp_path / "data"), str(tmp_path / "out"), "jsonl", columns=["b", "key"])
    lines = (tmp_path / "out" / "00000.jsonl").read_text().splitlines()
    assert lines == ['{"b": -2, "key": "2"}', '{"b": -3, "key": "3"}', '{"b": -4, "key": "4"}']
    for columns, message in {("c",): "has no column 'c'; it has key, a, b", ("a", "a"): "different columns"}.items():
        with pytest.raises(OptionError, match=message):
            export(str(tmp_path / "data"), str(tmp_path / "more"), "jsonl", columns=columns)


def test_nothing_is_overwritten_or_mixed(data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "note").write_text("mine")
    with pytest.raises(OptionError, match="is not empty: it holds 'note'"):
        export(str(data), str(tmp_path / "out"), "tar")
    with pytest.raises(OptionError, match="lies inside"):
        export(str(data), str(data / "tars"), "tar")
    with pytest.raises(OptionError, match="there are 'tar', 'parquet', 'jsonl'"):
        export(str(data), str(tmp_path / "new"), "zip")


def test_a_damaged_block_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    manifest = write(tmp_path / "data", [{"key": str(n), "a": n} for n in range(40)], rows_per_block=4)
    path = tmp_path / "data" / manifest.shard_path(0)
    content = bytearray(path.read_bytes())
    content[int(manifest.starts[8]) + 200] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptDataError, match="block 8"):
        export(str(tmp_path / "data"), str(tmp_path / "out"), "tar", shard_bytes=1)
    assert not list((tmp_path / "out").glob("*"))


def test_on_s3(s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write(f"{s3_url}/data", [{"key": str(n), "a": n} for n in range(40)], rows_per_block=4)
    result = export(f"{s3_url}/data", f"{s3_url}/out", "parquet", shard_bytes=1)
    store = open_store(f"{s3_url}/out")
    assert [entry.path for entry in store.list()] == result.files
    assert len(result.files) == 10
    tables = [pq.read_table(io.BytesIO(store.read_range(name, 0, store.size(name)))) for name in result.files]
    assert pa.concat_tables(tables)["a"].to_pylist() == list(range(40))


@pytest.mark.soak
def test_memory_does_not_grow_with_the_dataset(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with ShardWriter(str(tmp_path / "data"), block_bytes=2 << 20) as writer:
        for number in range(1500):
            writer.write({"key": str(number), "data": rng.bytes(200_000)})
    code = textwrap.dedent(
        """
        import re, sys
        from dataflow.operations.export import export
        export(sys.argv[1], sys.argv[2], sys.argv[3], 64 << 20, workers=2)
        print(int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) // 1024)
        """
    )
    for format in ("tar", "parquet"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "data"), str(tmp_path / format), format],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert int(done.stdout) < 200  # of 300 MB, and 80 before it begins
