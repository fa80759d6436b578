from __future__ import annotations

import datetime
import decimal
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.dataset import index, read_block
from dataflow.errors import DatasetError
from dataflow.formats import Place, format_named, format_of
from dataflow.storage import open_store
from tests.formats.shards import index_file, rows_of

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
