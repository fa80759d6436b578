"""Reads Parquet files from front to back in bounded memory, however large their row groups are: for conversion."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dataflow.errors import CorruptDataError
from dataflow.formats.parquet import BATCH_ROWS, DAMAGED, fit
from dataflow.formats.parquet_footer import RowGroup, read_footer
from dataflow.formats.ranged_file import RangedFile
from dataflow.storage import join_url

if TYPE_CHECKING:
    from dataflow.storage import Store

__all__ = ["parquet_parts"]

# What the columns of a row group are read ahead by, all together.
READ_AHEAD_BYTES = 64 << 20
# Rows that are decoded to see how large they are.
FIRST_ROWS = 64


def parquet_parts(store: Store, path: str, part_bytes: int = 8 << 20) -> Iterator[pa.RecordBatch]:
    """Yields all rows of a file in order, with plain types, in record batches of about `part_bytes`.

    Column chunks are read piece by piece, so that neither the file nor a row group of any size is ever in memory.

    Raises:
        CorruptDataError: The file is damaged; names it and the row group.
        DatasetError: It is encrypted, or its columns cannot be told apart.
        StorageError: It could not be read.
    """
    from pyarrow import parquet

    url = join_url(store.url, path)
    footer = read_footer(store, path)
    source = RangedFile(partial(store.read_range, path), 0, store.size(path))
    ahead = max(64 << 10, min(READ_AHEAD_BYTES // footer.metadata.num_columns, 8 << 20))
    number = 0
    try:
        with parquet.ParquetFile(
            pa.PythonFile(source, mode="r"),
            metadata=footer.metadata,
            buffer_size=ahead,
            pre_buffer=False,
            page_checksum_verification=True,
        ) as file:
            for number in range(len(footer.groups)):
                rows = _part_rows(file, footer.schema, footer.groups[number], part_bytes)
                for batch in file.iter_batches(rows, row_groups=[number], use_threads=False):
                    batch.validate(full=True)
                    yield fit(batch, footer.schema)
    except DAMAGED as error:
        if source.failure is not None:
            raise source.failure from None
        raise CorruptDataError(
            f"{url}: row group {number} is damaged: {error}. Write or copy the file again"
        ) from error


def _part_rows(file: Any, schema: pa.Schema, group: RowGroup, part_bytes: int) -> int:
    """Rows that make a part: as many as the first ones show, since values that come often are stored once."""
    rows = min(FIRST_ROWS, max(1, part_bytes * group.rows // max(1, group.decoded)))
    first = next(file.iter_batches(rows, row_groups=[group.number], use_threads=False), None)
    if first is None or not first.num_rows:
        return 1
    return int(min(BATCH_ROWS, max(1, part_bytes * first.num_rows // max(1, fit(first, schema).nbytes))))
