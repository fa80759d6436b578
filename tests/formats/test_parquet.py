from __future__ import annotations

import base64
import datetime
import decimal
import io
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.dataset import index, read_block
from dataflow.errors import CorruptDataError, DataflowError, DatasetError, StorageNotFoundError
from dataflow.formats import Place, format_named, format_of, parquet
from dataflow.formats.parquet_parts import parquet_parts
from dataflow.storage import Buffer, open_store
from dataflow.storage.local import LocalStore
from tests.formats.shards import index_file, mutate, rows_of

PARQUET = format_named("parquet")


def table_of(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    words = ["", "a", "été", "\u2028", "long " * 40]
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "small": pa.array([i % 200 if i % 7 else None for i in range(rows)], pa.uint8()),
            "image": pa.array(
                [rng.bytes(int(rng.integers(0, 90))) if i % 5 else None for i in range(rows)], pa.binary()
            ),
            "text": pa.array([words[int(rng.integers(0, 5))] for _ in range(rows)], pa.string()),
            "large": pa.array([words[i % 5] for i in range(rows)], pa.large_string()),
            "kind": pa.array([words[i % 3] for i in range(rows)]).dictionary_encode(),
            "pose": pa.array(rng.random((rows, 3), np.float32).tolist(), pa.list_(pa.float32(), 3)),
            "tokens": pa.array([list(range(int(n))) if n else None for n in rng.integers(0, 6, rows)]),
            "boxes": pa.array([[{"x": i, "label": words[i % 5]}] * (i % 4) for i in range(rows)]),
            "tags": pa.array([[("k", None), ("l", i)] for i in range(rows)], pa.map_(pa.string(), pa.int32())),
            "price": pa.array([decimal.Decimal(i) / 4 for i in range(rows)], pa.decimal128(20, 2)),
            "time": pa.array([datetime.datetime(2020, 1, 1) for _ in range(rows)], pa.timestamp("us", "UTC")),
            "day": pa.array([datetime.date(2020, 1, 1 + i % 28) for i in range(rows)]),
            "half": pa.array(rng.random(rows).astype(np.float16)),
            "yes": pa.array([bool(i % 3) for i in range(rows)]),
            "none": pa.nulls(rows),
            "nested": pa.array([{"a": {"b": [None, "x"]}} if i % 2 else None for i in range(rows)]),
        }
    )


