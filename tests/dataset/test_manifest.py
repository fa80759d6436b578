from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from dataflow.dataset import Manifest, ManifestWriter
from dataflow.dataset.manifest_checksum import UNSEALED, seal
from dataflow.errors import DatasetError
from dataflow.formats import Block
from dataflow.storage import open_store

SCHEMA = pa.schema([("x", pa.int64())])


def block(start: int, rows: int, mark: int = 0) -> Block:
    return Block(start, 100, rows, bytes([mark]) * 16)


def write(folder: Path, shards: list[tuple[str, list[Block]]], **options: object) -> Manifest:
    writer = ManifestWriter("arrow", **options)  # type: ignore[arg-type]
    for path, blocks in shards:
        writer.add(path, 1000, f"version of {path}", blocks)
    writer.write(open_store(str(folder)), SCHEMA)
    return Manifest.open(str(folder))


SHARDS = [
    ("a.arrow", [block(8, 4, 1), block(108, 4, 2)]),
    ("empty.arrow", []),
    ("größe.arrow", [block(8, 4, 3), block(108, 0, 4), block(208, 3, 5)]),
]


def test_everything_comes_back(tmp_path: Path) -> None:
    manifest = write(tmp_path, SHARDS, properties={"classes": ["cat", "dog"], "seed": 3})
    assert (manifest.num_shards, manifest.num_blocks, manifest.num_rows, manifest.num_bytes) == (3, 5, 15, 500)
    assert manifest.block_rows == 4
    assert manifest.schema == SCHEMA
    assert manifest.format == "arrow"
    assert manifest.properties == {"classes": ["cat", "dog"], "seed": 3}
    assert manifest.base_url == manifest.url == str(tmp_path)
    assert manifest.rows.tolist() == [4, 4, 4, 0, 3]
    assert manifest.rows.dtype == np.int32
    assert manifest.starts.tolist() == [8, 108, 8, 108, 208]
    assert manifest.lengths.tolist() == [100] * 5
    assert manifest.first_rows.tolist() == [0, 4, 8, 12, 12]
    assert manifest.first_blocks.tolist() == [0, 2, 2, 5]
    assert [manifest.shard_of(number) for number in range(5)] == [0, 0, 2, 2, 2]
    assert [manifest.shard_path(number) for number in range(3)] == ["a.arrow", "empty.arrow", "größe.arrow"]
    assert manifest.shard_version(2) == "version of größe.arrow"
    assert manifest.shard_size(1) == 1000
    assert [manifest.checksum(number)[0] for number in range(5)] == [1, 2, 3, 4, 5]
    assert [manifest.locate(row) for row in (0, 3, 4, 8, 11, 12, 14)] == [
        (0, 0), (0, 3), (1, 0), (2, 0), (2, 3), (4, 0), (4, 2),
    ]  # fmt: skip


def test_numbers_outside_the_dataset(tmp_path: Path) -> None:
    manifest = write(tmp_path, SHARDS)
    for call in (manifest.locate, manifest.checksum, manifest.shard_of, manifest.shard_path):
        for number in (-1, 15):
            with pytest.raises(IndexError):
                call(number)


def test_the_table_is_used_in_place(tmp_path: Path) -> None:
    manifest = write(tmp_path, SHARDS)
    for view in (manifest.rows, manifest.starts, manifest.lengths, manifest.first_rows, manifest.first_blocks):
        assert not view.flags.owndata
        assert not view.flags.writeable


def test_fingerprint_is_names_and_contents_not_place_or_age(tmp_path: Path) -> None:
    first = write(tmp_path / "one", SHARDS)
    moved = write(tmp_path / "two", SHARDS, base="s3://elsewhere/shards", properties={"seed": 1})
    assert first.fingerprint == moved.fingerprint
    assert moved.base_url == "s3://elsewhere/shards"
    others = [
        [("b.arrow", SHARDS[0][1]), *SHARDS[1:]],
        [SHARDS[0], SHARDS[2], SHARDS[1]],
        [("a.arrow", [block(8, 4, 9), block(108, 4, 2)]), *SHARDS[1:]],
        [("a.arrow", [block(8, 3, 1), block(108, 5, 2)]), *SHARDS[1:]],
    ]
    found = {write(tmp_path / str(number), shards).fingerprint for number, shards in enumerate(others)}
    assert len(found | {first.fingerprint}) == 5


def test_a_longer_manifest_keeps_the_chain_of_its_beginning(tmp_path: Path) -> None:
    short = write(tmp_path / "short", SHARDS[:2])
    long = write(tmp_path / "long", SHARDS)
    assert long.chain(2) == short.fingerprint
    assert long.chain(0) == short.chain(0) == "0" * 32
    assert long.chain(3) == long.fingerprint != short.fingerprint


def test_no_shards_at_all(tmp_path: Path) -> None:
    manifest = write(tmp_path, [])
    assert (manifest.num_shards, manifest.num_blocks, manifest.num_rows) == (0, 0, 0)
    assert manifest.chain(0) == manifest.fingerprint


def test_dl26_pickles_as_its_url_and_notices_a_change(tmp_path: Path) -> None:
    manifest = write(tmp_path, SHARDS)
    data = pickle.dumps(manifest)
    assert len(data) < 500
    assert pickle.loads(data).fingerprint == manifest.fingerprint
    write(tmp_path, SHARDS[:1])
    with pytest.raises(DatasetError, match="has changed since it was opened"):
        pickle.loads(data)


