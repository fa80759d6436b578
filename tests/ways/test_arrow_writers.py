"""What pyarrow's own writers write, on every way."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from pyarrow import feather, ipc

import dataflow
from dataflow.errors import DatasetError
from dataflow.formats import Skipped
from dataflow.operations.export import export
from tests.ways.every_way import Source, check, every_way, plain, stored_rows

UTC = datetime.UTC


def table(first: int = 0) -> pa.Table:
    """Twelve rows with a column of every type, nulls in most of them."""
    numbers = range(first, first + 12)

    def column(value: Callable[[int], Any], kind: pa.DataType, nulls: bool = True) -> pa.Array:
        return pa.array([None if nulls and number % 5 == 2 else value(number) for number in numbers], kind)

    columns = {
        "id": column(lambda n: n, pa.int64(), nulls=False),
        "int8": column(lambda n: n - 128, pa.int8()),
        "uint64": column(lambda n: 2**64 - 1 - n, pa.uint64()),
        "half": column(lambda n: n / 2, pa.float16()),
        "float": column(lambda n: float("nan") if n == 4 else n / 3, pa.float32()),
        "double": column(lambda n: -0.0 if n == 1 else 1e300 / (n + 1), pa.float64(), nulls=False),
        "bool": column(lambda n: n % 2 == 0, pa.bool_()),
        "text": column(lambda n: "" if n == 1 else f"é\u2028\n{n}", pa.string()),
        "large_text": column(str, pa.large_string()),
        "text_view": column(lambda n: "v" * n * 3, pa.string_view()),
        "bytes": column(lambda n: b"" if n == 1 else bytes([0, n, 255]), pa.binary()),
        "large_bytes": column(lambda n: bytes(n), pa.large_binary()),
        "sixteen_bytes": column(lambda n: bytes([n]) * 16, pa.binary(16)),
        "time": column(lambda n: datetime.datetime(2024, 2, 29, 12, n, tzinfo=UTC), pa.timestamp("us", "UTC")),
        "date": column(lambda n: datetime.date(1969, 12, 30) + datetime.timedelta(n), pa.date32()),
        "clock": column(lambda n: datetime.time(n % 24, 1, 2, 345), pa.time64("us")),
        "duration": column(lambda n: datetime.timedelta(seconds=n, microseconds=1), pa.duration("us")),
        "decimal": column(lambda n: decimal.Decimal(n).scaleb(-2), pa.decimal128(20, 2)),
        "list": column(lambda n: list(range(n)), pa.list_(pa.uint16())),
        "large_list": column(lambda n: [n / 2] * (n % 3), pa.large_list(pa.float32())),
        "pose": column(lambda n: [[n, 1.5], [2, 3]], pa.list_(pa.list_(pa.float32(), 2), 2), nulls=False),
        "words": column(lambda n: [f"{n}", None, ""], pa.list_(pa.string())),
        "gaps": column(lambda n: [n, None], pa.list_(pa.int32())),
        "struct": column(
            lambda n: {"a": n, "b": [{"c": "x", "d": None}] * (n % 3)},
            pa.struct([("a", pa.int16()), ("b", pa.list_(pa.struct([("c", pa.string()), ("d", pa.bool_())])))]),
        ),
        "map": column(lambda n: [("k", n), ("l", None)], pa.map_(pa.string(), pa.int32())),
        "nothing": pa.nulls(12),
    }
    return pa.table(columns, metadata={"whose": "pyarrow"})


def with_dictionary(first: int) -> pa.Table:
    colours = pa.array([("red", "green", None)[number % 3] for number in range(12)])
    return table(first).append_column("colour", colours.dictionary_encode())


def write_parquet(folder: Path, **options: Any) -> list[dict[str, Any]]:
    kinds: list[dict[str, Any]] = [
        {},
        {"version": "2.4", "data_page_version": "1.0", "compression": "none", "use_dictionary": ["text"]},
        {"data_page_version": "2.0", "compression": "brotli", "column_encoding": {"id": "DELTA_BINARY_PACKED"}},
    ]
    for number, kind in enumerate(kinds):
        kind = {"use_dictionary": number == 0, **kind, **options}
        pq.write_table(with_dictionary(12 * number), folder / f"{number}.parquet", row_group_size=5, **kind)
    return pq.read_table(folder).to_pylist()


def write_partitions(folder: Path) -> list[dict[str, Any]]:
    whole = pa.concat_tables([table(), table(12)]).drop(["text_view"])  # which it cannot cut into parts
    parts = pads.partitioning(pa.schema([("bool", pa.bool_())]), flavor="hive")
    pads.write_dataset(whole, folder, format="parquet", partitioning=parts, max_rows_per_group=4, max_rows_per_file=8)
    # What the names of folders say is in no file; pyarrow, too, has to be told to look there.
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.parquet"))
    assert len({path.parent for path in paths}) == 3
    return [row for path in paths for row in pq.ParquetFile(folder / path).read().to_pylist()]


def write_feather(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for number, compression in enumerate(("uncompressed", "lz4", "zstd")):
        path = folder / f"{number}.feather"
        feather.write_feather(table(12 * number), path, compression, chunksize=5)
        rows += feather.read_table(path).to_pylist()
    return rows


def write_streams(folder: Path) -> list[dict[str, Any]]:
    rows = []
    for number, name in enumerate(("0.arrow", "1.arrows")):
        with ipc.new_stream(folder / name, table().schema) as writer:
            writer.write_table(table(12 * number), max_chunksize=5)
        with ipc.open_stream(folder / name) as reader:
            rows += reader.read_all().to_pylist()
    return rows


WRITERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "parquet": write_parquet,
    "parquet without schema": lambda folder: write_parquet(folder, store_schema=False),
    "partitions": write_partitions,
    "feather": write_feather,
    "streams": write_streams,
}


@pytest.fixture(scope="module", params=list(WRITERS))
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("written")
    return Source(folder, WRITERS[request.param](folder), not_alone=("gaps",))


@every_way
def test_rows_are_those_of_pyarrow(way: Any, source: Source, tmp_path: Path, s3_url: str) -> None:
    check(way, source, tmp_path, s3_url)


def test_pyarrow_reads_what_is_exported(source: Source, tmp_path: Path) -> None:
    url = dataflow.index(str(source.folder), out=str(tmp_path / "dataset")).url
    exported = export(url, str(tmp_path / "exported"), "parquet", shard_bytes=3000)
    assert len(exported.files) > 1
    rows = [row for name in exported.files for row in pq.read_table(tmp_path / "exported" / name).to_pylist()]
    assert plain(rows) == plain(source.rows)


def test_columns_that_only_folders_name_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_partitions(tmp_path / "files")
    skipped: list[Skipped] = []
    dataflow.index(str(tmp_path / "files"), on_skip=skipped.append)
    (item,) = skipped
    assert item.name.startswith("the column 'bool' of folders such as bool=")
    assert item.name in caplog.text
    # Nothing is left out where the files have the column, too.
    (tmp_path / "both" / "id=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "both" / "id=1" / "0.parquet")
    dataflow.index(str(tmp_path / "both"), on_skip=skipped.append)
    assert skipped == [item]


def test_extension_types_are_what_they_store_in_every_format(tmp_path: Path) -> None:
    tensors = pa.array([[1, 2, 3, 4], [5, 6, 7, 8]], pa.list_(pa.float32(), 4))
    identities = pa.array([uuid.UUID(int=number).bytes for number in range(2)], pa.binary(16))
    columns = {
        "tensor": pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), (2, 2)), tensors),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), identities),
        "uuids": pa.ListArray.from_arrays([0, 1, 2], pa.ExtensionArray.from_storage(pa.uuid(), identities)),
        "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None])),
        "flag": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8())),
    }
    expected = [
        {
            "tensor": tensors[number].as_py(),
            "uuid": identities[number].as_py(),
            "uuids": [identities[number].as_py()],
            "json": ['{"a": 1}', None][number],
            "flag": 1 - number,
        }
        for number in range(2)
    ]
    for name in ("file.arrow", "file.parquet", "file.feather"):
        folder = tmp_path / name
        folder.mkdir()
        if name.endswith("parquet"):
            pq.write_table(pa.table(columns), folder / name)
        else:
            feather.write_feather(pa.table(columns), folder / name, "uncompressed")
        dataset = dataflow.open(dataflow.index(str(folder)).url)
        assert stored_rows(dataset.manifest.url) == expected
        assert plain([dataset[0], dataset[1]]) == expected
        (batch,) = dataflow.DataLoader(dataset, batch_size=2)
        assert batch["tensor"].shape == (2, 4)


def test_lists_of_numbers_with_nulls_are_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "0.parquet")
    dataset = dataflow.open(dataflow.index(str(tmp_path)).url)
    with pytest.raises(DatasetError, match=r"column 'gaps' has nulls within its lists: leave it out with select"):
        dataset[0]


def test_dictionaries_in_arrow_files_are_refused_with_a_remedy_that_works(tmp_path: Path) -> None:
    (tmp_path / "arrow").mkdir()
    (tmp_path / "parquet").mkdir()
    feather.write_feather(with_dictionary(0), tmp_path / "arrow" / "0.feather")
    with pytest.raises(DatasetError, match=r"0\.feather: column 'colour' is dictionary-encoded.* or as Parquet"):
        dataflow.index(str(tmp_path / "arrow"))
    pq.write_table(feather.read_table(tmp_path / "arrow" / "0.feather"), tmp_path / "parquet" / "0.parquet")
    dataflow.index(str(tmp_path / "parquet"))


def test_run_end_encoded_columns_are_refused_with_a_remedy_that_works(tmp_path: Path) -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
    feather.write_feather(pa.table({"runs": runs}), tmp_path / "0.feather", "uncompressed")
    with pytest.raises(DatasetError, match=r"0\.feather: column 'runs' is run-end encoded.*run_end_decode"):
        dataflow.index(str(tmp_path))
    feather.write_feather(pa.table({"runs": pc.run_end_decode(runs)}), tmp_path / "0.feather")
    assert stored_rows(dataflow.index(str(tmp_path)).url) == [{"runs": text} for text in "aab"]


@pytest.mark.filterwarnings("ignore:Feather V1")
def test_feather_of_version_1_is_named(tmp_path: Path) -> None:
    feather.write_feather(pa.table({"a": [1]}), tmp_path / "0.feather", version=1)
    with pytest.raises(DatasetError, match=r"0\.feather: is Feather of version 1"):
        dataflow.index(str(tmp_path))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with ipc.new_file(tmp_path / "0.arrow", twice.schema) as writer:
        writer.write_table(twice)
    with pytest.raises(DatasetError, match=r"0\.arrow: has two columns 'a'"):
        dataflow.index(str(tmp_path))
