"""Writes a manifest: shard by shard into compact arrays, then in one atomic put."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from dataflow.dataset.manifest import Manifest
from dataflow.dataset.manifest_checksum import UNSEALED, seal
from dataflow.dataset.manifest_file import BLOCK, COLUMNS, EXCLUDED, MANIFEST_NAME, NO_CHAIN, Header, next_chain
from dataflow.formats import Block
from dataflow.formats.binary import binary_array, text_array
from dataflow.formats.numeric import numeric_array
from dataflow.storage import Store

__all__ = ["ManifestWriter", "write_manifest"]

CHECKSUM_BYTES = 16
EXCLUDED_BYTES = 8


class ManifestWriter:
    """Collects the shards of a dataset in order.

    Args:
        format: Name of the shards' format.
        base: URL of the shards, "" where they lie beside the manifest.
        properties: JSON-able facts to keep with the dataset.
    """

    def __init__(self, format: str, base: str = "", properties: dict[str, Any] | None = None) -> None:
        self._format = format
        self._base = base
        self._properties = {} if properties is None else properties
        self._paths: list[str] = []
        self._versions: list[str] = []
        self._sizes = array("q")
        self._chains = bytearray()
        self._chain = NO_CHAIN
        self._first_blocks = array("i", [0])
        self._starts = array("q")
        self._lengths = array("q")
        self._rows = array("i")
        self._skips = array("q")
        self._checksums = bytearray()
        self._details: list[bytes] = []
        self._excluded = bytearray()
        self._first_excluded = array("i", [0])

    @property
    def num_rows(self) -> int:
        """Rows in the shards so far."""
        return sum(self._rows)

    def add(
        self,
        path: str,
        size: int,
        version: str,
        blocks: list[Block],
        detail: bytes = b"",
        excluded: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Adds the next shard.

        Args:
            path: Its path below the base.
            size: Its bytes.
            version: What the store calls its version, "" if unknown.
            blocks: Its blocks in order.
            detail: See `ShardIndex.detail`.
            excluded: As for `add_from`.
        """
        if excluded is None:
            excluded = np.empty((0, 2), np.int32)
        stored = np.array([block.rows for block in blocks], np.int32)
        rows = stored - np.bincount(excluded[:, 0], minlength=len(blocks))
        self._starts.extend(block.start for block in blocks)
        self._lengths.extend(block.length for block in blocks)
        self._rows.frombytes(rows.astype(np.int32).tobytes())
        self._skips.extend(block.skip for block in blocks)
        self._checksums += b"".join(block.checksum for block in blocks)
        self._end_shard(path, size, version, detail, excluded.astype(np.int32).tobytes())

    def add_from(
        self,
        manifest: Manifest,
        shard: int,
        *,
        path: str | None = None,
        detail: bytes | None = None,
        excluded: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Adds a shard as another manifest has it.

        Args:
            manifest: The other manifest.
            shard: Number of the shard there.
            path: Its path below the base of this one, if it is another one.
            detail: Its detail, if it is another one.
            excluded: int32 [rows, 2], all rows that are never to be delivered: number of the block in the shard, and
                the row as it is stored; sorted. None: those of the other manifest.
        """
        first, last = int(manifest.first_blocks[shard]), int(manifest.first_blocks[shard + 1])
        if excluded is None:
            excluded = manifest.excluded_rows(shard)
        stored = manifest.rows[first:last] + np.bincount(manifest.excluded_rows(shard)[:, 0], minlength=last - first)
        rows = stored - np.bincount(excluded[:, 0], minlength=last - first)
        self._starts.frombytes(manifest.starts[first:last].tobytes())
        self._lengths.frombytes(manifest.lengths[first:last].tobytes())
        self._rows.frombytes(rows.astype(np.int32).tobytes())
        self._skips.frombytes(manifest.skips[first:last].tobytes())
        self._checksums += b"".join(map(manifest.checksum, range(first, last)))
        self._end_shard(
            manifest.shard_path(shard) if path is None else path,
            manifest.shard_size(shard),
            manifest.shard_version(shard),
            manifest.detail(shard) if detail is None else detail,
            excluded.astype(np.int32).tobytes(),
        )

    def _end_shard(self, path: str, size: int, version: str, detail: bytes, excluded: bytes) -> None:
        start = self._first_blocks[-1]
        checksums = bytes(self._checksums[start * CHECKSUM_BYTES :])
        self._chain = next_chain(self._chain, path, self._rows[start:].tobytes(), checksums, excluded)
        self._paths.append(path)
        self._versions.append(version)
        self._sizes.append(size)
        self._chains += self._chain
        self._details.append(detail)
        self._excluded += excluded
        self._first_excluded.append(len(self._excluded) // EXCLUDED_BYTES)
        self._first_blocks.append(len(self._rows))

    def write(self, store: Store, schema: pa.Schema) -> None:
        """Writes the manifest into `store`. From now on it is a dataset.

        Args:
            store: The dataset's folder.
            schema: Columns of a row.
        """
        rows = np.asarray(self._rows, np.int32)
        lengths = np.asarray(self._lengths, np.int64)
        ends = np.cumsum(rows, dtype=np.int64)
        values, counts = np.unique(rows, return_counts=True)
        # The commonest number of rows, of several the largest: the last block is often a smaller one.
        block_rows = int(values[counts == counts.max()][-1]) if len(values) else 0
        header = Header(
            format=self._format,
            base=self._base,
            num_rows=int(ends[-1]) if len(ends) else 0,
            num_bytes=int(lengths.sum()),
            block_rows=block_rows,
            schema=schema,
            properties=self._properties,
        )
        table = pa.StructArray.from_arrays(
            [
                numeric_array(np.asarray(self._starts, np.int64)),
                numeric_array(lengths),
                numeric_array(rows),
                _digests(self._checksums, len(rows)),
                numeric_array(ends - rows),
                numeric_array(np.asarray(self._skips, np.int64)),
            ],
            fields=list(BLOCK),
        )
        pairs = np.frombuffer(bytes(self._excluded), np.int32).reshape(-1, 2)
        excluded = pa.StructArray.from_arrays(
            [numeric_array(pairs[:, place]) for place in range(2)], fields=list(EXCLUDED)
        )
        offsets = numeric_array(np.asarray(self._first_blocks, np.int32))
        batch = pa.RecordBatch.from_arrays(
            [
                text_array(self._paths).cast(pa.large_string()),
                numeric_array(np.asarray(self._sizes, np.int64)),
                text_array(self._versions).cast(pa.large_string()),
                _digests(self._chains, len(self._paths)),
                binary_array(self._details).cast(pa.large_binary()),
                pa.ListArray.from_arrays(
                    numeric_array(np.asarray(self._first_excluded, np.int32)),
                    excluded,
                    type=COLUMNS.field("excluded").type,
                ),
                pa.ListArray.from_arrays(offsets, table, type=COLUMNS.field("blocks").type),
            ],
            schema=COLUMNS,
        )
        write_manifest(store, header, batch)


def write_manifest(store: Store, header: Header, shards: pa.RecordBatch) -> None:
    """Writes a manifest whose table of shards (columns `COLUMNS`) is at hand."""
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, COLUMNS.with_metadata(header.to_metadata() | UNSEALED)) as writer:
        writer.write_batch(shards)
    file = bytearray(sink.getvalue())
    seal(file)
    store.put_atomic(MANIFEST_NAME, memoryview(file))


def _digests(data: bytearray, count: int) -> pa.FixedSizeBinaryArray:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(bytes(data))])
