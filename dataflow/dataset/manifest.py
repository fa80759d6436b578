"""A manifest: which blocks a dataset has, in which shards and byte ranges, with how many rows and which checksums."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from dataflow.dataset.manifest_checksum import check_seal
from dataflow.dataset.manifest_columns import Texts, Values, digests, list_of, numbers
from dataflow.dataset.manifest_file import COLUMNS, MANIFEST_NAME, NO_CHAIN, Header
from dataflow.dataset.manifest_location import find_manifest
from dataflow.errors import DatasetError
from dataflow.formats import Place, format_named
from dataflow.storage import join_url

__all__ = ["Manifest"]

# Checks over whole columns go piece by piece, so that a manifest of any size is checked in a few MiB.
PIECE = 1 << 18


class Manifest:
    """The table of all blocks, used in place in a memory-mapped file: opening costs no object a shard.

    Blocks are numbered from 0 through all shards in order; numbers never change when shards are appended.

    Attributes:
        url: The dataset's folder.
        num_shards: Number of shards.
        num_blocks: Number of blocks.
        num_rows: Number of rows.
        num_bytes: Number of bytes in all blocks.
        block_rows: Rows that a usual block has.
        schema: Columns of a row.
        format: Name of the shards' format.
        properties: JSON-able facts stored with the dataset.
        base_url: The folder that holds the shards.
        rows: int32 [num_blocks], rows of each block, without those that are excluded.
        starts: int64 [num_blocks], offset of each block in its shard, in bytes.
        lengths: int64 [num_blocks], bytes of each block.
        skips: int64 [num_blocks], decoded bytes of each block before its first row.
        first_rows: int64 [num_blocks], number of rows before each block.
        first_blocks: int32 [num_shards + 1], number of blocks before each shard; the last is num_blocks.
    """

    def __init__(self, file: pa.NativeFile, url: str) -> None:
        """Reads an opened manifest; `Manifest.open` is the usual way.

        Raises:
            DatasetError: It is damaged; names `url` and what is wrong.
        """
        self.url = url
        try:
            self._load(file)
        except DatasetError as error:
            raise _unusable(url, error) from error

    @classmethod
    def open(cls, url: str) -> Manifest:
        """Opens the manifest of the dataset at `url`: local ones where they lie, others from a copy kept on the node.

        Raises:
            DatasetError: There is no dataset at `url`, or its manifest is damaged; says what to do.
            StorageError: The store could not be read.
        """
        folder, path = find_manifest(url)
        try:
            try:
                check_seal(path)
            except DatasetError:
                # What is damaged may be this node's copy.
                folder, path = find_manifest(url, anew=True)
                check_seal(path)
        except DatasetError as error:
            raise _unusable(folder, error) from error
        with pa.memory_map(str(path)) as file:
            return cls(file, folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.url, self.fingerprint)

    def __repr__(self) -> str:
        return f"Manifest({self.url!r}, {self.num_shards} shards, {self.num_blocks} blocks, {self.num_rows} rows)"

    @cached_property
    def fingerprint(self) -> str:
        """Identity of the data, 32 hexadecimal digits: names and contents of the shards, not their place or age."""
        return self.chain(self.num_shards)

    def chain(self, num_shards: int) -> str:
        """Fingerprint of the first `num_shards` shards, which a dataset keeps when shards are appended."""
        if not 0 <= num_shards <= self.num_shards:
            raise IndexError(f"{self.url} has {self.num_shards} shards, not {num_shards}")
        return (NO_CHAIN if num_shards == 0 else bytes(self._chains[num_shards - 1])).hex()

    def prefix(self, fingerprint: str) -> Manifest | None:
        """The first shards of the dataset that have this fingerprint together; None if there are no such."""
        if fingerprint == self.fingerprint:
            return self
        try:
            (wanted,) = np.frombuffer(bytes.fromhex(fingerprint), self._chains.dtype)
        except ValueError:  # not the fingerprint of anything
            return None
        found = np.flatnonzero(self._chains == wanted)
        if len(found) == 0:
            return None
        shards = int(found[0]) + 1
        blocks = int(self.first_blocks[shards])
        part = copy(self)
        part.__dict__.pop("fingerprint", None)
        part.num_shards, part.num_blocks = shards, blocks
        part.rows, part.starts, part.lengths = self.rows[:blocks], self.starts[:blocks], self.lengths[:blocks]
        part.skips = self.skips[:blocks]
        part.first_rows, part.first_blocks = self.first_rows[:blocks], self.first_blocks[: shards + 1]
        part.num_rows, part.num_bytes = int(part.rows.sum()), int(part.lengths.sum())
        return part

    def checksum(self, block: int) -> bytes:
        """xxh3-128 digest (16 bytes) of a block."""
        return bytes(self._checksums[self._check_block(block)])

    def shard_of(self, block: int) -> int:
        """Number of the shard that holds a block."""
        return int(np.searchsorted(self.first_blocks, self._check_block(block), side="right")) - 1

    def shard_path(self, shard: int) -> str:
        """A shard's path below `base_url`."""
        return self._paths.at(shard)

    def shard_size(self, shard: int) -> int:
        """Bytes of the whole shard when it was indexed."""
        return int(self._sizes[shard])

    def shard_version(self, shard: int) -> str:
        """What the store called the shard's version when it was indexed, "" if unknown."""
        return self._versions.at(shard)

    def detail(self, shard: int) -> bytes:
        """What the format needs to decode the blocks of a shard beside their bytes; see `ShardIndex.detail`."""
        return self._details.at(shard)

    @property
    def num_excluded(self) -> int:
        """Number of rows that are stored, but never delivered."""
        return int(self._first_excluded[self.num_shards])

    def excluded_rows(self, shard: int) -> npt.NDArray[np.int32]:
        """int32 [rows, 2]: the rows of a shard that are never delivered, as block of the shard and row as stored."""
        start, end = int(self._first_excluded[shard]), int(self._first_excluded[shard + 1])
        return self._excluded[start:end]

    def excluded_from(self, block: int) -> npt.NDArray[np.int32]:
        """int32: the stored rows of a block that are never delivered, in order."""
        if not self.num_excluded:
            return np.empty(0, np.int32)
        shard = self.shard_of(block)
        pairs = self.excluded_rows(shard)
        rows: npt.NDArray[np.int32] = pairs[pairs[:, 0] == block - self.first_blocks[shard], 1]
        return rows

    def place(self, block: int) -> Place:
        """What a format needs to decode a block beside its bytes."""
        stored = int(self.rows[block]) + len(self.excluded_from(block))
        return Place(int(self.starts[block]), stored, int(self.skips[block]), self.detail(self.shard_of(block)))

    def locate(self, row_number: int) -> tuple[int, int]:
        """Returns the block that holds a row of the dataset, and the row's number in that block."""
        if not 0 <= row_number < self.num_rows:
            raise IndexError(f"row {row_number} of {self.url}, which has {self.num_rows} rows")
        # The last block that starts at or before the row: that passes empty blocks.
        block = int(np.searchsorted(self.first_rows, row_number, side="right")) - 1
        return block, row_number - int(self.first_rows[block])

    def _check_block(self, block: int) -> int:
        if not 0 <= block < self.num_blocks:
            raise IndexError(f"block {block} of {self.url}, which has {self.num_blocks} blocks")
        return block

    def _load(self, file: pa.NativeFile) -> None:
        try:
            reader = ipc.open_file(file)
            header = Header.from_metadata(reader.schema.metadata)
            if reader.num_record_batches != 1:
                raise DatasetError(f"it has {reader.num_record_batches} record batches instead of 1")
            batch = reader.get_batch(0)
            batch.validate()
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise DatasetError(f"it is damaged ({error})") from error
        format_named(header.format)
        for field in COLUMNS:
            index = batch.schema.get_field_index(field.name)
            if index < 0 or batch.schema.field(index).type != field.type:
                raise DatasetError(f"it lacks the column {field.name!r} of type {field.type}")
            if batch.column(index).null_count:
                raise DatasetError(f"it has nulls in the column {field.name!r}")
        self.format = header.format
        self.schema = header.schema
        self.properties = header.properties
        self.base_url = header.base or self.url
        self.num_rows, self.num_bytes, self.block_rows = header.num_rows, header.num_bytes, header.block_rows
        self.num_shards = batch.num_rows
        self._paths = Texts(batch.column("path"))
        self._versions = Texts(batch.column("version"))
        self._sizes = numbers(batch.column("size"))
        self._chains = digests(batch.column("chain"))
        self._details = Values(batch.column("detail"))
        self._first_excluded, excluded = list_of(batch.column("excluded"), "excluded rows")
        self._excluded: npt.NDArray[np.int32] = np.stack([numbers(excluded.field(place)) for place in range(2)], axis=1)
        self._load_blocks(batch.column("blocks"))
        self._check()

    def _load_blocks(self, blocks: pa.ListArray) -> None:
        self.first_blocks, table = list_of(blocks, "blocks")
        self.num_blocks = len(table)
        self.rows: npt.NDArray[np.int32] = numbers(table.field("rows"))
        self.starts: npt.NDArray[np.int64] = numbers(table.field("start"))
        self.lengths: npt.NDArray[np.int64] = numbers(table.field("length"))
        self.first_rows: npt.NDArray[np.int64] = numbers(table.field("first_row"))
        self.skips: npt.NDArray[np.int64] = numbers(table.field("skip"))
        self._checksums = digests(table.field("checksum"))

    def _check(self) -> None:
        """Checks what every search relies on; offsets inside a shard are checked by the read itself."""
        for offsets in (self.first_blocks, self._first_excluded):
            for start in range(0, self.num_shards, PIECE):
                piece = offsets[start : start + PIECE + 1]
                if (piece[1:] < piece[:-1]).any():
                    raise DatasetError("it is damaged (block offsets go backwards)")
        total = 0
        for start in range(0, self.num_blocks, PIECE):
            rows = self.rows[start : start + PIECE]
            ends = np.cumsum(rows, dtype=np.int64) + total
            if int(rows.min()) < 0 or not np.array_equal(ends - rows, self.first_rows[start : start + PIECE]):
                raise DatasetError(
                    f"it is damaged (row counts do not add up in blocks {start} to {start + len(rows) - 1})"
                )
            total = int(ends[-1])
        if total != self.num_rows:
            raise DatasetError(f"it is damaged (its blocks have {total} rows, its header says {self.num_rows})")


def _unusable(url: str, error: DatasetError) -> DatasetError:
    return DatasetError(
        f"the manifest {join_url(url, MANIFEST_NAME)} cannot be used: {error}. Write it again: `dataflow index`"
    )


def _reopen(url: str, fingerprint: str) -> Manifest:
    manifest = Manifest.open(url)
    if manifest.fingerprint != fingerprint:
        raise DatasetError(
            f"the dataset at {url} has changed since it was opened (fingerprint {manifest.fingerprint}, was "
            f"{fingerprint}). Open it again"
        )
    return manifest
