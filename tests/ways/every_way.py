"""The ways on which rows come out of files. On each of them they must be those that the files' own reader gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import dataflow
from dataflow.dataset import Manifest, read_block
from dataflow.operations.verify import verify
from dataflow.sharding import ShardOptions, shard
from dataflow.storage import join_url, open_store

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Files, and what their own reader gives.

    Attributes:
        folder: Where the files are.
        rows: The rows in the order of the files' names.
        not_alone: Columns whose values cannot be taken out of their block: lists of numbers that have nulls in them.
    """

    folder: Path
    rows: list[Row]
    not_alone: Sequence[str] = ()


def in_place(folder: Path, out: Path, s3_url: str) -> str:
    return dataflow.index(str(folder), out=str(out), block_bytes=300).url


def in_place_on_s3(folder: Path, out: Path, s3_url: str) -> str:
    _upload(folder, s3_url)
    return dataflow.index(s3_url, block_bytes=300).url


def sharded_in_order(folder: Path, out: Path, s3_url: str) -> str:
    options = ShardOptions(seed=None, block_bytes=500, shard_bytes=2000)
    return shard(str(folder), str(out), options, workers=1).url


def sharded_shuffled_on_s3(folder: Path, out: Path, s3_url: str) -> str:
    _upload(folder, join_url(s3_url, "files"))
    options = ShardOptions(seed=7, block_bytes=500)
    return shard(join_url(s3_url, "files"), join_url(s3_url, "shards"), options, workers=1).url


WAYS: tuple[Callable[[Path, Path, str], str], ...] = (
    in_place,
    in_place_on_s3,
    sharded_in_order,
    sharded_shuffled_on_s3,
)
every_way = pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])


def check(way: Callable[[Path, Path, str], str], source: Source, tmp_path: Path, s3_url: str) -> None:
    """Compares all rows, as they are stored, one by one and in an epoch, with what the files' own reader gives."""
    url = way(source.folder, tmp_path / "dataset", s3_url)
    rows = plain(source.rows)
    stored = stored_rows(url)
    if way is sharded_shuffled_on_s3:
        assert sorted(stored, key=repr) == sorted(rows, key=repr)
        rows = stored
    else:
        assert stored == rows
    assert not verify(url).faults
    names = [name for name in rows[0] if name not in source.not_alone]
    rows = [{name: row[name] for name in names} for row in rows]
    dataset = dataflow.open(url).select(names)
    assert plain([dataset[number] for number in range(len(dataset))]) == rows
    mapped = dataset.map(lambda row: {"row": plain(row)}, name="as one value")
    assert epoch(mapped) == [{"row": row} for row in rows]
    gathered = [name for name in names if not _has_no_array(dataset.schema.field(name).type, rows, name)]
    assert epoch(dataset.select(gathered)) == [{name: row[name] for name in gathered} for row in rows]


def stored_rows(url: str) -> list[Row]:
    """The rows in stored order, as Arrow has them."""
    manifest = Manifest.open(url)
    store = open_store(manifest.base_url)
    blocks = [read_block(store, manifest, block) for block in range(manifest.num_blocks)]
    assert all(block.schema.equals(manifest.schema) for block in blocks)
    rows: list[Row] = plain([row for block in blocks for row in block.to_pylist()])
    return rows


def epoch(dataset: dataflow.Dataset) -> list[Row]:
    """The rows of a shuffled epoch, put into stored order by the numbers that come with them."""
    found: dict[int, Row] = {}
    for batch in dataflow.DataLoader(dataset, batch_size=4, shuffle=True, seed=2):
        columns = {name: plain(batch[name]) for name in batch if name not in ("slot", "valid")}
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            number = row.pop("sample_id")
            assert number not in found
            found[number] = row
    return [found[number] for number in range(len(dataset))]


def plain(value: Any) -> Any:
    """Python's own values in place of NumPy's and torch's, and a text in place of NaN, which equals nothing."""
    match value:
        case torch.Tensor() | np.ndarray():
            return plain(value.tolist())
        case np.generic():
            return plain(value.item())
        case float() if math.isnan(value):
            return "NaN"
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return value


def _has_no_array(kind: pa.DataType, rows: list[Row], name: str) -> bool:
    """Whether a batch cannot hold the values of a column: where a number is missing, no array has a place for that."""
    numbers = kind
    while pa.types.is_fixed_size_list(numbers):
        numbers = numbers.value_type
    fixed = pa.types.is_integer(numbers) or pa.types.is_floating(numbers) or pa.types.is_boolean(numbers)
    return fixed and any(row[name] is None for row in rows)


def _upload(folder: Path, url: str) -> None:
    store = open_store(url)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put_atomic(path.relative_to(folder).as_posix(), path)