OPTIONS: list[dict[str, Any]] = [
    {},
    {"compression": "NONE"},
    *({"compression": name} for name in ("gzip", "brotli", "zstd", "lz4")),
    {"use_dictionary": False, "version": "1.0", "data_page_version": "2.0"},
    {"data_page_size": 64, "dictionary_pagesize_limit": 20, "write_page_index": True},
    {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED", "image": "DELTA_LENGTH_BYTE_ARRAY"}},
    {
        "use_dictionary": False,
        "column_encoding": {"text": "DELTA_BYTE_ARRAY", "pose.list.element": "BYTE_STREAM_SPLIT"},
    },
    {"write_page_checksum": True, "store_schema": False},
    {"use_deprecated_int96_timestamps": True, "write_statistics": False},
    {"bloom_filter_options": {"id": True, "text": {"ndv": 100}}},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_row_groups_are_blocks(tmp_path: Path, options: dict[str, Any]) -> None:
    table = table_of(230)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100, **options)
    found = index_file(tmp_path / "a.parquet")
    assert [block.rows for block in found.blocks] == [100, 100, 30]
    assert rows_of(tmp_path / "a.parquet", found) == pq.read_table(tmp_path / "a.parquet").to_pylist()
    if not options.get("use_deprecated_int96_timestamps"):
        assert rows_of(tmp_path / "a.parquet", found) == table.to_pylist()


def test_columns_become_plain(tmp_path: Path) -> None:
    uuid = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    table = pa.table(
        {
            "kind": pa.array(["a"]).dictionary_encode(),
            "kinds": pa.array([["a", "b"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
            "inner": pa.StructArray.from_arrays([pa.array([b"z"]).dictionary_encode()], names=["k"]),
            "pairs": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.string()))),
            "view": pa.array(["v"], pa.string_view()),
            "uuid": uuid,
        }
    ).replace_schema_metadata({"huggingface": "{}"})
    pq.write_table(table, tmp_path / "a.parquet")
    found = index_file(tmp_path / "a.parquet")
    assert found.schema.types == [
        pa.string(),
        pa.list_(pa.string()),
        pa.struct([("k", pa.binary())]),
        pa.map_(pa.string(), pa.string()),
        pa.large_string(),
        pa.binary(16),
    ]
    assert found.schema.metadata is None
    expected = [{**table.drop_columns("uuid").to_pylist()[0], "uuid": bytes(16)}]
    assert rows_of(tmp_path / "a.parquet", found) == expected


def test_pq04_nested_columns_of_many_bytes(tmp_path: Path) -> None:
    text = "x" * 1000
    table = pa.table(
        {
            "lists": pa.array([[text] * 20 for _ in range(2000)]),
            "maps": pa.array([[("k", text)] * 5 for _ in range(2000)], pa.map_(pa.string(), pa.string())),
            "structs": pa.array([[{"a": text, "b": i}] * 10 for i in range(2000)]),
        }
    )
    assert table.nbytes > 64 << 20
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10**9, use_dictionary=False, compression="NONE")
    found = index_file(tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    [block] = found.blocks
    batch = PARQUET.read(
        memoryview(data)[block.start : block.start + block.length],
        found.schema,
        Place(block.start, block.rows, 0, found.detail),
    )
    assert pa.Table.from_batches([batch]).cast(table.schema).equals(table)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_pq03_row_groups_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType) -> None:
    monkeypatch.setattr(parquet, "MAX_BLOCK_BYTES", 1 << 20)
    table = pa.table({"text": pa.array([chr(65 + i) * (100 << 10) for i in range(22)], kind)})
    remedy = r"a\.parquet: row group 0 has \d+ bytes, more than .* 1048576\. Convert the file \(`dataflow shard`\)"
    # Compressed they are small, and as a dictionary of one value they are small even before compression.
    for values in (table, table.slice(0, 1).take([0] * 22)):
        pq.write_table(values, tmp_path / "a.parquet", compression="zstd")
        assert (tmp_path / "a.parquet").stat().st_size < 1 << 18
        with pytest.raises(DatasetError, match=remedy):
            index_file(tmp_path / "a.parquet")
        parts = list(parquet_parts(open_store(str(tmp_path)), "a.parquet", part_bytes=300 << 10))
        assert [value for part in parts for value in part.column("text").to_pylist()] == values.column(0).to_pylist()
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    assert len(rows_of(tmp_path / "a.parquet", index_file(tmp_path / "a.parquet"))) == 22


def test_a_run_of_numbers_that_decodes_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_BLOCK_BYTES", 1 << 20)
    pq.write_table(pa.table({"x": np.zeros(1 << 18, np.int64)}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 14
    with pytest.raises(DatasetError, match="row group 0 has 2097152 bytes"):
        index_file(tmp_path / "a.parquet")


def test_a_value_that_is_stored_once_and_decoded_often(tmp_path: Path) -> None:
    """20 GiB of text in one row group of a few KiB."""
    text = pa.array(["x" * (1 << 20)])
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), text)
    pq.write_table(pa.table({"text": column, "id": range(20_000)}), tmp_path / "a.parquet", row_group_size=10**6)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 18
    program = f"""
import resource
import pyarrow.parquet
from dataflow.errors import DatasetError
from dataflow.formats import format_named
from dataflow.formats.parquet_parts import parquet_parts
from dataflow.storage import Buffer, open_store
from dataflow.storage.local import LocalStore
store = open_store({str(tmp_path)!r})
part = next(parquet_parts(store, "a.parquet"))
assert 4 <= part.num_rows <= 16, part.num_rows
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1 << 20
try:
    format_named("parquet").index(store, "a.parquet", 1)
except DatasetError as error:
    assert "more than a block's limit" in str(error)
else:
    raise AssertionError("no error")
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_pq05_a_row_group_of_any_size_in_bounded_memory(tmp_path: Path) -> None:
    table = pa.table({"data": pa.array([random.Random(i).randbytes(1 << 20) for i in range(256)])})
    pq.write_table(
        table,
        tmp_path / "a.parquet",
        row_group_size=10**6,
        compression="NONE",
        use_dictionary=False,
        write_batch_size=4,
    )
    assert pq.read_metadata(tmp_path / "a.parquet").num_row_groups == 1
    program = f"""