def test_the_file_may_be_replaced_while_it_is_mapped(tmp_path: Path) -> None:
    manifest = write(tmp_path, SHARDS)
    write(tmp_path, SHARDS[:1])
    assert manifest.rows.tolist() == [4, 4, 4, 0, 3]


def rewrite(folder: Path, change: object) -> None:
    """Writes the manifest again with `change(columns, metadata)` applied."""
    path = folder / "manifest.arrow"
    with pa.memory_map(str(path)) as file:
        reader = ipc.open_file(file)
        batch, metadata = reader.get_batch(0), dict(reader.schema.metadata)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    change(columns, metadata)  # type: ignore[operator]
    table = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    path.unlink()
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, table.schema.with_metadata(metadata | (UNSEALED if metadata else {}))) as writer:
        writer.write_batch(table)
    data = bytearray(sink.getvalue())
    if metadata:
        seal(data)
    path.write_bytes(data)


def with_blocks(name: str, values: list[int]) -> object:
    def change(columns: dict[str, pa.Array], metadata: dict[bytes, bytes]) -> None:
        table = columns["blocks"].values
        fields = [table.field(i) for i in range(table.type.num_fields)]
        number = table.type.get_field_index(name)
        fields[number] = pa.array(values, table.type.field(number).type)
        columns["blocks"] = pa.ListArray.from_arrays(
            columns["blocks"].offsets,
            pa.StructArray.from_arrays(fields, fields=list(table.type)),
            type=columns["blocks"].type,
        )

    return change


def with_metadata(old: bytes, new: bytes) -> object:
    def change(columns: dict[str, pa.Array], metadata: dict[bytes, bytes]) -> None:
        assert old in metadata[b"dataflow"]
        metadata[b"dataflow"] = metadata[b"dataflow"].replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda columns, metadata: columns.pop("chain"), "lacks the column 'chain'"),
        (lambda columns, metadata: columns.update(size=pa.array([1, None, 3])), "nulls in the column 'size'"),
        (lambda columns, metadata: columns.update(size=pa.array(["1", "2", "3"])), "column 'size' of type int64"),
        (lambda columns, metadata: metadata.clear(), "not a manifest"),
        (with_blocks("first_row", [0, 4, 8, 12, 13]), "do not add up in blocks 0 to 4"),
        (with_blocks("rows", [4, 4, 4, -1, 4]), "do not add up"),
        (with_blocks("rows", [4, 4, 4, 0, 4]), "its blocks have 16 rows, its header says 15"),
        (with_metadata(b'"version": 1', b'"version": 2'), "has version 2.*upgrade"),
        (with_metadata(b'"version": 1', b'"version": "x"'), "damaged header"),
        (with_metadata(b'"format": "arrow"', b'"format": "other"'), "no shard format is called 'other'"),
        (with_metadata(b'"schema": "', b'"schema": "AAAA'), "damaged header"),
        (with_metadata(b'{"version"', b'["version"'), "damaged header"),
    ],
)
def test_a_damaged_manifest_says_what_is_wrong(tmp_path: Path, change: object, message: str) -> None:
    write(tmp_path, SHARDS)
    rewrite(tmp_path, change)
    with pytest.raises(DatasetError, match=rf"{tmp_path}/manifest\.arrow cannot be used: .*{message}.*dataflow index"):
        Manifest.open(str(tmp_path))


def test_a_manifest_that_is_cut_off(tmp_path: Path) -> None:
    write(tmp_path, SHARDS)
    data = (tmp_path / "manifest.arrow").read_bytes()
    for cut in range(0, len(data), 61):
        (tmp_path / "manifest.arrow").write_bytes(data[:cut])
        with pytest.raises(DatasetError, match="cannot be used"):
            Manifest.open(str(tmp_path))


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_a_manifest_with_flipped_bytes_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "flipped"
    shutil.rmtree(folder, ignore_errors=True)
    write(folder, SHARDS)
    content = bytearray((folder / "manifest.arrow").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "manifest.arrow").unlink()
    (folder / "manifest.arrow").write_bytes(content)
    try:
        manifest = Manifest.open(str(folder))
        for shard in range(manifest.num_shards):
            manifest.shard_path(shard), manifest.shard_version(shard), manifest.shard_size(shard), manifest.chain(shard)
        for row in range(manifest.num_rows):
            number, _ = manifest.locate(row)
            manifest.checksum(number), manifest.shard_of(number)
    except DatasetError:
        pass


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "there is nothing at .*Check the URL"),
        (["a.tar", "b.tar"], r"holds shards \(a\.tar \.\.\.\) but no manifest.*`dataflow index .*` writes it"),
        (["shard-00000.arrow"], "stopped before its end"),
        (["cat/1.JPG", "dog/2.png"], "folder of images.*`dataflow shard .* DESTINATION`"),
        (["notes.md"], "no shards that are known"),
        (["inner/manifest.arrow", "other/x"], "but .*/inner is: open that"),
    ],
)
def test_what_is_no_dataset_says_what_to_do(tmp_path: Path, files: list[str], message: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DatasetError, match=message):
        Manifest.open(str(tmp_path))


def test_a_file_or_the_manifest_itself_as_url(tmp_path: Path) -> None:
    write(tmp_path, SHARDS)
    (tmp_path / "a.tar").write_bytes(b"x")
    with pytest.raises(DatasetError, match="is a file, not a dataset"):
        Manifest.open(str(tmp_path / "a.tar"))
    assert Manifest.open(str(tmp_path / "manifest.arrow")).num_rows == 15
    assert Manifest.open(tmp_path.as_uri()).num_rows == 15
