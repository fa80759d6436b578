"""Writes a manifest: shard by shard into compact arrays, then in one atomic put."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from dataflow.dataset.manifest_file import BLOCK, COLUMNS, MANIFEST_NAME, NO_CHAIN, Header, next_chain
from dataflow.formats import Block
from dataflow.storage import Store

__all__ = ["ManifestWriter", "write_manifest"]


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
        self._checksums = bytearray()

    @property
    def num_rows(self) -> int:
        """Rows in the shards so far."""
        return sum(self._rows)

    def add(self, path: str, size: int, version: str, blocks: list[Block]) -> None:
        """Adds the next shard.

        Args:
            path: Its path below the base.
            size: Its bytes.
            version: What the store calls its version, "" if unknown.
            blocks: Its blocks in order.
        """
        checksums = b"".join(block.checksum for block in blocks)
        self._chain = next_chain(self._chain, path, [block.rows for block in blocks], checksums)
        self._paths.append(path)
        self._versions.append(version)
        self._sizes.append(size)
        self._chains += self._chain
        self._starts.extend(block.start for block in blocks)
        self._lengths.extend(block.length for block in blocks)
        self._rows.extend(block.rows for block in blocks)
        self._checksums += checksums
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
                pa.array(np.asarray(self._starts, np.int64)),
                pa.array(lengths),
                pa.array(rows),
                _digests(self._checksums, len(rows)),
                pa.array(ends - rows),
            ],
            fields=list(BLOCK),
        )
        offsets = pa.array(np.asarray(self._first_blocks, np.int32))
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(self._paths, pa.large_string()),
                pa.array(np.asarray(self._sizes, np.int64)),
                pa.array(self._versions, pa.large_string()),
                _digests(self._chains, len(self._paths)),
                pa.ListArray.from_arrays(offsets, table, type=COLUMNS.field("blocks").type),
            ],
            schema=COLUMNS,
        )
        write_manifest(store, header, batch)


def write_manifest(store: Store, header: Header, shards: pa.RecordBatch) -> None:
    """Writes a manifest whose table of shards (columns `COLUMNS`) is at hand."""
    sink = pa.BufferOutputStream()
    with ipc.new_file(sink, COLUMNS.with_metadata(header.to_metadata())) as writer:
        writer.write_batch(shards)
    store.put_atomic(MANIFEST_NAME, memoryview(sink.getvalue()).cast("B"))


def _digests(data: bytearray, count: int) -> pa.FixedSizeBinaryArray:
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(bytes(data))])
