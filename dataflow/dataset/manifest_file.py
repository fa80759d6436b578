"""The layout of `manifest.arrow`: an Arrow IPC file with one record batch, one row a shard.

The children of the list column `blocks` are the table of all blocks, used where they lie in the mapped file. The file
carries its own checksum in the metadata of its schema, which Arrow writes twice, at the start and in the footer.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash
from pyarrow import ipc

from dataflow.errors import DatasetError, OptionError

__all__ = [
    "BLOCK",
    "CHAIN_BYTES",
    "COLUMNS",
    "EXCLUDED",
    "MANIFEST_NAME",
    "NO_CHAIN",
    "Header",
    "check_properties",
    "next_chain",
]

#: Every dataset has its manifest under this name.
MANIFEST_NAME = "manifest.arrow"
VERSION = 1
HEADER_KEY = b"dataflow"

CHAIN_BYTES = 16
#: The chain before the first shard.
NO_CHAIN = bytes(CHAIN_BYTES)

BLOCK = pa.struct(
    [
        pa.field("start", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("rows", pa.int32(), nullable=False),
        pa.field("checksum", pa.binary(16), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
        pa.field("skip", pa.int64(), nullable=False),
    ]
)
#: Rows of a shard that are never delivered: number of the block in the shard, and the row as it is stored in it.
EXCLUDED = pa.struct([pa.field("block", pa.int32(), nullable=False), pa.field("row", pa.int32(), nullable=False)])
COLUMNS = pa.schema(
    [
        pa.field("path", pa.large_string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("version", pa.large_string(), nullable=False),
        pa.field("chain", pa.binary(CHAIN_BYTES), nullable=False),
        pa.field("detail", pa.large_binary(), nullable=False),
        pa.field("excluded", pa.list_(pa.field("item", EXCLUDED, nullable=False)), nullable=False),
        pa.field("blocks", pa.list_(pa.field("item", BLOCK, nullable=False)), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Header:
    """What a manifest says of the dataset as a whole.

    Attributes:
        format: Name of the shards' format.
        base: URL of the shards, "" where they lie beside the manifest.
        num_rows: Number of rows.
        num_bytes: Number of bytes in all blocks.
        block_rows: Rows that a usual block has.
        schema: Columns of a row.
        properties: JSON-able facts that belong to the dataset, such as the list of classes.
    """

    format: str
    base: str
    num_rows: int
    num_bytes: int
    block_rows: int
    schema: pa.Schema
    properties: dict[str, Any]

    def to_metadata(self) -> dict[bytes, bytes]:
        """The header as metadata of the Arrow schema."""
        check_properties(self.properties)
        values = {
            "version": VERSION,
            "format": self.format,
            "base": self.base,
            "rows": self.num_rows,
            "bytes": self.num_bytes,
            "block_rows": self.block_rows,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "properties": self.properties,
        }
        return {HEADER_KEY: json.dumps(values).encode()}

    @classmethod
    def from_metadata(cls, metadata: dict[bytes, bytes] | None) -> Header:
        """Reads the header back.

        Raises:
            DatasetError: There is none, it is damaged, or it is of a later version; the caller adds the URL.
        """
        text = (metadata or {}).get(HEADER_KEY)
        if text is None:
            raise DatasetError("it is an Arrow file, but not a manifest")
        try:
            values = json.loads(text)
            version = int(values["version"])
            if version > VERSION:
                raise DatasetError(
                    f"it has version {version}, and this dataflow reads up to {VERSION}: upgrade dataflow"
                )
            schema = ipc.read_schema(pa.py_buffer(base64.b64decode(values["schema"], validate=True)))
            header = cls(
                format=str(values["format"]),
                base=str(values["base"]),
                num_rows=int(values["rows"]),
                num_bytes=int(values["bytes"]),
                block_rows=int(values["block_rows"]),
                schema=schema,
                properties=dict(values["properties"]),
            )
        except (ValueError, KeyError, TypeError, OSError, pa.ArrowException) as error:
            raise DatasetError(f"it has a damaged header ({type(error).__name__}: {error})") from error
        return header


def check_properties(properties: dict[str, Any]) -> None:
    """Raises OptionError where properties cannot be stored."""
    try:
        json.dumps(properties, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"properties must be of dicts with text keys, lists, text, numbers and None: {error}"
        ) from error


def next_chain(chain: bytes, path: str, rows: bytes, checksums: bytes, excluded: bytes = b"") -> bytes:
    """The running fingerprint after one more shard: what it is called and holds, not where it lies or how old it is.

    Args:
        chain: Fingerprint of the shards before it.
        path: The shard's path in the dataset.
        rows: Number of rows of each block, each as int32.
        checksums: The blocks' checksums, end to end.
        excluded: Block and row of each row that is never delivered, each as int32.
    """
    digest = xxhash.xxh3_128(chain)
    for part in (path.encode(), rows, checksums, excluded):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()
