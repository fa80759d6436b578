from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import dataflow
from dataflow.storage.local import LocalStore
from tests.conformance.watchdog import limited

Rows = Callable[..., dataflow.Dataset]


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing may hang."""
    with limited(900 if request.node.get_closest_marker("soak") else 60):
        yield


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """A dataset of so many rows, numbered, each with a payload of so many bytes, in blocks and shards of such sizes."""
    folder = tmp_path_factory.mktemp("rows")

    @cache
    def make(count: int, payload: int, rows_per_block: int, shard_bytes: int) -> str:
        url = str(folder / f"{count}-{payload}-{rows_per_block}-{shard_bytes}")
        schema = pa.schema([("number", pa.int64()), *([("payload", pa.binary())] if payload else [])])
        with dataflow.ShardWriter(url, schema, rows_per_block=rows_per_block, shard_bytes=shard_bytes) as writer:
            for number in range(count):
                writer.write(
                    {"number": number, "payload": bytes([number % 256]) * payload} if payload else {"number": number}
                )
        return url

    def open_rows(
        count: int, payload: int = 0, rows_per_block: int = 4, shard_bytes: int = 1 << 20
    ) -> dataflow.Dataset:
        return dataflow.open(make(count, payload, rows_per_block, shard_bytes))

    return open_rows


class Reads:
    """The ranges of shards that were read, in order: (path, start, length)."""

    def __init__(self) -> None:
        self.ranges: list[tuple[str, int, int]] = []

    def blocks(self, dataset: dataflow.Dataset) -> list[int]:
        """Numbers of the blocks that were read, in order."""
        manifest = dataset.manifest
        starts = {
            (manifest.shard_path(manifest.shard_of(block)), int(manifest.starts[block])): block
            for block in range(manifest.num_blocks)
        }
        return [starts[path, start] for path, start, _ in self.ranges]

    @property
    def nbytes(self) -> int:
        return sum(length for _, _, length in self.ranges)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """What the local store reads; the reads themselves are real."""
    log = Reads()
    read_ranges = LocalStore.read_ranges

    def recorded(self: LocalStore, path: str, ranges: Any) -> Any:
        log.ranges += [(path, start, length) for start, length in ranges]
        return read_ranges(self, path, ranges)

    monkeypatch.setattr(LocalStore, "read_ranges", recorded)
    return log
