from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from dataflow.errors import CorruptDataError, DatasetError, StorageNotFoundError
from dataflow.formats import Place, ShardIndex, format_named, format_of
from dataflow.storage import Buffer, open_store
from dataflow.storage.local import LocalStore

ARROW = format_named("arrow")
PLACE = Place(0, 0)
SCHEMA = pa.schema(
    [
        ("image", pa.binary()),
        ("text", pa.string()),
        ("label", pa.int64()),
        ("tokens", pa.list_(pa.int32())),
        ("pose", pa.list_(pa.float32(), 3)),
        ("info", pa.struct([("a", pa.bool_()), ("b", pa.large_string())])),
    ]
)


def batch_of(rows: int, seed: int = 0) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    return pa.RecordBatch.from_pylist(
        [
            {
                "image": rng.bytes(int(rng.integers(0, 300))) if i % 5 else None,
                "text": "é" * int(rng.integers(0, 9)),
                "label": i,
                "tokens": rng.integers(0, 9, int(rng.integers(0, 5))).tolist(),
                "pose": [0.5, 1.5, float(i)],
                "info": {"a": bool(i % 2), "b": None},
            }
            for i in range(rows)
        ],
        SCHEMA,
    )


def write(path: Path, batches: list[pa.RecordBatch], stream: bool = False, **options: object) -> bytes:
    opened = ipc.new_stream if stream else ipc.new_file
    with opened(str(path), batches[0].schema, options=ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path.read_bytes()


def index_file(path: Path) -> ShardIndex:
    return ARROW.index(open_store(str(path.parent)), path.name, 1 << 20)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"compression": "lz4"}, {"use_legacy_format": True}])
def test_blocks_are_the_record_batches(tmp_path: Path, stream: bool, options: dict[str, object]) -> None:
    batches = [batch_of(rows, rows) for rows in (7, 1, 0, 40)]
    data = write(tmp_path / "a.arrow", batches, stream, **options)
    index = index_file(tmp_path / "a.arrow")
    assert index.schema == SCHEMA
    assert [block.rows for block in index.blocks] == [7, 1, 0, 40]
    for block, batch in zip(index.blocks, batches, strict=True):
        piece = data[block.start : block.start + block.length]
        assert block.checksum == xxhash.xxh3_128_digest(piece)
        assert ARROW.read(piece, index.schema, PLACE).equals(batch)
        assert ARROW.read(memoryview(piece), index.schema, PLACE).equals(batch)


def test_uncompressed_blocks_are_used_in_place(tmp_path: Path) -> None:
    data = write(tmp_path / "a.arrow", [batch_of(50)])
    block = index_file(tmp_path / "a.arrow").blocks[0]
    piece = data[block.start : block.start + block.length]
    address = pa.py_buffer(piece).address
    values = ARROW.read(piece, SCHEMA, PLACE).column("image").buffers()[2]
    assert address <= values.address < address + len(piece)


def test_a_batch_larger_than_the_window(tmp_path: Path) -> None:
    batches = [pa.record_batch({"x": pa.array([bytes(10 << 20)] * 2)}), pa.record_batch({"x": pa.array([b"y"])})]
    data = write(tmp_path / "a.arrow", batches)
    index = index_file(tmp_path / "a.arrow")
    assert [block.rows for block in index.blocks] == [2, 1]
    for block in index.blocks:
        assert block.checksum == xxhash.xxh3_128_digest(data[block.start : block.start + block.length])


def test_every_cut_of_a_shard_is_noticed(tmp_path: Path) -> None:
    for stream in (False, True):
        data = write(tmp_path / "a.arrow", [batch_of(3), batch_of(4)], stream)
        for cut in [*range(0, len(data), 41), *range(len(data) - 12, len(data))]:
            (tmp_path / "b.arrow").write_bytes(data[:cut])
            with pytest.raises(CorruptDataError, match=r"b\.arrow: "):
                index_file(tmp_path / "b.arrow")


def test_what_is_no_arrow_at_all(tmp_path: Path) -> None:
    for data in (b"", b"hello", b"ARROW1", b"\xff" * 100, b"\x00" * 100, b"PAR1" * 50):
        (tmp_path / "a.arrow").write_bytes(data)
        with pytest.raises(CorruptDataError, match=r"a\.arrow"):
            index_file(tmp_path / "a.arrow")


def test_a_file_without_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", [pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))])
    with pytest.raises(DatasetError, match=r"a\.arrow: has no columns\. Leave it out"):
        index_file(tmp_path / "a.arrow")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    batch = pa.record_batch({"outer": pa.array([{"inner": 1}])})
    for stream in (False, True):
        data = write(tmp_path / "a.arrow", [batch], stream)
        for name in (b"outer", b"inner"):
            (tmp_path / "a.arrow").write_bytes(data.replace(name, b"\x80" + name[1:]))
            with pytest.raises(CorruptDataError, match=r"a\.arrow: damaged .* offset"):
                index_file(tmp_path / "a.arrow")


