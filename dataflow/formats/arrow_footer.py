"""The footer of an Arrow IPC file: a second copy of the schema, and where the record batches are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from dataflow.errors import CorruptDataError
from dataflow.formats.format import Block, Skipped

if TYPE_CHECKING:
    from dataflow.formats.window import Window

__all__ = ["DAMAGED", "MAGIC", "check_footer", "rest"]

MAGIC = b"ARROW1"
# An entry of the footer for a record batch.
LISTED = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("padding", "<i4"), ("body", "<i8")])
# What pyarrow raises on damaged bytes: its own errors, and Python's for short reads and absurd lengths.
DAMAGED = (pa.ArrowException, OSError, EOFError, MemoryError, ValueError, TypeError)


def check_footer(
    window: Window, schema: pa.Schema, blocks: list[Block], end: int, skipped: list[Skipped] | None, url: str
) -> list[Block]:
    """The blocks that the footer, which other readers go by, has too.

    Args:
        window: The file.
        schema: The schema at its start.
        blocks: The record batches that were found.
        end: Offset before which all record batches were looked at.
        skipped: Where what is damaged is noted; None to raise an error.
        url: Names the file.

    Raises:
        CorruptDataError: The footer does not agree with what was found, and `skipped` is None or it is another schema.
    """
    footer = _footer(window)
    if footer is not None and footer[0].equals(schema, check_metadata=True):
        places = [(block.start, block.length) for block in blocks]
        if footer[1] == places:
            return blocks
        if skipped is not None:
            listed = set(footer[1])
            skipped += [
                Skipped(f"record batch at offset {start}", "a damaged record batch", "the footer lists no such one")
                for start, length in places
                if (start, length) not in listed
            ]
            if any(start >= end for start, _ in listed):  # zeros are a mark of the end, too
                skipped.append(rest(end, "the footer lists record batches there"))
            return [block for block, place in zip(blocks, places, strict=True) if place in listed]
    elif footer is None and skipped is not None:
        skipped.append(Skipped("the footer", "damaged; the record batches before it are sound"))
        return blocks
    raise CorruptDataError(
        f"{url}: damaged: its footer does not have the {len(blocks)} record batches and the schema that the file "
        "holds. Write or copy the shard again."
    )


def _footer(window: Window) -> tuple[pa.Schema, list[tuple[int, int]]] | None:
    """The schema in the footer, and offset and length of each record batch; None if it is damaged."""
    length = int.from_bytes(window.read(window.size - len(MAGIC) - 4, 4), "little")
    if not 0 < length <= window.size:
        return None
    data = bytes(window.read(window.size - len(MAGIC) - 4 - length, length))
    # Nothing but the footer is looked at when a file is opened, so that it makes one by itself.
    file = b"".join((MAGIC, bytes(2), data, length.to_bytes(4, "little"), MAGIC))
    try:
        schema = ipc.open_file(pa.BufferReader(file)).schema
        dictionaries, batches = (_listed(data, field) for field in (2, 3))
    except DAMAGED:
        return None
    if len(dictionaries):
        return None
    lengths = (batches["metadata"] + batches["body"]).tolist()
    return schema, list(zip(batches["offset"].tolist(), lengths, strict=True))


def _listed(footer: bytes, field: int) -> npt.NDArray[np.void]:
    """The messages that a field of a footer lists: a flatbuffer's vector of structs."""

    def number(at: int, size: int = 4) -> int:
        return int.from_bytes(footer[at : at + size], "little")

    table = number(0)
    offsets = table - number(table)
    offset = number(offsets + 4 + 2 * field, 2) if number(offsets, 2) > 4 + 2 * field else 0
    if not offset:
        return np.empty(0, LISTED)
    vector = table + offset
    vector += number(vector)
    return np.frombuffer(footer, LISTED, number(vector), vector + 4)


def rest(offset: int, note: str) -> Skipped:
    """What follows an offset, as something that is skipped."""
    return Skipped(f"everything after offset {offset}", "damaged or cut off", note)