import random, resource
import pyarrow.parquet
from dataflow.formats.parquet_parts import parquet_parts
from dataflow.storage import Buffer, open_store
from dataflow.storage.local import LocalStore
from tests.formats.shards import index_file, mutate, rows_of
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = [value.as_py() == random.Random(i).randbytes(1 << 20) for i, value in enumerate(
    value for part in parquet_parts(open_store({str(tmp_path)!r}), "a.parquet") for value in part.column("data"))]
assert rows == [True] * 256
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 128 << 10  # KiB, for a row group of 256 MiB


def test_errors_on_the_way_through_parts(tmp_path: Path) -> None:
    pq.write_table(table_of(100), tmp_path / "a.parquet", row_group_size=40, write_page_checksum=True)
    data = bytearray((tmp_path / "a.parquet").read_bytes())

    class Vanishing(LocalStore):
        def read_range(self, path: str, start: int, length: int) -> Buffer:
            if 0 < start < len(data) // 2:
                raise StorageNotFoundError("gone")
            return super().read_range(path, start, length)

    with pytest.raises(StorageNotFoundError, match="gone"):
        list(parquet_parts(Vanishing(str(tmp_path)), "a.parquet"))
    data[index_file(tmp_path / "a.parquet").blocks[1].start + 60] ^= 1
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(CorruptDataError, match=r"a\.parquet: row group 1 is damaged"):
        list(parquet_parts(open_store(str(tmp_path)), "a.parquet"))


def test_what_is_no_parquet_at_all(tmp_path: Path) -> None:
    for data in (b"", b"hello", b"PAR1", b"PAR1PAR1", b"PAR1" + bytes(8), b"PAR1" + bytes(4) + b"PAR1", b"\xff" * 99):
        (tmp_path / "a.parquet").write_bytes(data)
        with pytest.raises(CorruptDataError, match=r"a\.parquet: "):
            index_file(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(20) + b"\x01\0\0\x7fPAR1")
    with pytest.raises(CorruptDataError, match="its footer has 2130706433 bytes, the file 32"):
        index_file(tmp_path / "a.parquet")


