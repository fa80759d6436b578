"""Parquet files that are too large, damaged, encrypted, or no Parquet at all."""

from __future__ import annotations

import base64
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

from dataflow.errors import CorruptDataError, DataflowError, DatasetError, StorageNotFoundError
from dataflow.formats import format_named, parquet
from dataflow.formats.parquet_parts import parquet_parts
from dataflow.storage import Buffer, open_store
from dataflow.storage.local import LocalStore
from tests.formats.shards import PEAK, index_file, mutate, rows_of
from tests.formats.test_parquet import OPTIONS, table_of

PARQUET = format_named("parquet")


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
    program = (
        PEAK
        + f"""
import pyarrow.parquet
from dataflow.errors import DatasetError
from dataflow.formats import format_named
from dataflow.formats.parquet_parts import parquet_parts
from dataflow.storage import open_store
store = open_store({str(tmp_path)!r})
part = next(parquet_parts(store, "a.parquet"))
assert 4 <= part.num_rows <= 16, part.num_rows
assert peak_kib() < 1 << 20
try:
    format_named("parquet").index(store, "a.parquet", 1)
except DatasetError as error:
    assert "more than a block's limit" in str(error)
else:
    raise AssertionError("no error")
assert peak_kib() < 4 << 20
"""
    )
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
    program = (
        PEAK
        + f"""
import random
import pyarrow.parquet
from dataflow.formats.parquet_parts import parquet_parts
from dataflow.storage import open_store
before = peak_kib()
rows = [value.as_py() == random.Random(i).randbytes(1 << 20) for i, value in enumerate(
    value for part in parquet_parts(open_store({str(tmp_path)!r}), "a.parquet") for value in part.column("data"))]
assert rows == [True] * 256
print(peak_kib() - before)
"""
    )
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