def test_data_after_a_stream(tmp_path: Path) -> None:
    data = write(tmp_path / "a.arrow", [batch_of(3)], stream=True)
    (tmp_path / "a.arrow").write_bytes(data + data)
    with pytest.raises(CorruptDataError, match="Keep one stream a file"):
        index_file(tmp_path / "a.arrow")


def test_an_absurd_length_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "a.arrow").write_bytes(b"ARROW1\0\0" + b"\xff\xff\xff\xff" + (0x7FFFFFF0).to_bytes(4, "little"))
    with pytest.raises(CorruptDataError, match=r"a\.arrow: "):
        index_file(tmp_path / "a.arrow")


def test_dictionary_columns_are_refused_with_the_remedy(tmp_path: Path) -> None:
    column = pa.array(["a", "b", "a"]).dictionary_encode()
    nested = pa.StructArray.from_arrays([column], names=["inner"])
    for values in (column, nested):
        write(tmp_path / "a.arrow", [pa.record_batch({"kind": values})])
        with pytest.raises(DatasetError, match=r"a\.arrow: column 'kind' is dictionary-encoded.*Write it again"):
            index_file(tmp_path / "a.arrow")


def test_a_store_that_fails_is_no_corrupt_data(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", [pa.record_batch({"x": pa.array([bytes(10 << 20)])})] * 2)

    class Vanishing(LocalStore):
        def read_range(self, path: str, start: int, length: int) -> Buffer:
            if start > 0:
                (tmp_path / path).unlink()
            return super().read_range(path, start, length)

    with pytest.raises(StorageNotFoundError):
        ARROW.index(Vanishing(str(tmp_path)), "a.arrow", 1)


def test_merge_wants_equal_schemas() -> None:
    first = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert ARROW.merge(first, first.with_metadata({"x": "y"})) == first
    for second, message in [
        (pa.schema([("a", pa.int64())]), "lacks column 'b'"),
        (pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int8())]), "column 'c' that earlier shards lack"),
        (pa.schema([("a", pa.int32()), ("b", pa.string())]), "column 'a' as int32, earlier shards have int64"),
        (pa.schema([("b", pa.string()), ("a", pa.int64())]), "another order"),
    ]:
        with pytest.raises(DatasetError, match=message):
            ARROW.merge(first, second)


@settings(deadline=None, max_examples=400)
@given(st.data(), st.booleans())
def test_damaged_blocks_raise_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, zstd: bool
) -> None:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, SCHEMA, options=ipc.IpcWriteOptions(compression="zstd" if zstd else None)) as writer:
        writer.write_batch(batch_of(12))
    start = len(SCHEMA.serialize())
    block = bytearray(sink.getvalue().to_pybytes()[start:-8])
    for _ in range(data.draw(st.integers(1, 5))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    del block[data.draw(st.integers(1, len(block))) :]
    try:
        batch = ARROW.read(bytes(block), SCHEMA, PLACE)
    except CorruptDataError:
        return
    batch.to_pylist()  # whatever passed can be read without a crash


def test_formats_are_found_by_suffix_and_name() -> None:
    assert format_of("x/shard-00000.ARROW") is ARROW
    assert format_of("a.tar") is format_named("webdataset")
    assert format_of("a.tar.gz") is None
    with pytest.raises(DatasetError, match=r"'parquets'; there are 'arrow', .*'webdataset'"):
        format_named("parquets")


def test_a_footer_that_other_readers_would_stumble_over(tmp_path: Path) -> None:
    batch = pa.record_batch({"number": [1, 2, 3], "text": ["a", "b", "c"]})
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, batch.schema.with_metadata({"made by": "a test"})) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    whole = sink.getvalue().to_pybytes()
    path = tmp_path / "a.arrow"

    def index(data: bytes) -> ShardIndex:
        path.write_bytes(data)
        return ARROW.index(open_store(str(tmp_path)), "a.arrow", 1 << 20)

    ends = [block.start + block.length for block in index(whole).blocks]
    expected = ipc.open_file(pa.BufferReader(whole)).read_all()
    found, unseen = 0, 0
    for place in range(ends[-1], len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        try:
            index(bytes(damaged))
        except CorruptDataError:
            found += 1
        else:  # padding, and what nobody reads
            unseen += not ipc.open_file(pa.BufferReader(bytes(damaged))).read_all().equals(expected)
    assert found > (len(whole) - ends[-1]) / 2
    assert unseen == 1  # the order of bytes, which pyarrow does not tell