class PlainKeys(encryption.KmsClient):  # type: ignore[misc]
    """Keeps keys as they are."""

    def __init__(self, _: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64decode(key)


@pytest.mark.parametrize("plain_footer", [False, True])
def test_encrypted_files_are_refused(tmp_path: Path, plain_footer: bool) -> None:
    properties = encryption.CryptoFactory(PlainKeys).file_encryption_properties(
        encryption.KmsConnectionConfig(),
        encryption.EncryptionConfiguration("footer", column_keys={"a": ["x"]}, plaintext_footer=plain_footer),
    )
    with pq.ParquetWriter(
        tmp_path / "a.parquet", pa.schema([("x", pa.int64())]), encryption_properties=properties
    ) as writer:
        writer.write_table(pa.table({"x": [1, 2]}))
    with pytest.raises(DatasetError, match=r"a\.parquet: is encrypted"):
        index_file(tmp_path / "a.parquet")


@pytest.mark.parametrize("limit", ["MAX_FOOTER_BYTES", "MAX_DETAIL_BYTES"])
def test_a_footer_that_is_too_large(tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(table_of(3), tmp_path / "a.parquet")
    monkeypatch.setattr(f"dataflow.formats.parquet_footer.{limit}", 1000)
    with pytest.raises(DatasetError, match=r"its footer has \d+ bytes, more than the limit of 1000.*dataflow shard"):
        index_file(tmp_path / "a.parquet")


def test_columns_that_cannot_be_told_apart(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match="two columns 'a'"):
        index_file(tmp_path / "a.parquet")
    pq.write_table(pa.table({}), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match="has no columns"):
        index_file(tmp_path / "a.parquet")


def test_empty_row_groups_are_no_blocks(tmp_path: Path) -> None:
    table = table_of(5)
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for rows in (0, 5, 0):
            writer.write_table(table.slice(0, rows))
    found = index_file(tmp_path / "a.parquet")
    assert [block.rows for block in found.blocks] == [5]
    assert rows_of(tmp_path / "a.parquet", found) == table.to_pylist()


@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_dataset_of_several_files(tmp_path: Path, place: str, request: pytest.FixtureRequest) -> None:
    table = table_of(300)
    folder = str(tmp_path / "shards") if place == "local" else request.getfixturevalue("s3_url")
    store = open_store(folder)
    for shard in range(3):
        sink = io.BytesIO()
        pq.write_table(table.slice(shard * 100, 100), sink, row_group_size=30)
        store.put_atomic(f"{shard}.parquet", sink.getvalue())
    manifest = index(folder, out=str(tmp_path / "out"))
    assert manifest.format == "parquet"
    assert manifest.num_blocks == 12
    rows = [row for block in range(12) for row in read_block(store, manifest, block).to_pylist()]
    assert rows == table.to_pylist()


def test_shards_whose_columns_differ_without_loss(tmp_path: Path) -> None:
    tables = [
        pa.table({"a": pa.array([1], pa.int32()), "b": pa.array(["x"]), "c": pa.nulls(1), "d": pa.array([[1.5]])}),
        pa.table(
            {"b": pa.array(["y"], pa.large_string()), "a": pa.array([2], pa.uint16()), "d": pa.nulls(1), "c": [7]}
        ),
        pa.table(
            {"a": pa.array([3], pa.int64()), "b": pa.nulls(1), "c": [8], "d": pa.array([[2]], pa.list_(pa.float32()))}
        ),
    ]
    for shard, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{shard}.parquet")
    manifest = index(str(tmp_path))
    assert manifest.schema.types == [pa.int64(), pa.large_string(), pa.int64(), pa.list_(pa.float64())]
    store = open_store(str(tmp_path))
    rows = [row for block in range(3) for row in read_block(store, manifest, block).to_pylist()]
    assert rows == [row for table in tables for row in table.select(["a", "b", "c", "d"]).to_pylist()]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"b": [1]}, "has a column 'b' that earlier shards lack"),
        ({}, "lacks column 'a'"),
        ({"a": ["x"]}, "column 'a' as string, earlier shards have int64"),
        ({"a": [1.5]}, "column 'a' as double, earlier shards have int64"),
        ({"a": pa.array([1], pa.uint64())}, "column 'a' as uint64, earlier shards have int64"),
    ],
)
def test_shards_that_do_not_go_together(second: dict[str, Any], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        PARQUET.merge(pa.schema([("a", pa.int64())]), pa.table(second).schema)


def test_formats_by_suffix() -> None:
    assert format_of("x/a.PARQUET") is PARQUET
    assert format_of("x/a.pq") is PARQUET


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 300), st.integers(1, 120), st.sampled_from(OPTIONS), st.integers(0, 9))
def test_any_cut_into_row_groups(
    tmp_path_factory: pytest.TempPathFactory, rows: int, group: int, options: dict[str, Any], seed: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.parquet"
    table = table_of(rows, seed)
    pq.write_table(table, path, row_group_size=group, **options)
    found = index_file(path)
    assert sum(block.rows for block in found.blocks) == rows
    assert rows_of(path, found) == pq.read_table(path).to_pylist()


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[6], OPTIONS[8]], ids=str)
def test_damaged_files_raise_and_nothing_else(tmp_path: Path, options: dict[str, Any]) -> None:
    # Python has no date for some of the numbers that damaged days become.
    pq.write_table(table_of(60).drop_columns(["time", "day"]), tmp_path / "a.parquet", row_group_size=40, **options)
    assert mutate(tmp_path / "a.parquet") > 50


def test_damaged_statistics_do_not_bring_pyarrow_down(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table_of(20).drop_columns(["time", "day"]), path)
    data = path.read_bytes()
    metadata = pq.read_metadata(path)
    found = index_file(path)
    start = len(data) - 8 - metadata.serialized_size
    assert len(found.detail) < metadata.serialized_size * 0.8  # statistics are left out
    for at in range(start, len(data) - 8, 7):
        path.write_bytes(data[:at] + bytes((data[at] ^ 0x15,)) + data[at + 1 :])
        try:
            rows_of(path, index_file(path))
        except DataflowError:
            continue
